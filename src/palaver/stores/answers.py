"""Answers in the store: how far messages have come, and what was answered, for those who wait for it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from palaver.domain.errors import NotFound
from palaver.domain.key import SessionKey
from palaver.domain.lifecycle import InboxState, TurnState
from palaver.domain.session import Principal, Session, identity_of
from palaver.domain.source import Source
from palaver.domain.transcript import Entry, Role
from palaver.domain.turn import Received, Turn, Usage
from palaver.ports.answers import Progress, Reply
from palaver.ports.store import TURNS
from palaver.ports.work import Lock, Notify, Steps, work
from palaver.stores.inbox import dedup_name, inbox_row
from palaver.stores.records import (
    DELIVERY_COLUMNS,
    INBOX_COLUMNS,
    REPLIES,
    SESSION_COLUMNS,
    TURN_COLUMNS,
    delivery_of,
    from_json,
    instant,
    json_text,
    received_of,
    session_of,
    turn_of,
)
from palaver.stores.transcript import shown
from palaver.stores.turns import append_to_turn, halt, resume
from palaver.stores.visibility import visible_to

__all__ = ["at", "give_results", "heard", "progress", "reply", "said"]

_MOST_PARTS = 64


def _marks(values: Sequence[object]) -> str:
    """Nothing is among none."""
    return ", ".join("?" * len(values)) or "NULL"


@work
def said(sources: Sequence[Source], principal: Principal) -> Steps[Received | None]:
    names = [name for name in map(dedup_name, sources) if name]
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no"
        f" WHERE i.dedup IN ({_marks(names)}) AND length(i.body) > 0",
        tuple(names),
    )
    mine = (each for each in map(received_of, rows) if _is_theirs(each, principal))
    return next(mine, None)


def _is_theirs(received: Received, principal: Principal) -> bool:
    return principal.sees_all or identity_of(received.inbound.source) in principal.identities


@work
def progress(numbers: Sequence[int]) -> Steps[list[Progress]]:
    rows = yield (
        "SELECT i.no, i.turn_no, CASE WHEN (i.turn_no IS NULL OR t.state NOT IN ('running', 'interrupted'))"
        " AND (i.state <> 'waiting' OR EXISTS (SELECT 1 FROM turns p WHERE p.key = i.key"
        " AND p.state IN ('running', 'parked', 'interrupted') AND p.state = 'parked')) THEN 1 ELSE 0 END"
        f" FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no WHERE i.no IN ({_marks(numbers)})",
        tuple(numbers),
    )
    return [Progress(number=number, turn=turn, is_settled=bool(settled)) for number, turn, settled in rows]


@work
def reply(number: int, principal: Principal) -> Steps[Reply]:
    received = yield from inbox_row(number, principal)
    if received is None:
        raise NotFound("message", f"in:{number}")
    if received.turn is None:
        told = yield from _notices(f"command:{number}")
        return Reply(received=received, notices=told or _instead(received))
    seen = visible_to(principal)
    rows = yield (
        f"SELECT {TURN_COLUMNS}, t.ended, t.model, t.input_tokens, t.output_tokens, t.cost_micros"
        f" FROM turns t JOIN sessions s ON s.no = t.session_no WHERE t.no = ? AND {seen.sql}",
        (received.turn, *seen.values),
    )
    if not rows:
        return Reply(received=received)
    *row, ended, model, tokens_in, tokens_out, cost = rows[0]
    turn = turn_of(tuple(row))
    return Reply(
        received=received,
        turn=turn,
        ended=None if ended is None else instant(ended),
        usage=Usage(model=model, input_tokens=tokens_in, output_tokens=tokens_out, cost_micros=cost),
        entries=tuple((yield from shown(turn.session_number, turn=turn.number))),
        notices=(yield from _told(turn)),
    )


def _instead(received: Received) -> tuple[str, ...]:
    """Where the chat alone was told that a message is not answered."""
    return (f"This is not answered: {received.reason}.",) if received.state is InboxState.FAILED else ()


def _told(turn: Turn) -> Steps[tuple[str, ...]]:
    """What a turn asks, or said instead of an answer."""
    if turn.state is TurnState.PARKED:
        return (yield from _notices(f"halt:{turn.number}:{turn.fence}"))
    if turn.state is not TurnState.FAILED:
        return ()
    rows = yield (
        f"SELECT {DELIVERY_COLUMNS} FROM outbox WHERE id >= ? AND id < ? ORDER BY id",
        (turn.number * REPLIES, (turn.number + 1) * REPLIES),
    )
    return tuple(delivery_of(row).outbound.text for row in rows)


def _notices(name: str) -> Steps[tuple[str, ...]]:
    """Whatever became of the send: a program reads it here."""
    names = tuple(f"{name}:{part}" for part in range(_MOST_PARTS))
    rows = yield f"SELECT {DELIVERY_COLUMNS} FROM outbox WHERE dedup IN ({_marks(names)}) ORDER BY id DESC", names
    return tuple(delivery_of(row).outbound.text for row in rows)


@work
def heard(turn: int, principal: Principal) -> Steps[Received | None]:
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no"
        " WHERE i.turn_no = ? AND length(i.body) > 0 ORDER BY i.no DESC",
        (turn,),
    )
    return next((each for each in map(received_of, rows) if _is_theirs(each, principal)), None)


@work
def give_results(turn: int, results: Mapping[str, str], now: datetime, principal: Principal) -> Steps[bool]:
    received = yield from heard(turn, principal)
    if received is None:
        return False
    yield Lock(received.key.text)
    waiting = {call.id for call in (yield from reply(received.number, principal)).waits_with}
    given = {call: text for call, text in results.items() if call in waiting}
    taken = (yield from resume(turn, "nobody", now, timedelta())) if given else None
    if taken is None:
        return False
    entries = [Entry(seq=0, role=Role.TOOL, at=now, text=text, answers=call) for call, text in given.items()]
    yield from append_to_turn(taken, entries)
    yield from halt(taken, TurnState.INTERRUPTED, now)
    # As where a person has answered: no attempt has failed, and calls that are still open stay so.
    known = yield "SELECT approvals FROM turns WHERE no = ?", (turn,)
    approvals = {**from_json(known[0][0] or "{}"), **dict.fromkeys(given, True)}
    yield (
        "UPDATE turns SET approvals = ?, asked = NULL, attempt = 0, draft = NULL WHERE no = ?",
        (json_text(approvals), turn),
    )
    yield Notify(TURNS)
    return True


@work
def at(keys: Sequence[SessionKey], principal: Principal) -> Steps[list[Session]]:
    seen = visible_to(principal)
    rows = yield (
        f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE s.key IN ({_marks(keys)}) AND {seen.sql}"
        " ORDER BY s.last_active DESC, s.no DESC LIMIT 100",
        (*(key.text for key in keys), *seen.values),
    )
    return [session_of(row) for row in rows]
