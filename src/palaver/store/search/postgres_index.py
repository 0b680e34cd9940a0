"""The search index of a PostgreSQL store: separate tables, the terms as a tsvector under a GIN index. No extension.

Journal rows can be committed out of order. So the journal is read in the order of transaction ids, up to the oldest
transaction that is still running. Rows beyond it are indexed at once too, and remembered in `search_ahead` until the
running transactions have ended. So no committed row is skipped.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import asyncpg

from palaver.db.transaction import Database, Lock, Row, Statements, Value, transaction
from palaver.model.errors import StoreError
from palaver.store.conversations.visibility import Filter
from palaver.store.records import SEQS
from palaver.store.search.entries import JournalBatch, JournalRow, documents_of_changes, read_changes
from palaver.store.search.index import (
    BODY_CHARS,
    FORMAT,
    Candidate,
    Condition,
    Document,
    IndexLost,
    IndexQuery,
    TermSyntax,
    needle_filters,
    terms_of,
)

NEWEST_WINDOW = 2_000
MAX_COUNTED = 10_000
_RARE = 1
"""Of so few of the newest documents it does not pay to ask where they begin."""
_SHORT_PREFIX = 3


@transaction
def find_candidates(query: IndexQuery, after: Candidate | None, limit: int) -> Statements[tuple[int, list[Candidate]]]:
    """Return the oid of the table, and the candidates in it."""
    # Read first: once the table was read, nobody can replace it before this transaction ends.
    # Plan each query anew: a plan that suits some words and sessions is slow for others.
    table = yield (
        "SELECT to_regclass('search_documents')::oid::bigint, EXISTS (SELECT 1 FROM search_documents),"
        " set_config('plan_cache_mode', 'force_custom_plan', TRUE)",
        (),
    )
    columns = f"id, entry, page, at{f', left(body, {BODY_CHARS})' if query.bodies else ''}"
    rows = yield from _find(columns, Filter.all(_bounds(query, after)), Filter.all(_match(query)), limit)
    return table[0][0], [Candidate(*row) for row in rows]


def _find(columns: str, bounds: Filter, match: Filter, limit: int) -> Statements[list[Row]]:
    """Look among the newest documents, then as far back as the limit seems to need, then everywhere.

    What is rare among the newest is looked for everywhere at once.
    """
    rows = yield (
        f"SELECT {columns} FROM (SELECT * FROM search_documents WHERE {bounds.sql} {_NEWEST_FIRST}"
        f" LIMIT {NEWEST_WINDOW}) d WHERE {match.sql} {_NEWEST_FIRST} LIMIT ?",
        (*bounds.values, *match.values, limit),
    )
    if len(rows) >= limit:
        return rows
    if len(rows) > _RARE:
        start_of_newest = yield (
            f"SELECT at FROM search_documents WHERE {bounds.sql} {_NEWEST_FIRST} LIMIT 1 OFFSET {NEWEST_WINDOW}",
            bounds.values,
        )
        if not start_of_newest:
            return rows
        newest = rows[0][_AT]
        since = newest - (newest - start_of_newest[0][0]) * 2 * limit // len(rows)
        rows = yield from _find_by_terms(columns, [match, bounds, Filter("at >= ?", (since,))], limit)
    return rows if len(rows) >= limit else (yield from _find_by_terms(columns, [match, bounds], limit))


_NEWEST_FIRST = "ORDER BY at DESC, id DESC"
_AT = 3


def _find_by_terms(columns: str, conditions: Sequence[Filter], limit: int) -> Statements[list[Row]]:
    """Match first, then sort: otherwise the planner may walk all documents in time order."""
    where = Filter.all(conditions)
    rows = yield (
        f"WITH found AS MATERIALIZED (SELECT id, at FROM search_documents WHERE {where.sql})"
        f" SELECT {columns} FROM search_documents WHERE id IN"
        f" (SELECT id FROM found {_NEWEST_FIRST} LIMIT ?) {_NEWEST_FIRST}",
        (*where.values, limit),
    )
    return rows


def _bounds(query: IndexQuery, after: Candidate | None) -> Iterator[Filter]:
    if query.sessions is not None:
        numbers = ",".join(map(str, query.sessions))
        yield Filter("session = ANY (string_to_array(?, ',')::bigint[])", (numbers,))
    if after is not None:
        yield Filter("(at, id) < (?, ?)", (after.at, after.number))
    yield from Filter.given({"at >= ?": query.since, "at < ?": query.until})


def _match(query: IndexQuery) -> Iterator[Filter]:
    """Leave out short prefixes if there is anything else: half of all documents match, and the needles decide."""
    selective = [condition for condition in query.conditions if not _is_short(condition)]
    yield Filter("terms @@ ?::text::tsquery", (_SYNTAX.write(selective or query.conditions),))
    yield from needle_filters(query, "strpos(body, ?) > 0")


_SYNTAX = TermSyntax(" & ", " | ", "'", ":*")


def _is_short(condition: Condition) -> bool:
    return condition.prefix and len(condition.options) == 1 and len("".join(condition.options[0].terms)) < _SHORT_PREFIX


T = TypeVar("T")

_LOCK = Lock("search index")
_JOURNAL_ROWS = 256
ANALYZE_AFTER_ENTRIES = 5_000
_TABLES = ("search_documents", "search_ahead", "search_mark")
_SCHEMA = (
    "CREATE TABLE search_documents ("
    " id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session BIGINT NOT NULL, entry BIGINT NOT NULL,"
    " page BIGINT NOT NULL, at BIGINT NOT NULL, body TEXT NOT NULL, terms TSVECTOR NOT NULL)",
    "CREATE UNIQUE INDEX search_documents_by_entry ON search_documents (session, entry, page)",
    "CREATE INDEX search_documents_by_time ON search_documents (at, id)",
    # Every search reads the pending list row by row, so keep it short.
    "CREATE INDEX search_documents_by_term ON search_documents USING gin (terms) WITH (gin_pending_list_limit = 128)",
    "CREATE TABLE search_ahead (pos BIGINT PRIMARY KEY, xid XID8 NOT NULL, done BIGINT NOT NULL)",
    "CREATE TABLE search_mark (format TEXT NOT NULL, xid XID8 NOT NULL, pos BIGINT NOT NULL, version BIGINT NOT NULL)",
    # Rows from a dump carry transaction ids of another server. Give them the current one.
    "UPDATE journal SET xid = pg_current_xact_id() WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())",
)


class _Unread(NamedTuple):
    mark: tuple[int, int]
    """Everything up to this transaction and position is indexed."""
    version: int
    """Changes with every change of the index."""
    settled: int
    """All transactions before this one have ended."""
    table: int
    """Changes when the index is rebuilt."""
    forgettable: bool
    """`search_ahead` has rows that are no longer needed."""
    rows: list[JournalRow]
    progress: JournalBatch


class PostgresIndex:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._complete = 0
        self._catch_up_lock = asyncio.Lock()

    async def open(self) -> None:
        await self._database.transact(_create_tables(only_if_broken=True))

    async def catch_up(self, *, purge: bool) -> int:
        """The next vacuum removes deleted words from disk, as everywhere in PostgreSQL."""
        del purge
        async with self._catch_up_lock:
            entries = 0
            while True:
                try:
                    read = await self._database.read(_read_journal())
                except (IndexLost, StoreError) as error:
                    if not _is_broken(error):
                        raise
                    await self.open()
                    continue
                self._complete = read.table
                if not read.rows and not read.forgettable:
                    break
                documents = await asyncio.to_thread(documents_of_changes, read.progress.changes)
                if await self._run(self._database.transact(_write(read, documents))):
                    entries += sum(len(change.entries) for change in read.progress.changes)
            if entries >= ANALYZE_AFTER_ENTRIES:
                await self._run(self._database.transact(_analyze()))
            return entries

    async def candidates(self, query: IndexQuery, after: Candidate | None, limit: int) -> list[Candidate]:
        complete = self._complete
        table, found = await self._run(self._database.read(find_candidates(query, after, limit)))
        if table != complete:
            raise IndexLost("the tables were replaced")
        return found

    async def count(self, terms: Sequence[str]) -> tuple[int, list[int]]:
        return await self._run(self._database.read(_count(terms)))

    async def _run(self, step: Awaitable[T]) -> T:
        try:
            return await step
        except (IndexLost, StoreError) as error:
            if not _is_broken(error):
                raise
            await self.clear()
            raise IndexLost(str(error)) from error

    async def entry_ids(self, after: int, limit: int) -> list[int]:
        return await self._run(self._database.read(_entry_ids(after, limit)))

    async def clear(self) -> None:
        await self._database.transact(_create_tables())

    async def close(self) -> None:
        """The store closes the database."""


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
def _create_tables(*, only_if_broken: bool = False) -> Statements[None]:
    yield _LOCK
    if only_if_broken and (yield from _is_usable()):
        return
    for table in _TABLES:
        yield f"DROP TABLE IF EXISTS {table}", ()
    for statement in _SCHEMA:
        yield statement, ()
    yield "INSERT INTO search_mark VALUES (?, '0', 0, 0)", (FORMAT,)
    # Check first: CREATE INDEX IF NOT EXISTS would wait for all writers, and they for it.
    if not (yield from _exists("journal_by_xid")):
        yield "CREATE INDEX journal_by_xid ON journal (xid, pos)", ()


def _is_usable() -> Statements[bool]:
    for table in _TABLES:
        if not (yield from _exists(table)):
            return False
    rows = yield _STATE, ()
    return bool(rows) and rows[0][0] == FORMAT and not rows[0][7]


def _exists(name: str) -> Statements[bool]:
    rows = yield "SELECT to_regclass(?) IS NOT NULL", (name,)
    return rows[0][0]


@transaction
def _read_journal() -> Statements[_Unread]:
    rows = yield _STATE, ()
    if not rows or rows[0][0] != FORMAT or rows[0][7]:
        raise IndexLost("the tables have another format or come from another server")
    _, xid, pos, version, settled, table, forgettable, _ = rows[0]
    rows = yield (
        "SELECT j.pos, j.session_no, j.kind, j.first_seq, j.last_seq, coalesce(a.done, 0), j.xid::text::bigint"
        " FROM journal j LEFT JOIN search_ahead a ON a.pos = j.pos"
        " WHERE (j.xid, j.pos) > (?::text::xid8, ?) AND (a.pos IS NULL OR a.done < j.last_seq)"
        f" ORDER BY j.xid, j.pos LIMIT {_JOURNAL_ROWS}",
        (xid, pos),
    )
    committed = [JournalRow(*row) for row in rows]
    progress = yield from read_changes(committed)
    return _Unread((int(xid), pos), version, int(settled), table, forgettable, committed, progress)


@transaction
def _count(terms: Sequence[str]) -> Statements[tuple[int, list[int]]]:
    """Take the frequencies of common words from the planner's statistics, and count the others."""
    rows = yield "SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass('search_documents')", ()
    documents = rows[0][0] if rows else 0
    if documents < MAX_COUNTED:  # never analysed, or small
        documents = (yield f"SELECT count(*) FROM (SELECT 1 FROM search_documents LIMIT {MAX_COUNTED}) d", ())[0][0]
    rows = yield (
        "SELECT m.term, m.share FROM pg_stats s,"
        " LATERAL unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) m(term, share)"
        " WHERE s.schemaname = current_schema() AND s.tablename = 'search_documents' AND s.attname = 'terms'"
        " AND m.term = ANY (string_to_array(?, ' '))",
        (" ".join(terms),),
    )
    # Of a small table the statistics can be old.
    common: dict[str, int] = {term: int(share * documents) for term, share in rows if documents >= MAX_COUNTED}
    rest = [term for term in terms if term not in common]
    rows = yield (
        "SELECT t.term, (SELECT count(*) FROM (SELECT 1 FROM search_documents WHERE terms @@"
        f" quote_literal(t.term)::tsquery LIMIT {MAX_COUNTED}) d) FROM unnest(string_to_array(?, ' ')) t(term)",
        (" ".join(rest),),
    )
    counted: dict[str, int] = dict(rows)
    return documents, [(common | counted)[term] for term in terms]


@transaction
def _entry_ids(after: int, limit: int) -> Statements[list[int]]:
    sql = "SELECT DISTINCT session, entry FROM search_documents WHERE (session, entry) > (?, ?) ORDER BY 1, 2 LIMIT ?"
    return [row[1] for row in (yield sql, (after // SEQS, after, limit))]


@transaction
def _write(read: _Unread, documents: Sequence[Document]) -> Statements[bool]:
    """Write a batch; return False if another worker has indexed meanwhile."""
    yield _LOCK
    rows = yield "SELECT version FROM search_mark", ()
    if [row[0] for row in rows] != [read.version]:
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
    yield from _advance_mark(read)
    return True


def _advance_mark(read: _Unread) -> Statements[None]:
    finished = read.rows[: read.progress.rows]
    mark = read.mark
    if len(finished) == len(read.rows) < _JOURNAL_ROWS:
        mark = max(mark, (read.settled, 0))
    mark = max([mark, *((row.xid, row.pos) for row in finished if row.xid < read.settled)])
    ahead: list[tuple[Value, ...]] = [(row.pos, str(row.xid), row.last) for row in finished if row.xid >= read.settled]
    if read.progress.done:
        partly = read.rows[read.progress.rows]
        ahead.append((partly.pos, str(partly.xid), read.progress.done))
    yield (
        "INSERT INTO search_ahead VALUES (?, ?::text::xid8, ?) ON CONFLICT (pos) DO UPDATE SET done = excluded.done",
        ahead,
    )
    yield "DELETE FROM search_ahead WHERE (xid, pos) <= (?::text::xid8, ?)", (str(mark[0]), mark[1])
    yield "UPDATE search_mark SET xid = ?::text::xid8, pos = ?, version = version + 1", (str(mark[0]), mark[1])


@transaction
def _analyze() -> Statements[None]:
    """Give the planner statistics of a table that was just filled, before the next autovacuum."""
    yield "ANALYZE search_documents", ()
