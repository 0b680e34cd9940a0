"""The index of a PostgreSQL store: tables of their own, with the same terms as a tsvector under a GIN index.

No extension is needed. Journal positions may be committed out of order; so the journal is read in the order of
transaction ids up to the oldest transaction still running, and what is visible beyond it is indexed at once and
remembered one by one until the running ones have ended: nothing that is committed is ever passed over.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, TypeVar

import asyncpg

from palaver.domain.errors import StoreError
from palaver.ports.store import Database
from palaver.ports.work import Lock, Steps, Value, work
from palaver.stores.search.documents import (
    FORMAT,
    Candidate,
    Document,
    IndexLost,
    Wanted,
    terms_of,
)
from palaver.stores.search.postgres_lookup import find_candidates
from palaver.stores.search.truth import Noted, Progress, changes_of, documents_in
from palaver.stores.transcript import SEQS

__all__ = ["PostgresIndex"]

T = TypeVar("T")

_LOCK = Lock("search index")
_NOTES = 256
_MANY = 5_000
_TABLES = ("search_documents", "search_ahead", "search_mark")
_SCHEMA = (
    "CREATE TABLE search_documents ("
    " id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session BIGINT NOT NULL, entry BIGINT NOT NULL,"
    " page BIGINT NOT NULL, at BIGINT NOT NULL, body TEXT NOT NULL, terms TSVECTOR NOT NULL)",
    "CREATE UNIQUE INDEX search_documents_by_entry ON search_documents (session, entry, page)",
    "CREATE INDEX search_documents_by_time ON search_documents (at, id)",
    # What waits to be sorted into the index is read one by one by every search: so not much may wait.
    "CREATE INDEX search_documents_by_term ON search_documents USING gin (terms) WITH (gin_pending_list_limit = 128)",
    "CREATE TABLE search_ahead (pos BIGINT PRIMARY KEY, xid XID8 NOT NULL, done BIGINT NOT NULL)",
    "CREATE TABLE search_mark (format TEXT NOT NULL, xid XID8 NOT NULL, pos BIGINT NOT NULL, version BIGINT NOT NULL)",
    # Rows that came with a dump carry the ids of another server; here they are as old as their arrival.
    "UPDATE journal SET xid = pg_current_xact_id() WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())",
)


class _Mark(NamedTuple):
    """Everything up to this transaction and position is indexed."""

    xid: int
    pos: int
    version: int
    """Another with every change of the index."""


class _Noted(NamedTuple):
    xid: int
    row: Noted


class _Read(NamedTuple):
    mark: _Mark
    settled: int
    """All transactions before this one have ended."""
    table: int
    """Another whenever the index is made anew."""
    forgettable: bool
    """Something was remembered that need not be any more."""
    noted: list[_Noted]
    progress: Progress


class PostgresIndex:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._complete = 0
        self._one_at_a_time = asyncio.Lock()

    async def open(self) -> None:
        await self._database.transact(_make(only_if_broken=True))

    async def catch_up(self, *, tidy: bool) -> int:
        """What was removed leaves the disk with the next vacuum, as it does everywhere in PostgreSQL."""
        del tidy
        async with self._one_at_a_time:
            entries = 0
            while True:
                read = await self._unread()
                if read is None:
                    await self._database.transact(_make(only_if_broken=True))
                    continue
                self._complete = read.table
                if not read.noted and not read.forgettable:
                    break
                documents = await asyncio.to_thread(documents_in, read.progress.changes)
                if await self._whole(self._database.transact(_write(read, documents))):
                    entries += sum(len(change.entries) for change in read.progress.changes)
            if entries >= _MANY:
                await self._whole(self._database.transact(_study()))
            return entries

    async def _unread(self) -> _Read | None:
        """None if there are no tables, or not such that they could be used."""
        try:
            return await self._database.read(_unread())
        except (IndexLost, StoreError) as error:
            if not _is_broken(error):
                raise
            return None

    async def candidates(self, wanted: Wanted, after: Candidate | None, limit: int, *, bodies: bool) -> list[Candidate]:
        complete = self._complete
        table, found = await self._whole(self._database.read(find_candidates(wanted, after, limit, bodies=bodies)))
        if table != complete:
            raise IndexLost("the tables were replaced")
        return found

    async def _whole(self, step: Awaitable[T]) -> T:
        try:
            return await step
        except (IndexLost, StoreError) as error:
            if not _is_broken(error):
                raise
            await self.clear()
            raise IndexLost(str(error)) from error

    async def entries(self, after: int, limit: int) -> list[int]:
        return await self._whole(self._database.read(_entries(after, limit)))

    async def clear(self) -> None:
        await self._database.transact(_make())

    async def close(self) -> None:
        """The database is not ours to close."""


_BROKEN = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.DataCorruptedError,
    asyncpg.IndexCorruptedError,
)


def _is_broken(error: Exception) -> bool:
    return isinstance(error, IndexLost) or isinstance(error.__cause__, _BROKEN)


_STATE = (
    "SELECT m.format, m.xid::text, m.pos, m.version, pg_snapshot_xmin(pg_current_snapshot())::text,"
    " to_regclass('search_documents')::oid::bigint,"
    " EXISTS (SELECT 1 FROM search_ahead a WHERE a.xid < pg_snapshot_xmin(pg_current_snapshot())),"
    " m.xid > pg_snapshot_xmax(pg_current_snapshot())"
    " OR EXISTS (SELECT 1 FROM journal j WHERE j.xid >= pg_snapshot_xmax(pg_current_snapshot()))"
    " FROM search_mark m"
)


@work
def _make(*, only_if_broken: bool = False) -> Steps[None]:
    yield _LOCK
    if only_if_broken and (yield from _is_sound()):
        return
    for table in _TABLES:
        yield f"DROP TABLE IF EXISTS {table}", ()
    for statement in _SCHEMA:
        yield statement, ()
    yield "INSERT INTO search_mark VALUES (?, '0', 0, 0)", (FORMAT,)
    # Asked for first: even to find that it is there, it would wait for everybody who writes, and they for it.
    if not (yield from _exists("journal_by_xid")):
        yield "CREATE INDEX journal_by_xid ON journal (xid, pos)", ()


def _is_sound() -> Steps[bool]:
    for table in _TABLES:
        if not (yield from _exists(table)):
            return False
    rows = yield _STATE, ()
    return bool(rows) and rows[0][0] == FORMAT and not rows[0][7]


def _exists(name: str) -> Steps[bool]:
    rows = yield "SELECT to_regclass(?) IS NOT NULL", (name,)
    return rows[0][0]


@work
def _unread() -> Steps[_Read]:
    rows = yield _STATE, ()
    if not rows or rows[0][0] != FORMAT or rows[0][7]:
        raise IndexLost("the tables are of another format or come from another server")
    _, xid, pos, version, settled, table, forgettable, _ = rows[0]
    rows = yield (
        "SELECT j.xid::text, j.pos, j.session_no, j.kind, j.first_seq, j.last_seq, coalesce(a.done, 0)"
        " FROM journal j LEFT JOIN search_ahead a ON a.pos = j.pos"
        " WHERE (j.xid, j.pos) > (?::text::xid8, ?) AND (a.pos IS NULL OR a.done < j.last_seq)"
        f" ORDER BY j.xid, j.pos LIMIT {_NOTES}",
        (xid, pos),
    )
    noted = [_Noted(int(row[0]), Noted(*row[1:])) for row in rows]
    progress = yield from changes_of([each.row for each in noted])
    return _Read(_Mark(int(xid), pos, version), int(settled), table, forgettable, noted, progress)


@work
def _entries(after: int, limit: int) -> Steps[list[int]]:
    sql = "SELECT DISTINCT session, entry FROM search_documents WHERE (session, entry) > (?, ?) ORDER BY 1, 2 LIMIT ?"
    return [row[1] for row in (yield sql, (after // SEQS, after, limit))]


@work
def _write(read: _Read, documents: Sequence[Document]) -> Steps[bool]:
    """Whether nobody else was faster."""
    yield _LOCK
    rows = yield "SELECT version FROM search_mark", ()
    if [row[0] for row in rows] != [read.mark.version]:
        return False
    ranges: list[tuple[Value, ...]] = [(each.session, each.first, each.last) for each in read.progress.changes]
    yield "DELETE FROM search_documents WHERE session = ? AND entry >= ? AND entry <= ?", ranges
    values: list[tuple[Value, ...]] = [
        (each.entry // SEQS, *each, " ".join(set(terms_of(each.body)))) for each in documents
    ]
    yield (
        "INSERT INTO search_documents (session, entry, page, at, body, terms)"
        " VALUES (?, ?, ?, ?, ?, array_to_tsvector(string_to_array(?, ' ')))",
        values,
    )
    yield from _move_on(read)
    return True


def _move_on(read: _Read) -> Steps[None]:
    finished = read.noted[: read.progress.rows]
    mark = (read.mark.xid, read.mark.pos)
    if len(finished) == len(read.noted) < _NOTES:
        mark = max(mark, (read.settled, 0))
    for each in finished:
        if each.xid < read.settled:
            mark = max(mark, (each.xid, each.row.pos))
    ahead: list[tuple[Value, ...]] = [
        (each.row.pos, str(each.xid), each.row.last) for each in finished if each.xid >= read.settled
    ]
    if read.progress.done:
        partly = read.noted[read.progress.rows]
        ahead.append((partly.row.pos, str(partly.xid), read.progress.done))
    yield (
        "INSERT INTO search_ahead VALUES (?, ?::text::xid8, ?) ON CONFLICT (pos) DO UPDATE SET done = excluded.done",
        ahead,
    )
    yield "DELETE FROM search_ahead WHERE (xid, pos) <= (?::text::xid8, ?)", (str(mark[0]), mark[1])
    yield "UPDATE search_mark SET xid = ?::text::xid8, pos = ?, version = version + 1", (str(mark[0]), mark[1])


@work
def _study() -> Steps[None]:
    """The planner must not wait for the next autovacuum to know what is in a table that was just filled."""
    yield "ANALYZE search_documents", ()
