"""Branches: continue from an earlier message in a copy of a conversation, and retry a message there."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Lock, Row, Statements, Value, transaction
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
from palaver.store.conversations.attach import detach_all
from palaver.store.conversations.attachment_refs import copy_refs
from palaver.store.conversations.sessions import create, end, open_by_key, routed_session
from palaver.store.conversations.transcript import load_visible
from palaver.store.conversations.visibility import get, get_visible
from palaver.store.queue.inbox import ORIGINAL, SAME_MESSAGE, Retry, accept
from palaver.store.records import (
    REPLIES,
    SEQS,
    basis_of,
    chat_columns,
    details_of,
    entries_of,
    entry_checksum,
    entry_span,
    micros,
)
from palaver.store.results import OperationKind


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
    elif not title:
        made_from = "SELECT p.title_seq FROM sessions p WHERE p.no = ?"
        yield f"UPDATE sessions SET title_seq = ({made_from}) WHERE no = ?", (parent.root, child.number)
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
        entry_span(parent),
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
