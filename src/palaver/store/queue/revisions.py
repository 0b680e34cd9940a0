"""Revisions: messages that were edited or deleted after they were sent. Nothing is overwritten."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from palaver.db.transaction import INBOX, Lock, Notify, Statements, Value, transaction
from palaver.model.access import AccessRole, Basis
from palaver.model.key import SessionKey
from palaver.model.label import Label
from palaver.model.revision import (
    RevisionAction,
    RevisionDecision,
    RevisionPolicy,
    decide_revision,
    has_same_files,
    revision_note,
)
from palaver.model.session import Session
from palaver.model.source import encode_id, identity_of, message_address
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Inbound, InboxState, Outbound, Received
from palaver.store.conversations.sessions import open_by_key
from palaver.store.conversations.transcript import append, hide, load_shown, write_journal
from palaver.store.conversations.visibility import get
from palaver.store.queue import outbox
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.inbox import (
    CHANGE,
    ORIGINAL,
    SAME_MESSAGE,
    insert_message,
    mark_ready,
    replace_text,
    withdraw,
)
from palaver.store.records import (
    OPEN_TURN,
    SELECT_RECEIVED,
    SEQS,
    details_of,
    entries_of,
    entry_span,
    inbound_body,
    micros,
    prepare,
    readable,
    received_of,
)
from palaver.store.results import OperationKind, Withdraw

_SUPERSEDED = "a newer edit of the message arrived first"
_NOT_SHOWN = "the message is no longer in this conversation; the agent gets a note about the edit"


@transaction
def accept_revision(
    inbound: Inbound,
    key: SessionKey,
    now: datetime,
    policy: RevisionPolicy,
    *,
    role: AccessRole | None = None,
    basis: Basis = Basis.IDENTITY,
    refused: str | None = None,
    expected: bool = True,
    withdraw_question: Withdraw | None = None,
) -> Statements[int | None]:
    """Store an edit or deletion of a message and apply it; None for a redelivery.

    It belongs to the conversation of the message. If the message has not come and is not `expected`, nothing is stored.
    If the conversation has to go back, `withdraw_question` ends a turn that waits for an approval.
    """
    place = (yield from _key_of(inbound)) or key
    yield Lock(place.text)
    original = yield from _original(inbound)
    if original is None and not expected:
        return None
    latest = None if refused else (yield from _latest(inbound))
    if original and not (inbound.revision and inbound.revision.deleted):
        known = latest if latest and latest.heard else original.inbound
        inbound = inbound.with_heard(known.heard) if has_same_files(known, inbound) else inbound
    ruling = (
        RevisionDecision(RevisionAction.REFUSE, refused)
        if refused
        else decide_revision(inbound, original, latest, policy)
    )
    stored = inbound.without_content() if ruling.course is RevisionAction.REFUSE else inbound
    number = yield from _insert(inbound_body(stored, role, basis), inbound, place, now, ruling)
    if number is not None and withdraw_question and ruling.course is RevisionAction.RERUN:
        yield from withdraw_question(place, number, now)
    if number is not None:
        yield from _apply(ruling.course, number, inbound, original, place, now)
    return number


_STATES = {RevisionAction.REFUSE: InboxState.REFUSED, RevisionAction.RERUN: InboxState.WAITING}


def _insert(
    body: bytes, inbound: Inbound, key: SessionKey, now: datetime, ruling: RevisionDecision
) -> Statements[int | None]:
    version = encode_id(inbound.revision.version) if inbound.revision else ""
    state = _STATES.get(ruling.course, InboxState.DONE)
    columns = {
        "version": version or "-",
        "key": key.text,
        "state": state.value,
        "received": micros(now),
        "reason": None if state is InboxState.WAITING else ruling.reason,
        "identity": identity_of(inbound.source),
    }
    return (yield from insert_message(message_address(inbound.source), body, columns))


def _key_of(inbound: Inbound) -> Statements[SessionKey | None]:
    rows = yield f"SELECT key FROM inbox WHERE {SAME_MESSAGE} AND {ORIGINAL}", message_address(inbound.source)
    return SessionKey.parse(rows[0][0]) if rows else None


def _original(inbound: Inbound) -> Statements[Received | None]:
    """Return the message as it was sent, or as it waits to be answered again; None if it was erased."""
    rows = yield (
        f"{SELECT_RECEIVED} WHERE {SAME_MESSAGE} AND (({ORIGINAL}) OR i.state = 'waiting') AND length(i.body) > 0"
        " ORDER BY i.no DESC",
        message_address(inbound.source),
    )
    return next((each for each in readable(received_of, rows) if each.inbound.revision is None), None)


def _latest(inbound: Inbound) -> Statements[Inbound | None]:
    """Return the last edit of the message that was not refused."""
    rows = yield (
        f"{SELECT_RECEIVED} WHERE {SAME_MESSAGE} AND {CHANGE} AND i.state <> 'refused' AND length(i.body) > 0"
        " ORDER BY i.no DESC LIMIT 1",
        message_address(inbound.source),
    )
    return next((each.inbound for each in readable(received_of, rows)), None)


def _apply(
    course: RevisionAction, number: int, inbound: Inbound, original: Received | None, key: SessionKey, now: datetime
) -> Statements[None]:
    if course in {RevisionAction.NOTE, RevisionAction.RERUN}:
        yield from _supersede(inbound, number)
    match course:
        case RevisionAction.REPLACE if original:
            before = original.inbound
            if not has_same_files(before, inbound):
                before = replace(before, files=inbound.files, heard="")
            yield from replace_text(original.number, before, inbound.text, original.role, original.basis)
        case RevisionAction.WITHDRAW if original:
            yield from withdraw(original.number, "it was deleted before it was answered")
        case RevisionAction.NOTE:
            was_heard = bool(original and original.inbound.heard and not inbound.heard)
            is_recording = any(file.media_type.startswith("audio/") for file in inbound.files)
            yield from _add_note(inbound, key, now, has_new_recording=was_heard and is_recording)
        case RevisionAction.RERUN:
            yield from mark_ready(key, now)
        case _:
            pass


def _supersede(inbound: Inbound, number: int) -> Statements[None]:
    """Withdraw earlier edits that still wait."""
    rows = yield (
        f"SELECT no FROM inbox WHERE {SAME_MESSAGE} AND {CHANGE} AND state = 'waiting' AND no <> ?",
        (*message_address(inbound.source), number),
    )
    for (earlier,) in rows:
        yield from withdraw(earlier, _SUPERSEDED)


# Transcripts


class _Place(NamedTuple):
    """An entry of the message, and whether it is shown or a summary stands in its place."""

    session: int
    entry: Entry
    is_shown: bool


def _places(inbound: Inbound, key: SessionKey) -> Statements[list[_Place]]:
    """Find the message in the sessions of its turns, and in the open one, which can be a copy."""
    rows = yield _ENTRIES_OF_MESSAGE, (*message_address(inbound.source), key.text)
    entries = entries_of(rows)
    found = [_Place(row[0] // SEQS, entry, bool(row[2])) for row, entry in zip(rows, entries, strict=True)]
    return [place for place in found if place.entry.message_id == inbound.source.message_id]


_ENTRIES_OF_MESSAGE = (
    f"WITH said AS (SELECT turn_no AS no FROM inbox WHERE {SAME_MESSAGE}), places AS ("
    " SELECT t.session_no AS no FROM turns t JOIN said ON said.no = t.no"
    " UNION SELECT no FROM sessions WHERE key = ? AND ended IS NULL)"
    " SELECT e.id, e.body, 1 FROM places JOIN sessions s ON s.no = places.no"
    f" JOIN entries e ON e.id >= s.no * {SEQS} + s.shown_from AND e.id < (s.no + 1) * {SEQS}"
    " WHERE e.hidden_by IS NULL AND e.role = 'user' AND e.turn_no IN (SELECT no FROM said)"
    " UNION ALL SELECT e.id, e.body, 0 FROM entries e JOIN operations o ON o.no = e.hidden_by"
    " WHERE e.hidden_by IS NOT NULL AND e.role = 'user' AND e.turn_no IN (SELECT no FROM said)"
    f" AND e.id / {SEQS} IN (SELECT no FROM places) AND o.kind = 'compaction' AND o.undone_at IS NULL ORDER BY 1"
)


def _add_note(inbound: Inbound, key: SessionKey, now: datetime, *, has_new_recording: bool = False) -> Statements[None]:
    """Add a note for the next turn to each session with the message, and hide it if it was deleted."""
    places = yield from _places(inbound, key)
    is_deletion = inbound.revision is not None and inbound.revision.deleted
    for number in dict.fromkeys(place.session for place in places):
        entries = [place.entry for place in places if place.session == number]
        text = entries[-1].text
        if is_deletion:
            entries += yield from _edit_notes(inbound, number, entries)
            session = yield from get(number)
            kind, by = OperationKind.REVISION, _author(inbound)
            operation = yield from hide(kind, session.key, session, entries, now, by=by)
            # A search still finds what a summary replaces, unless it was deleted.
            covered: list[tuple[Value, ...]] = [(operation, number * SEQS + entry.seq) for entry in entries]
            yield "UPDATE entries SET hidden_by = ? WHERE id = ?", covered
        note = revision_note(text, None if is_deletion else inbound.text, has_new_recording=has_new_recording)
        entry = Entry(seq=0, role=Role.NOTE, at=now, text=note, message_id=inbound.source.message_id)
        rows = yield "UPDATE sessions SET next_seq = next_seq + 1 WHERE no = ? RETURNING next_seq", (number,)
        yield from append(number, rows[0][0] - 1, [prepare(entry)])


def _edit_notes(inbound: Inbound, number: int, entries: Sequence[Entry]) -> Statements[list[Entry]]:
    """Find the notes about earlier edits of a message, which quote it."""
    rows = yield (
        "SELECT e.id, e.body FROM entries e LEFT JOIN operations o ON o.no = e.hidden_by AND o.undone_at IS NULL"
        " WHERE e.id > ? AND e.id < ? AND e.role = 'note' AND (e.hidden_by IS NULL OR o.kind = 'compaction')",
        (number * SEQS + entries[0].seq, (number + 1) * SEQS),
    )
    # Another chat of the conversation can have the same message id.
    quotes = [Label(entry.text).quoted() for entry in entries]
    found = [note for note in entries_of(rows) if note.message_id == inbound.source.message_id]
    return [note for note in found if any(quote in note.text for quote in quotes)]


def _author(inbound: Inbound) -> str:
    return identity_of(inbound.source) or inbound.source.platform


@transaction
def count_rewound(received: Received) -> Statements[int]:
    """Return how many entries `go_back_to` would hide."""
    found = yield from _first_shown(received)
    if found is None:
        return 0
    session, first = found
    return len([entry for entry in (yield from load_shown(session.number)) if entry.position >= first.seq])


@transaction
def rewind_to(received: Received, now: datetime, notices: Sequence[Outbound], *, hides: int) -> Statements[bool | None]:
    """Take the conversation back to before a message that was changed; False while a turn is open there.

    A changed message then waits like any other. After a deletion the notices are owed; they say how many entries this
    hides. None if that is no longer true: nothing was done, count again.
    """
    key, inbound = received.key, received.inbound
    yield Lock(key.text)
    if (yield f"SELECT 1 FROM turns WHERE key = ? AND state IN {OPEN_TURN}", (key.text,)):
        return False
    waits = yield "SELECT 1 FROM inbox WHERE no = ? AND state = 'waiting'", (received.number,)
    if not waits:
        return True
    found = yield from _first_shown(received)
    yield Notify(INBOX)
    if found is None:
        yield from _add_note(inbound, key, now)
        yield from withdraw(received.number, _NOT_SHOWN)
        return True
    session, first = found
    entries = [entry for entry in (yield from load_shown(session.number)) if entry.position >= first.seq]
    if len(entries) != hides:
        return None
    yield from _hide(entries, session, inbound, now)
    if inbound.revision and inbound.revision.deleted:
        yield from withdraw(received.number, "the message and what followed it are no longer shown")
        yield from outbox.enqueue_parts(notices, SendCause(CauseKind.REVISION, received.number), now)
    else:
        before = replace(inbound, text=first.text)
        yield from replace_text(received.number, before, inbound.text, received.role, received.basis)
    return True


def _first_shown(received: Received) -> Statements[tuple[Session, Entry] | None]:
    """Find the first entry of a message that its open session still shows."""
    session = yield from open_by_key(received.key)
    places = yield from _places(received.inbound, received.key)
    entries = [place.entry for place in places if session and place.session == session.number and place.is_shown]
    return (session, entries[0]) if session and entries else None


def _hide(entries: Sequence[Entry], session: Session, inbound: Inbound, now: datetime) -> Statements[None]:
    answers = {} if inbound.revision and inbound.revision.deleted else {"answered_from": session.counters.entries + 1}
    yield from hide(OperationKind.REVISION, session.key, session, entries, now, by=_author(inbound), **answers)


# Undo


@transaction
def undo_revision(
    operation: int, details: Mapping[str, Any], session: Session, shown: Sequence[Entry]
) -> Statements[None]:
    """Restore the message; hide the answer to the edited one."""
    start, first, end = details.get("answered_from"), *entry_span(session.number)
    if start is None:
        yield from _hide_summarised(session, shown)
        return
    rows = yield (
        "UPDATE entries SET hidden_by = ? WHERE id >= ? AND id < ? AND hidden_by IS NULL AND turn_no ="
        " (SELECT turn_no FROM entries WHERE id >= ? AND id < ? AND turn_no IS NOT NULL ORDER BY id LIMIT 1)"
        " RETURNING id",
        (operation, first + start, end, first + start, end),
    )
    if rows:
        yield from write_journal("hide", session.number, min(rows)[0] - first, max(rows)[0] - first)


def _hide_summarised(session: Session, shown: Sequence[Entry]) -> Statements[None]:
    """Hide again what a summary replaces."""
    first = session.number * SEQS
    compactions = yield (
        "SELECT no, details FROM operations WHERE session_no = ? AND kind = 'compaction' AND undone_at IS NULL",
        (session.number,),
    )
    for number, details in compactions:
        rows = yield "SELECT id, body FROM entries WHERE id = ?", (first + details_of(details).get("summary", 0),)
        low, high = next((entry.covers for entry in entries_of(rows) if entry.covers), (1, 0))
        covered: list[tuple[Value, ...]] = [(number, first + entry.seq) for entry in shown if low <= entry.seq <= high]
        yield "UPDATE entries SET hidden_by = ? WHERE id = ? AND hidden_by IS NULL", covered
