"""Turns taken up again: what was parked or interrupted, and what has no living owner any more."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from palaver.domain.key import SessionKey
from palaver.domain.turn import Turn
from palaver.ports.work import Row, Steps, work
from palaver.stores.inbox import OPEN_TURN
from palaver.stores.records import TURN_COLUMNS, micros, turn_of

__all__ = ["reclaim", "resume"]

_TAKE = "UPDATE turns SET state = 'running', attempt = attempt + 1, fence = fence + 1, worker = ?, lease_until = ?"


@work
def resume(number: int, worker: str, now: datetime, lease: timedelta) -> Steps[Turn | None]:
    """Take a parked or interrupted turn up again, under a new fence."""
    rows = yield (
        f"{_TAKE} WHERE no = ? AND state IN ('parked', 'interrupted') RETURNING no",
        (worker, micros(now + lease), number),
    )
    return (yield from _get(number)) if rows else None


@work
def reclaim(
    worker: str,
    now: datetime,
    lease: timedelta,
    *,
    alone: bool = False,
    limit: int = 100,
    besides: Collection[SessionKey] = (),
) -> Steps[list[Turn]]:
    """Take over turns that were interrupted, and running ones whose owner is gone, besides those at work here.

    That is when the lease ran out or, for the only gateway, when anybody else owns it. Such a turn was cut off when its
    owner last showed a sign of life, which is not later than the end of the lease.
    """
    rows: list[Row] = yield (
        f"{_TAKE}, halted = CASE WHEN state = 'running' THEN CASE WHEN lease_until < ? THEN lease_until ELSE ? END"
        " ELSE halted END WHERE no IN ("
        f" SELECT no FROM turns WHERE state IN {OPEN_TURN} AND (state = 'interrupted' OR (state = 'running'"
        f"  AND (lease_until < ? OR (? = 1 AND worker <> ?)) AND key NOT IN ({', '.join('?' * (1 + len(besides)))})))"
        "  ORDER BY +no LIMIT ? /*pg FOR UPDATE SKIP LOCKED*/) RETURNING no",
        (
            *(worker, micros(now + lease)),
            *(micros(now),) * 3,
            *(int(alone), worker),
            *("", *(key.text for key in besides)),
            limit,
        ),
    )
    numbers = sorted(row[0] for row in rows)
    return (yield from _gather(numbers))


def _gather(numbers: Sequence[int]) -> Steps[list[Turn]]:
    if not numbers:
        return []
    turns = yield (
        f"SELECT {TURN_COLUMNS} FROM turns t JOIN sessions s ON s.no = t.session_no"
        f" WHERE t.no IN ({', '.join('?' * len(numbers))}) ORDER BY t.no",
        tuple(numbers),
    )
    return [turn_of(row) for row in turns]


def _get(number: int) -> Steps[Turn]:
    rows = yield f"SELECT {TURN_COLUMNS} FROM turns t JOIN sessions s ON s.no = t.session_no WHERE t.no = ?", (number,)
    return turn_of(rows[0])
