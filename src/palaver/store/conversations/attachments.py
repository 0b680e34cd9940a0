"""Attachments: which messages still wait for files, who can read which, and which are still referenced."""

from collections.abc import Sequence
from dataclasses import replace

from palaver.db.transaction import INBOX, Lock, Notify, Statements, transaction
from palaver.model.attachment import Attachment
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.session import Principal
from palaver.model.turn import NOTHING_HEARD, Heard, Received, Turn
from palaver.store.conversations.attachment_refs import add_refs
from palaver.store.conversations.visibility import Filter, visible_to
from palaver.store.queue.inbox import read_waiting, rewrite
from palaver.store.records import SELECT_RECEIVED, SEQS, entries_of, file_digests, readable, received_of

_SHORTEST_PREFIX = 4


@transaction
def awaiting_files(key: SessionKey) -> Statements[list[Received]]:
    """Return the waiting messages of a conversation whose files are not stored yet."""
    line = yield from read_waiting(key, held=False)
    return [received for received in line if not received.inbound.has_all_files]


@transaction
def set_files(received: Received, files: Sequence[Attachment], heard: Heard = NOTHING_HEARD) -> Statements[None]:
    """Set the files of a message that still waits, and what they say; its text may have been edited since.

    If an edit brought other files since, those are fetched next.
    """
    yield Lock(received.key.text)
    rows = yield f"{SELECT_RECEIVED} WHERE i.no = ? AND i.state = 'waiting'", (received.number,)
    for current in readable(received_of, rows):
        found = current.inbound
        if found.files == received.inbound.files:
            found = replace(found.with_heard(heard.text), files=tuple(files), is_unheard=False)
        found = replace(found, transcription_micros=found.transcription_micros + heard.cost_micros)
        yield from rewrite(current, found)
        yield from add_refs("in", {current.number: file_digests(files)})
    yield Notify(INBOX)


@transaction
def find(name: str, principal: Principal) -> Statements[Attachment]:
    """Find a file by id in a conversation that the principal can read; hidden entries only for those who see all."""
    seen = visible_to(principal)
    shown = Filter("1 = 1" if principal.sees_all else "e.hidden_by IS NULL")
    return (yield from _find(name, Filter.all([seen, shown])))


@transaction
def find_in_turn(turn: Turn, name: str) -> Statements[Attachment]:
    """Find a file by id among the shown entries of the turn's session."""
    first = turn.session_number * SEQS
    where = "a.holder >= ? AND a.holder < ? AND e.hidden_by IS NULL"
    return (yield from _find(name, Filter(where, (first, first + SEQS))))


def _find(name: str, where: Filter) -> Statements[Attachment]:
    """Return the one file in these entries. It can be in several of them; two different files are ambiguous."""
    prefix = name.strip().lower()
    if len(prefix) < _SHORTEST_PREFIX:
        raise NotFound("file", prefix)
    named = yield (
        "SELECT a.sha256, min(e.id) FROM attachments a JOIN entries e ON e.id = a.holder"
        f" JOIN sessions s ON s.no = e.id / {SEQS} WHERE a.kind = 'entry' AND a.sha256 >= ? AND a.sha256 < ?"
        f" AND {where.sql} GROUP BY a.sha256 LIMIT 2",
        (prefix, prefix + "\x7f", *where.values),
    )
    rows = (yield "SELECT id, body FROM entries WHERE id = ?", (named[0][1],)) if len(named) == 1 else []
    files = [file for entry in entries_of(rows) for file in entry.files if file.sha256 == named[0][0]]
    if not files:
        raise NotFound("file", name)
    return files[0]


@transaction
def drop_sent() -> Statements[None]:
    """Drop references of sends that are done. Deleting a holder drops its own references."""
    # A subquery per row: a join would read everything ever sent.
    yield (
        "DELETE FROM attachments WHERE kind = 'out'"
        " AND coalesce((SELECT o.state FROM outbox o WHERE o.id = holder), '')"
        " NOT IN ('due', 'claimed', 'sending', 'unclear')",
        (),
    )


@transaction
def awaited_handles() -> Statements[set[str]]:
    """Return the handles of files that waiting messages bring: the web chat has stored them under these already."""
    rows = yield f"{SELECT_RECEIVED} WHERE i.state = 'waiting'", ()
    return {file.handle for each in readable(received_of, rows) for file in each.inbound.files if file.handle}


@transaction
def list_referenced(after: str, limit: int) -> Statements[list[str]]:
    """List a page of the hashes of files that are still referenced, in order."""
    rows = yield "SELECT DISTINCT sha256 FROM attachments WHERE sha256 > ? ORDER BY sha256 LIMIT ?", (after, limit)
    return [row[0] for row in rows]
