"""Read entries for the search: those that the journal says are new, and those that a principal may see."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.session import Principal, Session
from palaver.model.transcript import Entry, UnreadableEntry
from palaver.store.conversations.transcript import NOT_UNDONE
from palaver.store.conversations.visibility import Filter, get_visible, list_titles, select_sessions, visible_to
from palaver.store.records import SEQS, SESSION_COLUMNS, entries_of, placeholders, readable, session_of
from palaver.store.search.index import Document, make_documents

_INDEXED_KINDS = frozenset({"append", "delete"})
MAX_SCOPE_SESSIONS = 1000
_ROWS_PER_RANGE = 64
_BATCH_ENTRIES = 512
_BATCH_BYTES = 4 * 1024 * 1024


class JournalRow(NamedTuple):
    pos: int
    session: int
    kind: str
    first: int
    last: int
    done: int = 0
    """The last seq of the row that is already indexed."""
    xid: int = 0
    """The transaction that wrote it; 0 in SQLite, which numbers rows in commit order."""


class EntryRange(NamedTuple):
    """A range of entries to index again: everything that the database has of it."""

    session: int
    platform: str
    first: int
    last: int
    entries: list[Row]
    """Id and body of each."""
    is_job: bool = False
    """The session is the conversation of a job."""


def documents_of_changes(changes: Iterable[EntryRange]) -> list[Document]:
    """Tokenize the entries. Slow: do not call it on the event loop."""
    found: dict[tuple[int, int], Document] = {}
    for change in changes:
        for row, entry in zip(change.entries, entries_of(change.entries), strict=True):
            if isinstance(entry, UnreadableEntry):
                continue
            for document in make_documents(row[0], entry, change.session, change.platform, is_job=change.is_job):
                # Only once: ranges of a branch overlap.
                found[document.entry, document.page] = document
    return list(found.values())


class JournalBatch(NamedTuple):
    changes: list[EntryRange]
    rows: int
    """How many rows of the journal are done."""
    done: int = 0
    """The last seq that is done of the row after these."""


@transaction
def read_changes(rows: Sequence[JournalRow]) -> Statements[JournalBatch]:
    """Read the entries that these journal rows refer to, up to one batch."""
    changes: list[EntryRange] = []
    entries = size = 0
    for index, row in enumerate(rows):
        if row.kind not in _INDEXED_KINDS:
            continue
        platform, is_job, seq = yield from _first_seq(row)
        while seq <= row.last:
            if entries >= _BATCH_ENTRIES or size >= _BATCH_BYTES:
                return JournalBatch(changes, index, seq - 1)
            change = yield from _read_range(row.session, platform, seq, row.last)
            changes.append(change._replace(is_job=is_job))
            entries += len(change.entries)
            size += sum(len(body) for _, body in change.entries)
            seq = change.last % SEQS + 1
    return JournalBatch(changes, len(rows))


def _first_seq(row: JournalRow) -> Statements[tuple[str, bool, int]]:
    """Return platform, whether it is a job's conversation, and first seq.

    The copied entries of a branch are indexed with its first own entry.
    """
    found = yield "SELECT platform, schedule_no IS NOT NULL, parent_seq FROM sessions WHERE no = ?", (row.session,)
    platform, is_job, copied = found[0] if found else ("", 0, None)
    first = 1 if copied and row.first == copied + 1 else row.first
    return platform, bool(is_job), row.done + 1 if row.done else first


def _read_range(session: int, platform: str, first: int, last: int) -> Statements[EntryRange]:
    low, high = session * SEQS + first, session * SEQS + last
    rows = yield (
        f"SELECT id, body FROM entries WHERE id >= ? AND id <= ? ORDER BY id LIMIT {_ROWS_PER_RANGE}",
        (low, high),
    )
    return EntryRange(session, platform, low, rows[-1][0] if len(rows) == _ROWS_PER_RANGE else high, rows)


# Visibility


@transaction
def participant_sessions(principal: Principal, session: str | None) -> Statements[list[int] | None]:
    """Return the sessions that can contain hits, or None if there are too many to list.

    This only narrows the index query. `visible_entries` decides what the principal may see.
    """
    if session is not None:
        return [(yield from get_visible(session, principal)).number]
    theirs = Filter.among("identity", principal.identities)
    rows = yield (
        f"SELECT DISTINCT session_no FROM participants WHERE {theirs.sql} LIMIT {MAX_SCOPE_SESSIONS + 1}",
        theirs.values,
    )
    return [row[0] for row in rows] if len(rows) <= MAX_SCOPE_SESSIONS else None


@transaction
def visible_titles(
    principal: Principal, platform: str | None, since: int | None, until: int | None, limit: int
) -> Statements[list[tuple[int, str]]]:
    """Return number and title of the sessions that the principal can see, newest first."""
    given = Filter.given({"s.platform = ?": platform, "s.last_active >= ?": since, "s.last_active < ?": until})
    return (yield from list_titles(principal, *given, limit=limit))


@transaction
def load_sessions(numbers: Sequence[int]) -> Statements[dict[int, Session]]:
    found = yield from select_sessions(f"s.no IN ({placeholders(numbers)})", *numbers)
    return {session.number: session for session in found}


@transaction
def visible_entries(entries: Sequence[int], principal: Principal) -> Statements[set[int]]:
    """Return the entries that exist and are visible. A branch's copy counts only if the original does not."""
    rows = yield from _select_visible("x.id", entries, principal)
    return {row[0] for row in rows}


def _select_visible(
    columns: str, entries: Sequence[int], principal: Principal, more: str = ""
) -> Statements[list[Row]]:
    if not entries:
        return []
    seen = visible_to(principal)
    ids = _padded(entries)
    marks = placeholders(ids)
    # Name the sessions and check visibility row by row, or the planner may scan all sessions.
    values: tuple[Value, ...] = (*ids, *(each // SEQS for each in ids), *seen.values, *seen.values)
    rows = yield (
        f"SELECT {columns} FROM (SELECT e.id, e.body, e.id % {SEQS} AS seq, s.no, s.parent, s.parent_seq"
        f" FROM entries e JOIN sessions s ON s.no = e.id / {SEQS}"
        f" WHERE e.id IN ({marks}) AND s.no IN ({marks}) AND {NOT_UNDONE}"
        f" AND CASE WHEN {seen.sql} THEN 1 END = 1) x {more}"
        f" WHERE NOT EXISTS (SELECT 1 FROM sessions s JOIN entries e ON e.id = s.no * {SEQS} + x.seq"
        f" WHERE x.seq <= x.parent_seq AND s.id = x.parent AND {NOT_UNDONE} AND {seen.sql})",
        values,
    )
    return rows


def _padded(entries: Sequence[int]) -> list[int]:
    """Pad to a power of two, so that few different statements are prepared."""
    size = 1 << (len(entries) - 1).bit_length()
    return [*entries, *[entries[-1]] * (size - len(entries))]


@transaction
def load_entries(entries: Sequence[int], principal: Principal) -> Statements[dict[int, tuple[Session, Entry]]]:
    """Return the entries that are still visible, with their sessions."""
    rows = yield from _select_visible(
        f"x.id, x.body, {SESSION_COLUMNS}", entries, principal, "JOIN sessions s ON s.no = x.no"
    )
    sessions = {session.number: session for session in readable(session_of, (row[2:] for row in rows))}
    return {
        row[0]: (sessions[row[2]], entry)
        for row, entry in zip(rows, entries_of(rows), strict=True)
        if row[2] in sessions and not isinstance(entry, UnreadableEntry)
    }


@transaction
def load_neighbours(session: int, seq: int, count: int) -> Statements[tuple[tuple[Entry, ...], tuple[Entry, ...]]]:
    """Return the searchable entries before and after one."""
    first, entry = session * SEQS, session * SEQS + seq
    sql = f"SELECT e.id, e.body FROM entries e WHERE e.id > ? AND e.id < ? AND {NOT_UNDONE} ORDER BY e.id"
    before = yield f"{sql} DESC LIMIT ?", (first, entry, count)
    after = yield f"{sql} LIMIT ?", (entry, first + SEQS, count)
    return tuple(entries_of(before[::-1])), tuple(entries_of(after))


@transaction
def count_existing(entries: Sequence[int]) -> Statements[int]:
    return (yield f"SELECT count(*) FROM entries WHERE id IN ({placeholders(entries)})", tuple(entries))[0][0]
