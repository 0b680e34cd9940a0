"""The index of a SQLite store: an FTS5 table in a file of its own, on a thread of its own."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from palaver.db.file_lock import may_write
from palaver.db.sqlite import SqliteDatabase, use_write_ahead_log
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import StoreUnavailable
from palaver.store.conversations.visibility import Filter
from palaver.store.search.documents import (
    FORMAT,
    Candidate,
    Document,
    IndexLost,
    Need,
    Wanted,
    all_of,
    session_tag,
    terms_of,
)
from palaver.store.search.journal import Change, Noted, Progress, changes_of, documents_in

__all__ = [
    "MICROS",
    "PER_SECOND",
    "Batch",
    "IndexFile",
    "Mark",
    "SqliteIndex",
    "find_candidates",
]

T = TypeVar("T")

# The body stays beside the terms: phrases are looked up in it, and what is removed must be known term by term.
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE documents (id INTEGER PRIMARY KEY, entry INTEGER, page INTEGER, at INTEGER, body TEXT);
CREATE UNIQUE INDEX documents_by_entry ON documents (entry, page);
CREATE VIRTUAL TABLE terms USING fts5 (
  body, content='', columnsize=0, detail=none, tokenize="ascii tokenchars '_'"
);
"""
# What tells that the file itself is spoiled, and not that it is locked, the disk full or the question bad.
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CONSTRAINT})
_DAMAGE_SAID = ("no such table", "no such column", "vtable constructor failed", "malformed")
_STEP = 500


class Mark(NamedTuple):
    """How far the journal is read: the position, the seq within it, and what stood there."""

    pos: int = 0
    seq: int = 0
    note: str = ""


class Batch(NamedTuple):
    after: Mark
    until: Mark
    changes: Sequence[Change]


class IndexFile:
    """Used from one thread. Other processes may use the same file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        self.generation = 0
        """Another with every opening of the file."""
        self._full: dict[int, int] = {}

    # Life

    def close(self) -> None:
        if self._db:
            self._db.close()
            self._db = None

    def clear(self) -> None:
        """Begin anew."""
        self.close()
        for ending in ("", "-wal", "-shm", "-journal"):
            Path(f"{self._path}{ending}").unlink(missing_ok=True)

    def _use(self, step: Callable[[sqlite3.Connection], T]) -> T:
        """Do it; if the file turns out to be spoiled, throw it away."""
        try:
            db = self._open()
            try:
                return step(db)
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
        except (sqlite3.DatabaseError, OSError) as error:
            self.close()
            if not _is_damage(error):
                raise StoreUnavailable(f"the search index {self._path} cannot be used now: {error}") from error
            self.clear()
            raise IndexLost(str(error)) from error

    def _open(self) -> sqlite3.Connection:
        """The connection to the file that is there now, which need not be the one that was there before."""
        if self._db and self._inode == _inode_of(self._path):
            return self._db
        self.close()
        self.generation += 1
        self._full.clear()
        if not self._path.exists() and may_write(self._path.parent):
            self._path.touch(mode=0o600)
        # Where nothing may be written, the index is made in memory for as long as it is open.
        kept = may_write(self._path) and may_write(self._path.parent)
        name = self._path if kept else ":memory:"
        self._db = db = sqlite3.connect(name, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA busy_timeout = 20000")
        use_write_ahead_log(db)
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA temp_store = MEMORY")
        self._make(db)
        self._inode = _inode_of(self._path)
        return db

    def _make(self, db: sqlite3.Connection) -> None:
        if _format_of(db) == FORMAT:
            return
        db.execute("BEGIN IMMEDIATE")
        if _format_of(db) != FORMAT:
            if db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall():
                raise sqlite3.DatabaseError("the file has another format")
            for statement in _SCHEMA.split(";\n"):
                db.execute(statement)
            db.execute("INSERT INTO meta VALUES ('format', ?)", (FORMAT,))
        db.execute("COMMIT")

    # Writing

    def mark(self) -> Mark:
        return self._use(_mark_of)

    def take(self, batch: Batch) -> int:
        """Index a batch; nothing if the file has moved on meanwhile, by another process."""
        documents = sorted(documents_in(batch.changes), key=lambda document: document.at)
        return self._use(lambda db: self._write(db, batch, documents))

    def _write(self, db: sqlite3.Connection, batch: Batch, documents: Sequence[Document]) -> int:
        db.execute("BEGIN IMMEDIATE")
        if _mark_of(db) != batch.after:
            return 0
        for change in batch.changes:
            self._remove(db, change.first, change.last)
        for document in documents:
            number = self._place(db, document.at)
            db.execute("INSERT INTO documents VALUES (?, ?, ?, ?, ?)", (number, *document))
            db.execute("INSERT INTO terms (rowid, body) VALUES (?, ?)", (number, " ".join(terms_of(document.body))))
        _set(db, "pos", batch.until.pos)
        _set(db, "seq", batch.until.seq)
        _set(db, "note", batch.until.note)
        db.execute("COMMIT")
        return sum(len(change.entries) for change in batch.changes)

    def _remove(self, db: sqlite3.Connection, first: int, last: int) -> None:
        rows = db.execute("SELECT id, body FROM documents WHERE entry BETWEEN ? AND ?", (first, last)).fetchall()
        for number, body in rows:
            terms = " ".join(terms_of(body))
            db.execute("INSERT INTO terms (terms, rowid, body) VALUES ('delete', ?, ?)", (number, terms))
        if rows:
            db.execute("DELETE FROM documents WHERE entry BETWEEN ? AND ?", (first, last))
            _set(db, "untidy", -1)

    def _place(self, db: sqlite3.Connection, at: int) -> int:
        """A free number in its second, or in the next that has one: so documents stand in the order of their times."""
        wanted = second = at // MICROS
        while True:
            second = self._full.get(second, second)
            end = (second + 1) * PER_SECOND
            last = db.execute("SELECT max(id) FROM documents WHERE id < ?", (end,)).fetchone()[0]
            number = second * PER_SECOND if last is None else max(second * PER_SECOND, last + 1)
            if number < end:
                break
            self._full[second] = second + 1
            second += 1
        if second > wanted:
            self._full[wanted] = second
            self._note_late(db, second - wanted)
        return number

    def _note_late(self, db: sqlite3.Connection, seconds: int) -> None:
        """How far behind its time a document may stand."""
        if seconds > _get(db, "late", 0):
            _set(db, "late", seconds)

    def tidy(self) -> bool:
        """One step of taking removed words out of the file itself; whether there is more to do."""
        return self._use(self._tidy)

    def _tidy(self, db: sqlite3.Connection) -> bool:
        untidy = _get(db, "untidy", 0)
        if not untidy:
            return False
        db.execute("BEGIN IMMEDIATE")
        before = db.total_changes
        db.execute("INSERT INTO terms (terms, rank) VALUES ('merge', ?)", (untidy * _STEP,))
        finished = db.total_changes - before < 2  # noqa: PLR2004 - FTS5 says so when nothing was left to merge
        _set(db, "untidy", 0 if finished else 1)
        db.execute("COMMIT")
        if finished:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return not finished

    # Reading

    def candidates(
        self, wanted: Wanted, after: Candidate | None, limit: int, *, bodies: bool, of: int
    ) -> list[Candidate]:
        """Of this generation of the file and no other."""

        def read(db: sqlite3.Connection) -> list[Candidate]:
            if self.generation != of:
                raise IndexLost("the file was replaced")
            return find_candidates(db, wanted, after, limit, bodies=bodies, late=_get(db, "late", 0))

        return self._use(read)

    def entries(self, after: int, limit: int) -> list[int]:
        sql = "SELECT DISTINCT entry FROM documents WHERE entry > ? ORDER BY entry LIMIT ?"
        return [row[0] for row in self._use(lambda db: db.execute(sql, (after, limit)).fetchall())]


def _is_damage(error: Exception) -> bool:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return isinstance(error, sqlite3.DatabaseError)  # not said by SQLite, but by whoever read the file
    return code & 0xFF in _DAMAGE or str(error).startswith(_DAMAGE_SAID)


def _inode_of(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def _format_of(db: sqlite3.Connection) -> str:
    if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchall():
        return ""
    return str(_get(db, "format", ""))


def _get(db: sqlite3.Connection, name: str, otherwise: T) -> T:
    rows = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchall()
    return rows[0][0] if rows else otherwise


def _set(db: sqlite3.Connection, name: str, value: str | int) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def _mark_of(db: sqlite3.Connection) -> Mark:
    return Mark(_get(db, "pos", 0), _get(db, "seq", 0), _get(db, "note", ""))


_NOTES = 256


class _Read(NamedTuple):
    """What the journal says after a mark: nothing, if the mark is from another database."""

    progress: Progress | None
    mark: Mark


class SqliteIndex:
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._file = IndexFile(database.path.with_name(database.path.name + ".search"))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="palaver-search")
        self._complete = 0
        self._one_at_a_time = asyncio.Lock()

    async def catch_up(self, *, tidy: bool) -> int:
        async with self._one_at_a_time:
            entries = await self._read_on()
            self._complete = await self._run(lambda: self._file.generation)
        while tidy and await self._run(self._file.tidy):
            pass  # small steps, so that a search need not wait for all of them
        return entries

    async def _read_on(self) -> int:
        """Read the journal to its end."""
        entries = 0
        while True:
            mark = await self._run(self._file.mark)
            read = await self._database.read(_after(mark))
            if read.progress is None:
                await self._run(self._file.clear)
            elif read.mark == mark:
                return entries
            else:
                batch = Batch(mark, read.mark, read.progress.changes)
                entries += await self._run(partial(self._file.take, batch))

    async def candidates(self, wanted: Wanted, after: Candidate | None, limit: int, *, bodies: bool) -> list[Candidate]:
        complete = self._complete
        return await self._run(lambda: self._file.candidates(wanted, after, limit, bodies=bodies, of=complete))

    async def entries(self, after: int, limit: int) -> list[int]:
        return await self._run(lambda: self._file.entries(after, limit))

    async def clear(self) -> None:
        await self._run(self._file.clear)

    async def close(self) -> None:
        await self._run(self._file.close)
        self._thread.shutdown()

    async def _run(self, step: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, step)


@transaction
def _after(mark: Mark) -> Statements[_Read]:
    """Positions are given in the order of commits, so what was committed later stands behind the mark."""
    rows = yield (
        f"SELECT pos, session_no, kind, first_seq, last_seq FROM journal WHERE pos >= ? ORDER BY pos LIMIT {_NOTES}",
        (mark.pos,),
    )
    noted = [Noted(*row) for row in rows]
    if mark.pos and (not noted or mark.note != _note(noted[0])):
        return _Read(None, mark)
    if mark.pos:
        noted[:1] = [noted[0]._replace(done=mark.seq)] if mark.seq < noted[0].last else []
    if not noted:
        return _Read(Progress([], 0), mark)
    progress = yield from changes_of(noted)
    if progress.rows < len(noted):
        row = noted[progress.rows]
        return _Read(progress, Mark(row.pos, progress.done, _note(row)))
    return _Read(progress, Mark(noted[-1].pos, noted[-1].last, _note(noted[-1])))


def _note(row: Noted) -> str:
    return f"{row.session} {row.kind} {row.first} {row.last}"


MICROS = 1_000_000
# The number of a document says when it was.
PER_SECOND = 64
_WINDOW = 3_000
_BEGINNING = 16_384


def find_candidates(
    db: sqlite3.Connection, wanted: Wanted, after: Candidate | None, limit: int, *, bodies: bool, late: int
) -> list[Candidate]:
    """`late` is how many seconds behind its time a document may stand."""
    words = [need for need in wanted.needs if not need.prefix]
    beginnings = [need for need in wanted.needs if need.prefix]
    bounds, tests = all_of(_bounds(wanted, after, late)), all_of(_tests(wanted))
    columns = f"d.id, d.entry, d.page, d.at{f', substr(d.body, 1, {_BEGINNING})' if bodies else ''}"
    if beginnings:
        near = _numbers(_match(words, wanted), bounds)
        floor = db.execute(
            f"SELECT n.rowid {near.sql} ORDER BY n.rowid DESC LIMIT 1 OFFSET {_WINDOW}", near.values
        ).fetchall()
        near = Filter(f"{near.sql} AND n.rowid > ?", (*near.values, *floor[0])) if floor else near
        found = _select(db, columns, near, tests, limit)
        if len(found) >= limit or not floor:
            return found
        words.append(max(beginnings, key=_length))
    return _select(db, columns, _numbers(_match(words, wanted), bounds), tests, limit)


def _numbers(match: str, bounds: Filter) -> Filter:
    """The numbers of documents that fit."""
    if match:
        return Filter(f"FROM terms n WHERE n.terms MATCH ? AND {bounds.sql}", (match, *bounds.values))
    return Filter(f"FROM documents n WHERE {bounds.sql}", bounds.values)


def _select(db: sqlite3.Connection, columns: str, numbers: Filter, tests: Filter, limit: int) -> list[Candidate]:
    """A number without a document says that the file is spoiled."""
    source, _, where = numbers.sql.partition(" WHERE ")
    rows = db.execute(
        f"SELECT {columns} {source} LEFT JOIN documents d ON d.id = n.rowid"
        f" WHERE {where} AND (d.id IS NULL OR ({tests.sql})) ORDER BY n.rowid DESC LIMIT ?",
        (*numbers.values, *tests.values, limit),
    ).fetchall()
    if any(row[0] is None for row in rows):
        raise sqlite3.DatabaseError("the terms and the documents do not fit together")
    return [Candidate(*row) for row in rows]


def _bounds(wanted: Wanted, after: Candidate | None, late: int) -> Iterator[Filter]:
    if after is not None:
        yield Filter("n.rowid < ?", (after.number,))
    if wanted.since is not None:
        yield Filter("n.rowid >= ?", (wanted.since // MICROS * PER_SECOND,))
    if wanted.until is not None:
        yield Filter("n.rowid < ?", ((wanted.until // MICROS + 1 + late) * PER_SECOND,))


def _tests(wanted: Wanted) -> Iterator[Filter]:
    """What the numbers and terms alone do not decide."""
    if wanted.since is not None:
        yield Filter("d.at >= ?", (wanted.since,))
    if wanted.until is not None:
        yield Filter("d.at < ?", (wanted.until,))
    for need in wanted.needs:
        if need.needles:
            yield Filter(f"({' OR '.join(['instr(d.body, ?)'] * len(need.needles))})", need.needles)


def _match(needs: Sequence[Need], wanted: Wanted) -> str:
    sessions = [" OR ".join(_quoted(session_tag(each)) for each in wanted.sessions)] if wanted.sessions else []
    tags = [" OR ".join(map(_quoted, group)) for group in wanted.tags]
    return " AND ".join(f"({part})" for part in (*map(_option, needs), *tags, *sessions))


def _option(need: Need) -> str:
    star = " *" if need.prefix else ""
    return " OR ".join(f"({' AND '.join(map(_quoted, terms))}{star})" for terms in need.options)


def _quoted(term: str) -> str:
    return f'"{term}"'


def _length(need: Need) -> int:
    return sum(map(len, need.options[0]))
