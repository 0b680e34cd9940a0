"""Undo operations (back, redo), and what waits when a conversation is left."""

from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Lock, Statements, Transaction, transaction
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.session import EndReason, Principal, Session
from palaver.model.turn import Received
from palaver.store.conversations import undo_log
from palaver.store.conversations.attach import attach_operation, detach, detach_all
from palaver.store.conversations.sessions import (
    AUTOMATIC_ENDS,
    check_not_busy,
    end,
    open_by_key,
    reopen,
    route,
    routed_session,
)
from palaver.store.conversations.transcript import redo_compaction, unhide
from palaver.store.conversations.undo_log import Operation
from palaver.store.conversations.visibility import get, lock_session, select_sessions, visible_to
from palaver.store.queue.inbox import fail, list_waiting
from palaver.store.queue.mentions import record_mentions
from palaver.store.queue.revisions import undo_revision
from palaver.store.records import details_of, micros, placeholders
from palaver.store.results import OperationKind, Undone

ABANDONED = "somebody switched to another conversation before this was answered"


@transaction
def run_and_abandon_waiting(command: Received, does: Transaction[str]) -> Statements[tuple[str, list[Received]]]:
    """Run a command in its locked conversation; return its answer and the messages it abandons.

    Messages that wait before the command belong to the session open then. If the command leads to another session,
    they fail, as they do if it stops them. A command without a number comes after everything that waits.
    """
    waiting = yield from list_waiting(command.key)
    session = yield from open_by_key(command.key)
    answer = yield from does
    earlier = [each for each in waiting if each.number < command.number or not command.number]
    rows = yield (
        f"SELECT no FROM inbox WHERE state = 'failed' AND no IN ({placeholders(earlier)})",
        tuple(each.number for each in earlier),
    )
    ended = {row[0] for row in rows}
    for each in earlier:
        if session and (yield from _abandon(each, session)):
            ended.add(each.number)
    return answer, [each for each in earlier if each.number in ended]


def _abandon(received: Received, session: Session) -> Statements[bool]:
    """Fail a waiting message, unless the session it was sent to is still open here."""
    stays = yield (
        "SELECT 1 FROM inbox i JOIN sessions s ON s.key = i.key AND s.ended IS NULL WHERE i.no = ? AND s.no = ?",
        (received.number, session.number),
    )
    if stays or not (yield from fail(received.number, ABANDONED)):
        return False
    yield from record_mentions(received.number, [session])
    return True


_ALL_BUT_ATTACH = tuple(kind for kind in OperationKind if kind is not OperationKind.ATTACH)


@transaction
def back(
    key: SessionKey,
    now: datetime,
    *,
    principal: Principal,
    place: SessionKey | None = None,
    leaving: Transaction[object] | None = None,
) -> Statements[Undone | None]:
    """Undo the last operation of this conversation that was not undone yet; before that, do what `leaving` it takes.

    From an attached place, nothing older than the attachment is undone.
    """
    yield Lock(key.text)
    here = yield from routed_session(key)
    if place is not None and (yield from _is_unchanged_since_attach(place, key, here)):
        yield from detach(place, now)
        return Undone(kind=OperationKind.ATTACH, session=here.id if here else "")
    if here and here.end_reason in AUTOMATIC_ENDS:
        yield from _check_took_part(key, principal, here.id)
        return (yield from _reopen_here(OperationKind.RESET, here, key, now, principal))
    return (yield from _undo_latest(key, here, now, principal, *_ALL_BUT_ATTACH, leaving=leaving))


def _is_unchanged_since_attach(place: SessionKey, key: SessionKey, here: Session | None) -> Statements[bool]:
    """Return whether a place is attached and nothing was done since."""
    attached = yield from attach_operation(place)
    last = yield from undo_log.latest(key, here and here.number, *_ALL_BUT_ATTACH)
    ended_since = here is not None and here.end_reason in AUTOMATIC_ENDS
    return attached is not None and not ended_since and (last is None or last.number < attached)


@transaction
def redo(
    key: SessionKey, now: datetime, *, principal: Principal, place: SessionKey | None = None
) -> Statements[Undone | None]:
    """Show again what the last undo hid.

    What was undone before the session was opened to others, by attaching a place or by handoff, stays hidden.
    """
    yield Lock(key.text)
    here = yield from routed_session(key)
    undone = yield from undo_log.latest(key, here and here.number, OperationKind.UNDO)
    if undone is None or undone.number < (yield from _opened_to_others(key, place, here)):
        return None
    return (yield from _undo_latest(key, here, now, principal, OperationKind.UNDO))


def _opened_to_others(key: SessionKey, place: SessionKey | None, here: Session | None) -> Statements[int]:
    """Return the operation that attached the place or handed the session off to here; 0 for neither."""
    if place is not None:
        return (yield from attach_operation(place)) or 0
    rows = yield (
        "SELECT no, details FROM operations WHERE key = ? AND session_no = ? AND kind = 'switch' AND undone_at IS NULL"
        " ORDER BY no",
        (key.text, here and here.number),
    )
    return max((no for no, details in rows if details_of(details).get("handoff")), default=0)


def _undo_latest(
    key: SessionKey,
    here: Session | None,
    now: datetime,
    principal: Principal,
    *kinds: OperationKind,
    leaving: Transaction[object] | None = None,
) -> Statements[Undone | None]:
    operation = yield from undo_log.latest(key, here and here.number, *kinds)
    if operation is None:
        return None
    session = yield from get(operation.session_number)
    yield from _check_took_part(key, principal, session.id, operation.from_session)
    if leaving:
        yield from leaving
    yield from undo_log.mark_undone(operation.number, now)
    yield from undo_log.notify_origin(operation.number, now)
    undone = yield from _undo(operation, session, key, now, principal)
    return replace(undone, command_name=_command_name(operation))


def _command_name(operation: Operation) -> str | None:
    """Return the command behind an operation: a branch can be a retry, a switch a handoff."""
    if operation.details.get("handoff"):
        return OperationKind.HANDOFF.value
    return operation.details.get("deed")


def _undo(
    operation: Operation, session: Session, key: SessionKey, now: datetime, principal: Principal
) -> Statements[Undone]:
    if operation.kind in undo_log.HIDING:
        return (yield from _show(operation, session))
    if operation.kind is OperationKind.HANDOFF:
        return (yield from _recall(operation, session, key, now, principal))
    if handoff := operation.details.get("handoff"):
        yield from undo_log.mark_undone(handoff, now)
    return (yield from _return_to_left(operation, session, key, now, principal))


def _recall(
    operation: Operation, session: Session, key: SessionKey, now: datetime, principal: Principal
) -> Statements[Undone]:
    """Bring back a session that was handed off, and restore the place it went to."""
    session = yield from lock_session(session, key, principal)
    yield from check_not_busy(session)
    current = yield from open_by_key(key)
    if current is not None:
        yield from end(current.number, EndReason.SWITCHED, now)
    switch = yield from undo_log.get(operation.details.get("switch", 0))
    if switch is None or session.ended is not None or session.key.text != operation.to_key:
        return (yield from _reopen_here(operation.kind, session, key, now, principal))
    yield from undo_log.mark_undone(switch.number, now)
    yield from _return_to_left(switch, session, session.key, now, principal)
    return Undone(kind=operation.kind, session=session.id)


def _check_took_part(key: SessionKey, principal: Principal, *sessions: str | None) -> Statements[None]:
    """Raise NotFound unless the principal took part in one of these sessions."""
    seen = visible_to(principal)
    where = f"s.id IN ({placeholders(sessions)}) AND {seen.sql}"
    if not (yield f"SELECT 1 FROM sessions s WHERE {where}", (*sessions, *seen.values)):
        raise NotFound("conversation", key.text)


def _show(operation: Operation, session: Session) -> Statements[Undone]:
    """Show what the operation hid."""
    entries = yield from unhide(operation, session.number)
    if operation.kind is OperationKind.REVISION:
        yield from undo_revision(operation.number, operation.details, session, entries)
    summaries = 0
    for compaction in reversed(operation.details.get("compactions", ())):
        summaries += yield from redo_compaction(compaction, session.number)
    return Undone(kind=operation.kind, session=session.id, entries=entries, summaries=summaries)


def _return_to_left(
    operation: Operation, session: Session, key: SessionKey, now: datetime, principal: Principal
) -> Statements[Undone]:
    """Reopen the session that was left; the one that was brought here returns to where it came from."""
    left = yield from _find_left(operation.from_session)
    if left is not None:
        left = yield from _skip_empty(left, session, key, now)
    current = yield from open_by_key(key)
    if current is not None:
        # If there was no session before, the next message must not reopen what was undone.
        yield from end(current.number, EndReason.SWITCHED if left else EndReason.RESET, now)
    if operation.kind is OperationKind.SWITCH and session.key == key:
        yield from _return_to_old_key(session, operation, now)
    if left is None:
        return Undone(kind=operation.kind, session=session.id)
    return (yield from _reopen_here(operation.kind, left, key, now, principal))


def _find_left(before: str | None) -> Statements[Session | None]:
    """Return the session that was left; None if there was none, it was not imported, or nobody can continue it."""
    found = yield from select_sessions("s.id = ?", before)
    return found[0] if found and found[0].end_reason is not EndReason.UNLINKED else None


def _skip_empty(left: Session, beside: Session, key: SessionKey, now: datetime) -> Statements[Session]:
    """Return the session before those in which nothing was said, and undo the resets that began them."""
    while not left.counters.entries:
        began = yield from undo_log.reset_that_began(key, left.number)
        before = (yield from _find_left(began.from_session)) if began else None
        if began is None or before is None or before.number == beside.number:
            break
        yield from undo_log.mark_undone(began.number, now)
        left = before
    return left


def _reopen_here(
    kind: OperationKind, left: Session, key: SessionKey, now: datetime, principal: Principal
) -> Statements[Undone]:
    """Reopen a session here. From another place only for a principal who can read it, and never during a turn."""
    if left.end_reason is EndReason.UNLINKED:
        raise NotFound("session", left.id)
    if left.key != key:
        left = yield from lock_session(left, key, principal)
        yield from check_not_busy(left)
    yield from detach_all(key, now, entering=left)
    yield from reopen(left.number, key, now, spoken=now)
    yield from route(key, left.number, left.origin, keep_address=True)
    return Undone(kind=kind, session=left.id)


def _return_to_old_key(session: Session, operation: Operation, now: datetime) -> Statements[None]:
    """Return a session to its old key, as it was; if another is open there by now, it stays ended."""
    home, details = SessionKey.parse(operation.from_key or session.key.text), operation.details
    ended, reason = details.get("ended"), details.get("reason")
    if home != session.key:
        yield Lock(home.text)
        yield from check_not_busy(session)
    yield (
        "UPDATE sessions SET key = ?, profile = ?, ended = ?, end_reason = ? WHERE no = ?",
        (home.text, home.profile, ended or micros(now), reason or EndReason.SWITCHED.value, session.number),
    )
    if reason is None and (yield from open_by_key(home)) is None:
        yield from detach_all(home, now)
        yield from reopen(session.number, home, now, spoken=now)
        yield from route(home, session.number, session.origin, keep_address=True)
