"""The index of a PostgreSQL store: tables of their own, with the same terms as a tsvector under a GIN index.

No extension is needed. Journal positions may be committed out of order; so the journal is read in the order of
transaction ids up to the oldest transaction still running, and what is visible beyond it is indexed at once and
remembered one by one until the running ones have ended: nothing that is committed is ever passed over.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import asyncpg

from palaver.db.database import Database
from palaver.db.transaction import Lock, Row, Statements, Value, transaction
from palaver.model.errors import StoreError
from palaver.store.conversations.transcript import SEQS
from palaver.store.conversations.visibility import Filter
from palaver.store.search.documents import FORMAT, Candidate, Document, IndexLost, Need, Wanted, all_of, terms_of
from palaver.store.search.journal import Noted, Progress, changes_of, documents_in

__all__ = [
    "PostgresIndex",
    "find_candidates",
]

_WINDOW = 2_000
_SHORT = 3
_BEGINNING = 16_384


@transaction
def find_candidates(
    wanted: Wanted, after: Candidate | None, limit: int, *, bodies: bool
) -> Statements[tuple[int, list[Candidate]]]:
    """The table they were found in, and they."""
    # Planned anew for these words and sessions each time: what is good for some of them is slow for others.
    yield "SELECT set_config('plan_cache_mode', 'force_custom_plan', TRUE)", ()
    rows = yield from _find(_Look(wanted, after, bodies=bodies), limit)
    # Asked for last: now that it was read, it cannot be replaced before we are done.
    table = yield "SELECT to_regclass('search_documents')::oid::bigint", ()
    return table[0][0], [Candidate(*row) for row in rows]


def _find(look: "_Look", limit: int) -> Statements[list[Row]]:
    rows = yield from look.among_newest(limit)
    if len(rows) >= limit:
        return rows
    begins = yield from look.beginning_of_newest()
    if begins is None:
        return rows
    if rows:
        newest = rows[0][_AT]
        rows = yield from look.in_index(limit, since=newest - (newest - begins) * 2 * limit // len(rows))
    return rows if len(rows) >= limit else (yield from look.in_index(limit))


_AT = 3


class _Look:
    def __init__(self, wanted: Wanted, after: Candidate | None, *, bodies: bool) -> None:
        self._bounds = all_of(_bounds(wanted, after))
        self._match = all_of(_match(wanted))
        self._columns = f"id, entry, page, at{f', left(body, {_BEGINNING})' if bodies else ''}"

    @transaction
    def among_newest(self, limit: int) -> Statements[list[Row]]:
        bounds, match = self._bounds, self._match
        return (
            yield (
                f"SELECT {self._columns} FROM (SELECT * FROM search_documents WHERE {bounds.sql} ORDER BY at DESC,"
                f" id DESC LIMIT {_WINDOW}) d WHERE {match.sql} ORDER BY at DESC, id DESC LIMIT ?",
                (*bounds.values, *match.values, limit),
            )
        )

    @transaction
    def beginning_of_newest(self) -> Statements[int | None]:
        """When the newest documents begin; None if there are no others."""
        rows = yield (
            f"SELECT at FROM search_documents WHERE {self._bounds.sql} ORDER BY at DESC, id DESC"
            f" LIMIT 1 OFFSET {_WINDOW}",
            self._bounds.values,
        )
        return rows[0][0] if rows else None

    @transaction
    def in_index(self, limit: int, since: int | None = None) -> Statements[list[Row]]:
        """Found first and sorted then, or the planner might walk through all documents in the order wanted."""
        where = all_of([self._match, self._bounds, *([] if since is None else [Filter("at >= ?", (since,))])])
        return (
            yield (
                f"WITH found AS MATERIALIZED (SELECT id, at FROM search_documents WHERE {where.sql})"
                f" SELECT {self._columns} FROM search_documents WHERE id IN"
                " (SELECT id FROM found ORDER BY at DESC, id DESC LIMIT ?) ORDER BY at DESC, id DESC",
                (*where.values, limit),
            )
        )


def _bounds(wanted: Wanted, after: Candidate | None) -> Iterator[Filter]:
    if wanted.sessions is not None:
        numbers = ",".join(map(str, wanted.sessions))
        yield Filter("session = ANY (string_to_array(?, ',')::bigint[])", (numbers,))
    if after is not None:
        yield Filter("(at, id) < (?, ?)", (after.at, after.number))
    if wanted.since is not None:
        yield Filter("at >= ?", (wanted.since,))
    if wanted.until is not None:
        yield Filter("at < ?", (wanted.until,))


def _match(wanted: Wanted) -> Iterator[Filter]:
    yield Filter("terms @@ ?::text::tsquery", (_terms(wanted),))
    for need in wanted.needs:
        if need.needles:
            yield Filter(f"({' OR '.join(['strpos(body, ?) > 0'] * len(need.needles))})", need.needles)


def _terms(wanted: Wanted) -> str:
    """Short beginnings are left out if there is anything else: half of all documents have them, and the needles."""
    telling = [_option(need) for need in wanted.needs if not _is_short(need)]
    tags = [" | ".join(map(_quoted, group)) for group in wanted.tags]
    parts = [*telling, *tags] or [_option(need) for need in wanted.needs]
    return " & ".join(f"({part})" for part in parts)


def _is_short(need: Need) -> bool:
    return need.prefix and len(need.options) == 1 and len("".join(need.options[0])) < _SHORT


def _option(need: Need) -> str:
    star = ":*" if need.prefix else ""
    return " | ".join(f"({' & '.join(map(_quoted, terms))}{star})" for terms in need.options)


def _quoted(term: str) -> str:
    return f"'{term}'"


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


@transaction
def _make(*, only_if_broken: bool = False) -> Statements[None]:
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


def _is_sound() -> Statements[bool]:
    for table in _TABLES:
        if not (yield from _exists(table)):
            return False
    rows = yield _STATE, ()
    return bool(rows) and rows[0][0] == FORMAT and not rows[0][7]


def _exists(name: str) -> Statements[bool]:
    rows = yield "SELECT to_regclass(?) IS NOT NULL", (name,)
    return rows[0][0]


@transaction
def _unread() -> Statements[_Read]:
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


@transaction
def _entries(after: int, limit: int) -> Statements[list[int]]:
    sql = "SELECT DISTINCT session, entry FROM search_documents WHERE (session, entry) > (?, ?) ORDER BY 1, 2 LIMIT ?"
    return [row[1] for row in (yield sql, (after // SEQS, after, limit))]


@transaction
def _write(read: _Read, documents: Sequence[Document]) -> Statements[bool]:
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


def _move_on(read: _Read) -> Statements[None]:
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


@transaction
def _study() -> Statements[None]:
    """The planner must not wait for the next autovacuum to know what is in a table that was just filled."""
    yield "ANALYZE search_documents", ()
