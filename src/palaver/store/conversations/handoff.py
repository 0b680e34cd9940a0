"""Handoffs in the store: a session on its way to another place, arriving there, or staying."""

from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from palaver.db.transaction import Lock, Statements, transaction
from palaver.model.key import SessionKey
from palaver.model.lifecycle import EndReason
from palaver.model.session import Principal, Session
from palaver.model.source import Source
from palaver.model.turn import Outbound
from palaver.store.conversations import undo_log
from palaver.store.conversations.attach import detach, detach_all
from palaver.store.conversations.sessions import end, join, open_by_key, refuse_busy, reopen, route, routed
from palaver.store.conversations.undo_log import Operation
from palaver.store.conversations.visibility import get, lock_session
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.outbox import enqueue
from palaver.store.records import from_json, source_of, source_text
from palaver.store.results import OperationKind

__all__ = [
    "arrive",
    "course",
    "hand_off",
    "stay",
]


_OPERATOR = Principal.operator()


@transaction
def hand_off(
    session: Session, origin: Source, home: Source, opening: Outbound, now: datetime, *, by: str
) -> Statements[None]:
    """End the session here for as long as it is on its way; `opening` is what makes it arrive."""
    yield Lock(session.key.text)
    yield from refuse_busy(session)
    yield from end(session.number, EndReason.HANDED_OFF, now)
    details = {"from": source_text(origin), "home": source_text(home)}
    number = yield from undo_log.record(OperationKind.HANDOFF, session.key, session.number, now, by, details)
    yield from detach_all(session.key, now)
    yield from enqueue(replace(opening, handoff=number), SendCause(CauseKind.HANDOFF, number), now)


@transaction
def course(number: int) -> Statements[tuple[Source, Source] | None]:
    """From where to where, also of one that was taken back; None once its session or its people are forgotten."""
    rows = yield "SELECT details FROM operations WHERE no = ?", (number,)
    details: dict[str, Any] = from_json(rows[0][0]) if rows else {}
    return (source_of(details["from"]), source_of(details["home"])) if details else None


@transaction
def arrive(
    number: int, place: SessionKey, address: Source, now: datetime, *, recalled: Outbound, returned: Outbound
) -> Statements[Session | None]:
    """Take the session up in a place, as a switch that can be taken back there, too."""
    underway = yield from _underway(number, place)
    if underway is None:
        return None
    operation, session = underway
    yield from detach(place, now)
    before = yield from routed(place)
    if before is not None:
        yield from end(before.number, EndReason.SWITCHED, now)
    yield from detach_all(place, now)
    yield from reopen(session.number, place, now)
    yield from route(place, session.number, address)
    if not place.shared:
        yield from join(session.number, address)
    switch = yield from undo_log.record(
        OperationKind.SWITCH,
        place,
        session.number,
        now,
        f"handoff {number}",
        {"handoff": number, "tell": asdict(returned)},
        from_session=before and before.id,
        from_key=session.key.text,
    )
    yield from undo_log.amend(operation, {"switch": switch, "tell": asdict(recalled)}, to_key=place.text)
    return (yield from get(session.number))


@transaction
def stay(number: int, now: datetime) -> Statements[bool | None]:
    """Take the session up where it was, unless something else is open there by now; then `back` returns to it."""
    underway = yield from _underway(number)
    if underway is None:
        return None
    operation, session = underway
    if (yield from open_by_key(session.key)) is not None:
        return False
    yield from undo_log.mark_undone(operation.number, now)
    yield from detach_all(session.key, now, entering=session)
    yield from reopen(session.number, session.key, now)
    yield from route(session.key, session.number, source_of(operation.details["from"]))
    return True


def _underway(number: int, place: SessionKey | None = None) -> Statements[tuple[Operation, Session] | None]:
    """A handoff that still stands, and its session that is still on its way, both held."""
    operation = yield from undo_log.get(number)
    if operation is None:
        return None
    session = yield from get(operation.session_number)
    session = yield from lock_session(session, place or session.key, _OPERATOR)
    operation = yield from undo_log.get(number)
    if operation is None or session.end_reason is not EndReason.HANDED_OFF:
        return None
    return operation, session
