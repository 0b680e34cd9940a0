"""The outbox in the store: everything owed, claimed once, settled with a receipt."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from palaver.domain.errors import StaleFence
from palaver.domain.lifecycle import OutboxState
from palaver.domain.turn import Delivery, Outbound
from palaver.ports.work import Lock, Notify, Steps, Value, work
from palaver.stores.records import DELIVERY_COLUMNS, delivery_of, micros, outbound_body

__all__ = ["OUTBOX", "claim", "owe", "owe_replies", "reclaim_sends", "resolve", "settle_send"]

OUTBOX = "outbox"
REPLIES = 1024
"""Reply ids are turn number * REPLIES + ordinal."""


@work
def owe_replies(turn: int, replies: Sequence[Outbound], now: datetime) -> Steps[None]:
    """The replies of a turn, each owed once: the same turn and ordinal cannot be written twice."""
    moment = micros(now)
    rows: list[tuple[Value, ...]] = [
        (turn * REPLIES + ordinal, moment, moment, outbound_body(reply)) for ordinal, reply in enumerate(replies)
    ]
    if rows:
        yield "INSERT INTO outbox (id, state, due, created, body) VALUES (?, 'due', ?, ?, ?)", rows
        yield Notify(OUTBOX)


@work
def owe(outbound: Outbound, dedup: str, now: datetime) -> Steps[int | None]:
    """Something no turn owes: a notice, a scheduled output. None if it is owed already under that name."""
    yield Lock("numbers below zero in the outbox")
    moment = micros(now)
    rows = yield (
        "INSERT INTO outbox (id, dedup, state, due, created, body)"
        " SELECT coalesce(min(id), 0) - 1, ?, 'due', ?, ?, ? FROM outbox WHERE id < 0"
        " ON CONFLICT (dedup) WHERE dedup IS NOT NULL DO NOTHING RETURNING id",
        (dedup, moment, moment, outbound_body(outbound)),
    )
    yield Notify(OUTBOX)
    return rows[0][0] if rows else None


@work
def claim(worker: str, now: datetime, lease: timedelta, *, limit: int = 32) -> Steps[list[Delivery]]:
    """Take due sends for this worker; nobody else gets them."""
    rows = yield (
        "UPDATE outbox SET state = 'claimed', attempts = attempts + 1, worker = ?, claim_until = ? WHERE id IN ("
        " SELECT id FROM outbox WHERE state = 'due' AND due <= ? ORDER BY due LIMIT ? /*pg FOR UPDATE SKIP LOCKED*/"
        f") RETURNING {DELIVERY_COLUMNS}",
        (worker, micros(now + lease), micros(now), limit),
    )
    return sorted((delivery_of(row) for row in rows), key=lambda delivery: (delivery.due, delivery.number))


@work
def settle_send(
    delivery: Delivery,
    worker: str,
    state: OutboxState,
    *,
    receipt: str | None = None,
    error: str | None = None,
    due: datetime | None = None,
) -> Steps[None]:
    """Record what became of a claimed send: delivered, due again, dead, or unclear."""
    rows = yield (
        "UPDATE outbox SET state = ?, receipt = ?, error = ?, due = coalesce(?, due), claim_until = NULL, worker = NULL"
        " WHERE id = ? AND worker = ? AND attempts = ? AND state = 'claimed' RETURNING id",
        (state.value, receipt, error, due and micros(due), delivery.number, worker, delivery.attempts),
    )
    if not rows:
        raise StaleFence("delivery", delivery.number, delivery.attempts)


@work
def reclaim_sends(worker: str, now: datetime, *, alone: bool = False) -> Steps[list[Delivery]]:
    """Claims whose owner is gone: nobody knows whether they were sent."""
    rows = yield (
        "UPDATE outbox SET state = 'unclear', worker = NULL, claim_until = NULL WHERE id IN ("
        " SELECT id FROM outbox WHERE state = 'claimed' AND (claim_until < ? OR (? = 1 AND worker <> ?))"
        f" /*pg FOR UPDATE SKIP LOCKED*/) RETURNING {DELIVERY_COLUMNS}",
        (micros(now), int(alone), worker),
    )
    return [delivery_of(row) for row in sorted(rows)]


@work
def resolve(number: int, state: OutboxState, now: datetime, *, receipt: str | None = None) -> Steps[bool]:
    """Settle an unclear send: it was delivered, or it is sent once more with a visible mark."""
    rows = yield (
        "UPDATE outbox SET state = ?, receipt = ?, due = ?, may_be_duplicate = 1 WHERE id = ? AND state = 'unclear'"
        " RETURNING id",
        (state.value, receipt, micros(now), number),
    )
    yield Notify(OUTBOX)
    return bool(rows)
