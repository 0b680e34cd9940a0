"""Handoffs: a session that is sent to another place, and arrives there or stays."""

from dataclasses import asdict, replace
from datetime import datetime

from palaver.db.transaction import Statements, transaction
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.session import EndReason, Principal, Session
from palaver.model.source import Source
from palaver.model.turn import Outbound
from palaver.store.conversations import undo_log
from palaver.store.conversations.attach import detach, detach_all
from palaver.store.conversations.sessions import check_not_busy, continue_here, end, join, open_by_key, reopen, route
from palaver.store.conversations.undo_log import Operation
from palaver.store.conversations.visibility import get, hold, lock_session
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.outbox import enqueue
from palaver.store.records import details_of, source_of, source_text
from palaver.store.results import OperationKind

_OPERATOR = Principal.operator()


@transaction
def start(
    session: Session, origin: Source, home: Source, opening: Outbound, now: datetime, *, by: str
) -> Statements[None]:
    """End the session here until the message `opening` is delivered, which completes the handoff."""
    if (yield from hold(session.number)).key != session.key:
        raise NotFound("open conversation", session.title or session.id)
    yield from check_not_busy(session)
    yield from end(session.number, EndReason.HANDED_OFF, now)
    details = {"from": source_text(origin), "home": source_text(home)}
    number = yield from undo_log.record(OperationKind.HANDOFF, session.key, session.number, now, by, details)
    yield from detach_all(session.key, now)
    yield from enqueue(replace(opening, handoff=number), SendCause(CauseKind.HANDOFF, number), now)


@transaction
def endpoints(number: int) -> Statements[tuple[Source, Source] | None]:
    """Return where a handoff came from and went to, even if it was undone; None after its data was erased."""
    rows = yield "SELECT details FROM operations WHERE no = ?", (number,)
    details = details_of(rows[0][0]) if rows else {}
    return (source_of(details["from"]), source_of(details["home"])) if details else None


@transaction
def complete(
    number: int, place: SessionKey, address: Source, now: datetime, *, recalled: Outbound, returned: Outbound
) -> Statements[Session | None]:
    """Continue the session in the place it was sent to, as a switch that can be undone there as well."""
    in_progress = yield from _in_progress(number, place)
    if in_progress is None:
        return None
    operation, session = in_progress
    yield from detach(place, now)
    details = {"handoff": number, "tell": asdict(returned)}
    switch = yield from continue_here(place, address, session, now, by=f"handoff {number}", details=details)
    if not place.shared:
        yield from join(session.number, address)
    yield from undo_log.add_details(operation, {"switch": switch, "tell": asdict(recalled)}, to_key=place.text)
    return (yield from get(session.number))


@transaction
def cancel(number: int, now: datetime) -> Statements[bool | None]:
    """Reopen the session where it was. False if another is open there by now: /back returns to it."""
    in_progress = yield from _in_progress(number)
    if in_progress is None:
        return None
    operation, session = in_progress
    if (yield from open_by_key(session.key)) is not None:
        return False
    yield from undo_log.mark_undone(operation.number, now)
    yield from detach_all(session.key, now, entering=session)
    yield from reopen(session.number, session.key, now, spoken=now)
    yield from route(session.key, session.number, source_of(operation.details["from"]))
    return True


def _in_progress(number: int, place: SessionKey | None = None) -> Statements[tuple[Operation, Session] | None]:
    """Return a handoff that is still in progress and its session, locked."""
    operation = yield from undo_log.get(number)
    if operation is None:
        return None
    session = yield from get(operation.session_number)
    session = yield from lock_session(session, place or session.key, _OPERATOR)
    operation = yield from undo_log.get(number)
    if operation is None or session.end_reason is not EndReason.HANDED_OFF:
        return None
    return operation, session
