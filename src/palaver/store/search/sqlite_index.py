"""The search index of a SQLite store: an FTS5 table in its own file, used on its own thread."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from palaver.db.cipher import open_file
from palaver.db.file_lock import is_writable
from palaver.db.private_files import touch_private
from palaver.db.sqlite import SqliteDatabase, use_write_ahead_log, with_advice
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import StoreUnavailable
from palaver.store.conversations.visibility import Filter
from palaver.store.search.entries import EntryRange, JournalRow, documents_of_changes, read_changes
from palaver.store.search.index import (
    BODY_CHARS,
    FORMAT,
    Candidate,
    Condition,
    IndexLost,
    IndexQuery,
    Tag,
    TermSyntax,
    any_of,
    needle_filters,
    terms_of,
)

T = TypeVar("T")

# The body is kept: phrases are compared with it, and FTS5 needs the terms of a document to delete it.
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE documents (id INTEGER PRIMARY KEY, entry INTEGER, page INTEGER, at INTEGER, body TEXT);
CREATE UNIQUE INDEX documents_by_entry ON documents (entry, page);
CREATE VIRTUAL TABLE terms USING fts5 (
  body, content='', columnsize=0, detail=none, tokenize="ascii tokenchars '_'"
);
"""
# Errors that mean a corrupt file, not a locked one, a full disk or a bad query.
_CORRUPT_CODES = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CONSTRAINT}
)
_CORRUPT_MESSAGES = ("no such table", "no such column", "vtable constructor failed", "malformed")
_MERGE_PAGES = 500
MAX_FREQUENCIES = 4096
FREQUENCIES_GO_STALE = 20
"""Count again once a document in so many is new."""


class Mark(NamedTuple):
    """How far the journal is indexed: the position, the seq within its row, and a fingerprint of the row."""

    pos: int = 0
    seq: int = 0
    fingerprint: str = ""


class SqliteIndex:
    """The file, used from one thread. Other processes may use the same file."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._path = database.path.with_name(database.path.name + ".search")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="palaver-search")
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        self._generation = 0
        """Changes with every opening of the file."""
        self._complete_generation = 0
        self._documents = 0
        """About how many there are: other processes write, too."""
        self._frequencies: dict[str, int] = {}
        self._written = 0
        """Documents since the frequencies were last forgotten."""
        self._next_free_second: dict[int, int] = {}
        self._catch_up_lock = asyncio.Lock()

    async def catch_up(self, *, purge: bool) -> int:
        async with self._catch_up_lock:
            entries = await self._index_journal()
            self._complete_generation = await self._run(lambda: self._generation)
        while purge and await self._use(_purge):
            pass  # in small steps, so that a search can run between them
        return entries

    async def _index_journal(self) -> int:
        entries = 0
        while True:
            mark = await self._use(_mark_of)
            read = await self._database.read(_read_after(mark))
            if read is None:
                await self.clear()
            elif read[1] == mark:
                return entries
            else:
                entries += await self._use(partial(self._write, mark, *read))

    async def candidates(self, query: IndexQuery, after: Candidate | None, limit: int) -> list[Candidate]:
        generation = self._complete_generation

        def read(db: sqlite3.Connection) -> list[Candidate]:
            if self._generation != generation:
                raise IndexLost("the file was replaced")
            return find_candidates(db, query, after, limit)

        return await self._use(read)

    async def count(self, terms: Sequence[str]) -> tuple[int, list[int]]:
        def read(db: sqlite3.Connection) -> tuple[int, list[int]]:
            return self._documents, [self._count(db, term) for term in terms]

        return await self._use(read)

    def _count(self, db: sqlite3.Connection, term: str) -> int:
        """Remember it: to count a word that is everywhere takes milliseconds."""
        if term not in self._frequencies:
            if len(self._frequencies) >= MAX_FREQUENCIES:
                self._frequencies.clear()
            rows = db.execute("SELECT doc FROM temp.vocabulary WHERE term = ?", (term,)).fetchall()
            self._frequencies[term] = rows[0][0] if rows else 0
        return self._frequencies[term]

    async def entry_ids(self, after: int, limit: int) -> list[int]:
        sql = "SELECT DISTINCT entry FROM documents WHERE entry > ? ORDER BY entry LIMIT ?"
        return [row[0] for row in await self._use(lambda db: db.execute(sql, (after, limit)).fetchall())]

    async def clear(self) -> None:
        await self._run(self._clear)

    async def close(self) -> None:
        await self._run(self._close)
        self._thread.shutdown()

    async def _use(self, step: Callable[[sqlite3.Connection], T]) -> T:
        return await self._run(lambda: self._use_file(step))

    async def _run(self, step: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, step)

    # On the thread

    def _close(self) -> None:
        if self._db:
            self._db.close()
            self._db = None

    def _clear(self) -> None:
        self._close()
        for ending in ("", "-wal", "-shm", "-journal"):
            Path(f"{self._path}{ending}").unlink(missing_ok=True)

    def _use_file(self, step: Callable[[sqlite3.Connection], T]) -> T:
        """Run a step; if the file is corrupt, delete it and raise IndexLost."""
        try:
            db = self._open()
            try:
                return step(db)
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
        except (sqlite3.DatabaseError, OSError) as error:
            self._close()
            if not _is_corrupt(error):
                said = with_advice(error)
                raise StoreUnavailable(f"the search index {self._path} cannot be used right now: {said}") from error
            self._clear()
            raise IndexLost(str(error)) from error

    def _open(self) -> sqlite3.Connection:
        """Return a connection to the current file. Another process may have replaced it."""
        if self._db and self._inode == _inode_of(self._path):
            return self._db
        self._close()
        self._generation += 1
        self._next_free_second.clear()
        if not self._path.exists() and is_writable(self._path.parent):
            touch_private(self._path)
        # In a read-only folder the index lives in memory.
        can_write = is_writable(self._path) and is_writable(self._path.parent)
        name = self._path if can_write else ":memory:"
        self._db = db = open_file(name, self._database.key)
        db.execute("PRAGMA busy_timeout = 20000")
        use_write_ahead_log(db)
        for setting in ("synchronous = NORMAL", "secure_delete = ON", "temp_store = MEMORY"):
            db.execute(f"PRAGMA {setting}")
        _create_schema(db)
        db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, terms, row)")
        self._documents = db.execute("SELECT count(*) FROM documents").fetchone()[0]
        self._frequencies.clear()
        self._inode = _inode_of(self._path)
        return db

    def _write(self, after: Mark, changes: Sequence[EntryRange], until: Mark, db: sqlite3.Connection) -> int:
        """Index a batch and return the number of entries: 0 if another process has indexed meanwhile."""
        documents = sorted(documents_of_changes(changes), key=lambda document: document.at)
        db.execute("BEGIN IMMEDIATE")
        if _mark_of(db) != after:
            return 0
        for change in changes:
            _remove(db, change.first, change.last)
        for document in documents:
            number = self._free_number(db, document.at)
            db.execute("INSERT INTO documents VALUES (?, ?, ?, ?, ?)", (number, *document))
            db.execute("INSERT INTO terms (rowid, body) VALUES (?, ?)", (number, " ".join(terms_of(document.body))))
        for name, value in zip(("pos", "seq", "note"), until, strict=True):
            _set(db, name, value)
        db.execute("COMMIT")
        self._documents += len(documents)
        self._written += len(documents)
        if self._written * FREQUENCIES_GO_STALE > self._documents:
            self._frequencies.clear()
            self._written = 0
        return sum(len(change.entries) for change in changes)

    def _free_number(self, db: sqlite3.Connection, at: int) -> int:
        """Return a free number in this second or the next that has one: documents are numbered in time order."""
        wanted = second = at // MICROS
        while True:
            second = self._next_free_second.get(second, second)
            end = (second + 1) * PER_SECOND
            last = db.execute("SELECT max(id) FROM documents WHERE id < ?", (end,)).fetchone()[0]
            number = second * PER_SECOND if last is None else max(second * PER_SECOND, last + 1)
            if number < end:
                break
            self._next_free_second[second] = second + 1
            second += 1
        if second > wanted:
            self._next_free_second[wanted] = second
            # By how many seconds a number can be later than its document.
            _set(db, "late", max(second - wanted, _get(db, "late", 0)))
        return number


def _create_schema(db: sqlite3.Connection) -> None:
    if _format_of(db) == FORMAT:
        return
    db.execute("BEGIN IMMEDIATE")
    if _format_of(db) != FORMAT:
        if db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall():
            raise sqlite3.DatabaseError("the file has another format")
        for statement in _SCHEMA.split(";\n"):
            db.execute(statement)
        _set(db, "format", FORMAT)
    db.execute("COMMIT")


def _remove(db: sqlite3.Connection, first: int, last: int) -> None:
    rows = db.execute("SELECT id, body FROM documents WHERE entry BETWEEN ? AND ?", (first, last)).fetchall()
    for number, body in rows:
        terms = " ".join(terms_of(body))
        db.execute("INSERT INTO terms (terms, rowid, body) VALUES ('delete', ?, ?)", (number, terms))
    if rows:
        db.execute("DELETE FROM documents WHERE entry BETWEEN ? AND ?", (first, last))
        _set(db, "untidy", -1)


def _purge(db: sqlite3.Connection) -> bool:
    """Merge away some deleted terms; return whether there are more."""
    unmerged = _get(db, "untidy", 0)
    if not unmerged:
        return False
    db.execute("BEGIN IMMEDIATE")
    before = db.total_changes
    db.execute("INSERT INTO terms (terms, rank) VALUES ('merge', ?)", (unmerged * _MERGE_PAGES,))
    finished = db.total_changes - before < 2  # noqa: PLR2004 - FTS5 says so when nothing was left to merge
    _set(db, "untidy", 0 if finished else 1)
    db.execute("COMMIT")
    if finished:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return not finished


def _is_corrupt(error: Exception) -> bool:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return isinstance(error, sqlite3.DatabaseError)  # raised by us, not by SQLite
    return code & 0xFF in _CORRUPT_CODES or str(error).startswith(_CORRUPT_MESSAGES)


def _inode_of(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def _format_of(db: sqlite3.Connection) -> str:
    if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchall():
        return ""
    return str(_get(db, "format", ""))


def _get(db: sqlite3.Connection, name: str, default: T) -> T:
    rows = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchall()
    return rows[0][0] if rows else default


def _set(db: sqlite3.Connection, name: str, value: str | int) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def _mark_of(db: sqlite3.Connection) -> Mark:
    return Mark(_get(db, "pos", 0), _get(db, "seq", 0), _get(db, "note", ""))


_JOURNAL_ROWS = 256


@transaction
def _read_after(mark: Mark) -> Statements[tuple[list[EntryRange], Mark] | None]:
    """Return the changes after a mark, and the mark after them; None if the mark is from another database.

    SQLite numbers journal rows in commit order, so everything new comes after the mark.
    """
    rows = yield (
        "SELECT pos, session_no, kind, first_seq, last_seq FROM journal WHERE pos >= ?"
        f" ORDER BY pos LIMIT {_JOURNAL_ROWS}",
        (mark.pos,),
    )
    rows_after = [JournalRow(*row) for row in rows]
    if mark.pos:
        if not rows_after or mark.fingerprint != _fingerprint(rows_after[0]):
            return None
        rows_after[:1] = [rows_after[0]._replace(done=mark.seq)] if mark.seq < rows_after[0].last else []
    if not rows_after:
        return [], mark
    progress = yield from read_changes(rows_after)
    is_partial = progress.rows < len(rows_after)
    row = rows_after[progress.rows if is_partial else -1]
    return progress.changes, Mark(row.pos, progress.done if is_partial else row.last, _fingerprint(row))


def _fingerprint(row: JournalRow) -> str:
    return f"{row.session} {row.kind} {row.first} {row.last}"


MICROS = 1_000_000
# The number of a document encodes its time.
PER_SECOND = 64
NEWEST_WINDOW = 3_000


def find_candidates(db: sqlite3.Connection, query: IndexQuery, after: Candidate | None, limit: int) -> list[Candidate]:
    exact = [condition for condition in query.conditions if not condition.prefix]
    if query.sessions:
        exact.append(any_of(map(Tag.SESSION.term, query.sessions)))
    prefixes = [condition for condition in query.conditions if condition.prefix]
    bounds, post_filters = Filter.all(_bounds(query, after, _get(db, "late", 0))), Filter.all(_post_filters(query))
    columns = f"d.id, d.entry, d.page, d.at{f', substr(d.body, 1, {BODY_CHARS})' if query.bodies else ''}"
    if prefixes:
        near = _document_numbers(exact, bounds)
        floor = db.execute(
            f"SELECT n.rowid {near.sql} ORDER BY n.rowid DESC LIMIT 1 OFFSET {NEWEST_WINDOW}", near.values
        ).fetchall()
        near = Filter(f"{near.sql} AND n.rowid > ?", (*near.values, *floor[0])) if floor else near
        found = _select(db, columns, near, post_filters, limit)
        if len(found) >= limit or not floor:
            return found
        exact.append(max(prefixes, key=lambda condition: sum(map(len, condition.options[0].terms))))
    return _select(db, columns, _document_numbers(exact, bounds), post_filters, limit)


_SYNTAX = TermSyntax(" AND ", " OR ", '"', " *")


def _document_numbers(conditions: Sequence[Condition], bounds: Filter) -> Filter:
    if conditions:
        match = _SYNTAX.write(conditions)
        return Filter(f"FROM terms n WHERE n.terms MATCH ? AND {bounds.sql}", (match, *bounds.values))
    return Filter(f"FROM documents n WHERE {bounds.sql}", bounds.values)


def _select(db: sqlite3.Connection, columns: str, numbers: Filter, post_filters: Filter, limit: int) -> list[Candidate]:
    """A number without a document means that the file is corrupt."""
    source, _, where = numbers.sql.partition(" WHERE ")
    rows = db.execute(
        f"SELECT {columns} {source} LEFT JOIN documents d ON d.id = n.rowid"
        f" WHERE {where} AND (d.id IS NULL OR ({post_filters.sql})) ORDER BY n.rowid DESC LIMIT ?",
        (*numbers.values, *post_filters.values, limit),
    ).fetchall()
    if any(row[0] is None for row in rows):
        raise sqlite3.DatabaseError("terms and documents do not match")
    return [Candidate(*row) for row in rows]


def _bounds(query: IndexQuery, after: Candidate | None, late: int) -> Iterator[Filter]:
    """`late`: by how many seconds a number can be later than its document."""
    if after is not None:
        yield Filter("n.rowid < ?", (after.number,))
    if query.since is not None:
        yield Filter("n.rowid >= ?", (query.since // MICROS * PER_SECOND,))
    if query.until is not None:
        yield Filter("n.rowid < ?", ((query.until // MICROS + 1 + late) * PER_SECOND,))


def _post_filters(query: IndexQuery) -> Iterator[Filter]:
    """Return the conditions that numbers and terms alone cannot decide."""
    yield from Filter.given({"d.at >= ?": query.since, "d.at < ?": query.until})
    yield from needle_filters(query, "instr(d.body, ?)")
