"""The file of a SQLite search index. It can be lost or spoiled at any time; then it begins anew by itself."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from palaver.domain.errors import StoreUnavailable
from palaver.stores.disk import may_write
from palaver.stores.search.documents import FORMAT, Candidate, Document, IndexLost, Wanted, terms_of
from palaver.stores.search.sqlite_lookup import MICROS, PER_SECOND, find_candidates
from palaver.stores.search.truth import Change, documents_in
from palaver.stores.sqlite import use_write_ahead_log

__all__ = ["Batch", "IndexFile", "Mark"]

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
