"""Undoing operations (back, redo), branches, and retries."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Lock, Row, Statements, Transaction, Value, transaction
from palaver.model.access import AccessRole, Basis
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.session import EndReason, Principal, Session
from palaver.model.source import Source, identity_of, message_address, with_participant
from palaver.model.transcript import (
    Entry,
    Sender,
    UnreadableEntry,
    is_addressed_to_agent,
    start_of_last_turns,
    turn_starts,
)
from palaver.model.turn import Inbound, Received, outbound_to
from palaver.store.conversations import undo_log
from palaver.store.conversations.attach import attach_operation, detach, detach_all
from palaver.store.conversations.attachment_refs import copy_refs
from palaver.store.conversations.sessions import (
    AUTOMATIC_ENDS,
    check_not_busy,
    create,
    end,
    open_by_key,
    reopen,
    route,
    routed_session,
)
from palaver.store.conversations.transcript import SEQS, load_visible, unhide
from palaver.store.conversations.undo_log import Operation
from palaver.store.conversations.visibility import get, get_visible, lock_session, select_sessions, visible_to
from palaver.store.queue.inbox import ORIGINAL, SAME_MESSAGE, Retry, accept, fail, list_waiting, record_mentions
from palaver.store.queue.revisions import undo_revision
from palaver.store.records import (
    REPLIES,
    basis_of,
    chat_columns,
    details_of,
    entries_of,
    entry_checksum,
    micros,
    placeholders,
)
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
    key: SessionKey, now: datetime, *, principal: Principal, place: SessionKey | None = None
) -> Statements[Undone | None]:
    """Undo the last operation of this conversation that was not undone yet.

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
    return (yield from _undo_latest(key, here, now, principal, *_ALL_BUT_ATTACH))


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
    key: SessionKey, here: Session | None, now: datetime, principal: Principal, *kinds: OperationKind
) -> Statements[Undone | None]:
    operation = yield from undo_log.latest(key, here and here.number, *kinds)
    if operation is None:
        return None
    session = yield from get(operation.session_number)
    yield from _check_took_part(key, principal, session.id, operation.from_session)
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
    return Undone(kind=operation.kind, session=session.id, entries=entries)


def _return_to_left(
    operation: Operation, session: Session, key: SessionKey, now: datetime, principal: Principal
) -> Statements[Undone]:
    """Reopen the session that was left; the one that was brought here returns to where it came from."""
    left = yield from _find_left(operation.from_session)
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
    yield from reopen(left.number, key, now)
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
        yield from reopen(session.number, home, now)
        yield from route(home, session.number, session.origin, keep_address=True)


@transaction
def branch(
    key: SessionKey,
    source: Source,
    principal: Principal,
    now: datetime,
    *,
    by: str,
    title: str | None = None,
    from_session: str | None = None,
    at_seq: int | None = None,
    command_name: str | None = None,
    is_version: bool = False,
) -> Statements[Session]:
    """Continue from here, or from an earlier entry, in a new session with a copy of what came before.

    It is a conversation of its own, or another version of the one it leaves.
    """
    yield Lock(key.text)
    current = yield from routed_session(key)
    parent = (yield from get_visible(from_session, principal)) if from_session else current
    if parent is None:
        return (yield from create(key, source, now, title=title))
    if current is not None:
        yield from end(current.number, EndReason.SWITCHED, now)
    if current is None or parent.number != current.number:
        yield from detach_all(key, now, entering=parent)
    named = None if is_version else title or parent.title
    child = yield from create(key, source, now, title=named, parent=parent.id)
    if is_version:
        yield "UPDATE sessions SET version_root = ? WHERE no = ?", (parent.root, child.number)
    yield from _copy(parent.number, child.number, at_seq)
    yield from _record_speakers(parent.number, child.number, now)
    yield from undo_log.record(
        OperationKind.BRANCH, key, child.number, now, by, {"deed": command_name}, from_session=current and current.id
    )
    return (yield from get(child.number))


def _record_speakers(parent: int, child: int, now: datetime) -> Statements[None]:
    """Record whose words were copied. They do not take part in the branch: they count as having left."""
    yield (
        "INSERT INTO participants (identity, session_no, left_at) SELECT identity, ?, CAST(? AS BIGINT)"
        " FROM participants WHERE session_no = ? ON CONFLICT (identity, session_no) DO NOTHING",
        (child, micros(now), parent),
    )


def _copy(parent: int, child: int, at_seq: int | None) -> Statements[None]:
    """Copy entries without journalling them, so that a search finds them once."""
    rows: list[Row] = yield (
        f"SELECT e.id, e.body, e.role, e.turn_no, e.observed, o.details FROM entries e {_SHOWN_OR_SUMMARISED}"
        " AND e.id >= ? AND e.id < ? ORDER BY e.id",
        (parent * SEQS, (parent + 1) * SEQS),
    )
    entries = [entry for entry in entries_of(rows) if not isinstance(entry, UnreadableEntry)]
    reached = {entry.seq for entry in entries if at_seq is None or entry.position <= at_seq}
    # Copy what a summary covers only if the summary itself is not copied.
    kept = [row for row in rows if row[0] % SEQS in reached and _summary(row) not in reached]
    copies: list[tuple[Value, ...]] = [_copied(row, row[0] + (child - parent) * SEQS) for row in kept]
    last = max((row[0] % SEQS for row in kept), default=0)
    yield "INSERT INTO entries (id, body, checksum, role, turn_no, observed) VALUES (?, ?, ?, ?, ?, ?)", copies
    yield from copy_refs(parent * SEQS, child * SEQS, SEQS)
    yield (
        "UPDATE sessions SET next_seq = ?, parent_seq = ?, override = p.override, instructions = p.instructions"
        " FROM (SELECT override, instructions FROM sessions WHERE no = ?) p WHERE no = ?",
        (last + 1, last, parent, child),
    )


def _copied(row: Row, id_: int) -> tuple[Value, ...]:
    _, body, role, turn, observed, _ = row
    return id_, body, entry_checksum(id_, body), role, turn, observed


def _summary(row: Row) -> int | None:
    """Return the seq of the summary that hides an entry."""
    return details_of(row[5]).get("summary")


@transaction
def last_seq_of_message(session: Session, source: Source, message: str) -> Statements[int | None]:
    """Return the last seq of a message of this chat, or of our answer to it."""
    first, address = session.number * SEQS, message_address(replace(source, message_id=message))
    to = outbound_to(source, "")
    rows = yield (
        f"SELECT max(e.id) FROM entries e {_SHOWN_OR_SUMMARISED} AND e.id >= ? AND e.id < ?"
        f" AND (e.turn_no IN (SELECT turn_no FROM inbox WHERE {SAME_MESSAGE})"
        f" OR EXISTS (SELECT 1 FROM outbox x WHERE x.id >= e.turn_no * {REPLIES} AND x.id < (e.turn_no + 1) * {REPLIES}"
        " AND x.account = ? AND x.server = ? AND x.chat = ? AND x.receipt = ?))",
        (first, first + SEQS, *address, *chat_columns(to), message),
    )
    return rows[0][0] and rows[0][0] - first


_SHOWN_OR_SUMMARISED = (
    "LEFT JOIN operations o ON o.no = e.hidden_by AND o.kind = 'compaction'"
    " WHERE (e.hidden_by IS NULL OR o.no IS NOT NULL)"
)


@transaction
def retry(
    command: Received, principal: Principal, now: datetime, *, seq: int | None = None, text: str | None = None
) -> Statements[list[str]]:
    """Branch before the last message, or before that of entry `seq`, and queue it again; return its text.

    The branch is another version of the same conversation. `text` takes the place of the message's. Return nothing if
    there is no message, and raise NotFound if the entry is not shown any more.
    """
    yield Lock(command.key.text)
    session = yield from open_by_key(command.key)
    entries = (yield from load_visible(session.id, principal)) if session else []
    if seq is not None and all(entry.seq != seq for entry in entries):
        raise NotFound("message", str(seq))
    start, end = _turn_to_repeat(entries, seq)
    if session is None or start is None:
        return []
    source, by = command.inbound.source, principal.name
    fresh = yield from branch(
        command.key, source, principal, now, by=by, at_seq=start - 1, command_name="retry", is_version=True
    )
    messages = [entry for entry in entries if start <= entry.seq < end and is_addressed_to_agent(entry)]
    if text is not None:
        messages = [messages[0]._replace(text=text)]
    for entry in messages:
        message, basis = yield from _repeat(entry, command)
        # A message of another person does not get the role of the one who retries.
        theirs = message.source.participant == source.participant and identity_of(source) in principal.identities
        role = command.role if theirs else AccessRole.GUEST
        here = command.place or command.key
        again = message.source.message_id == entry.message_id
        yield from accept(message, here, now, role=role, basis=basis, retry=Retry(fresh.number, again))
    return [entry.text for entry in messages]


def _turn_to_repeat(entries: Sequence[Entry], seq: int | None) -> tuple[int | None, int]:
    """Return where the turn of a person's words begins, and where the next one does."""
    starts = [*turn_starts(entries), SEQS]
    if seq is None:
        return start_of_last_turns(entries, 1), SEQS
    found = next((at for at, start in enumerate(starts[:-1]) if start <= seq < starts[at + 1]), None)
    return (None, SEQS) if found is None else (starts[found], starts[found + 1])


def _repeat(entry: Entry, command: Received) -> Statements[tuple[Inbound, Basis | None]]:
    """Return an entry as a message from its own sender if it was sent in this chat, else from the one who commands.

    With it comes the basis on which its sender was admitted.
    """
    source, labels, basis = command.inbound.source, command.inbound.labels, command.basis
    sender = entry.sender or Sender()
    here = replace(source, message_id=entry.message_id)
    # Message ids are unique only within a chat: the turn shows that it was sent in this one.
    mine = yield f"SELECT turn_no, body FROM inbox WHERE {SAME_MESSAGE} AND {ORIGINAL}", message_address(here)
    sent = [body for turn, body in mine if str(turn) == entry.turn]
    if sent:
        source, labels, basis = here, replace(labels, user=sender.name), basis_of(sent[0])
        if sender.id != source.participant:
            source = with_participant(source, sender.id)
    message = Inbound(source=source, text=entry.text, at=entry.at, labels=labels, files=entry.files, quote=entry.quote)
    return message, basis
