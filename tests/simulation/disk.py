"""The disk under the simulated database: it fails, fills up, and loses power in the middle of a write."""

import random
import shutil
import sqlite3
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple, TypeVar, cast

from palaver.db.file_lock import is_transient
from palaver.db.sqlite import connect, run_statements
from palaver.db.transaction import Transaction
from palaver.model.errors import StoreError, StoreUnavailable
from tests.store.empty import empty_store

__all__ = ["NOTHING", "Disk", "Mark"]

T = TypeVar("T")


class _Fault(Enum):
    """What a write can meet."""

    IO = (sqlite3.SQLITE_IOERR, "disk I/O error")
    FULL = (sqlite3.SQLITE_FULL, "database or disk is full")


class Mark(NamedTuple):
    """How far something was written."""

    commits: int = 0
    bytes: int = 0
    """Of the log."""


NOTHING = Mark()
_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES, _PAGE_BYTES = 32, 24, 2048


def _storage_error(fault: _Fault) -> sqlite3.OperationalError:
    """The error as SQLite raises it."""
    code, words = fault.value
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


class _FailingCursor:
    """Stands in for a connection and its cursor, until a statement fails."""

    def __init__(self, db: sqlite3.Connection, statements: int) -> None:
        self._db = db
        self._left = statements

    def cursor(self) -> "_FailingCursor":
        return self

    def execute(self, sql: str, values: Sequence[Any]) -> sqlite3.Cursor:
        self._count()
        return self._db.execute(sql, values)

    def executemany(self, sql: str, values: Sequence[Any]) -> sqlite3.Cursor:
        self._count()
        return self._db.executemany(sql, values)

    def close(self) -> None:
        """Each statement has a cursor of its own."""

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _storage_error(_Fault.IO)


class Disk:
    """A file with its log. SQLite's own durability is off: what a power failure leaves is decided here."""

    def __init__(self) -> None:
        self._folder = mkdtemp(prefix="palaver-simulation-")
        self._path = Path(self._folder) / "palaver.db"
        self._log = self._path.with_name(f"{self._path.name}-wal")
        self._path.write_bytes(empty_store().serialize())
        self.db = self._open()
        self.is_full = False
        """Nothing can be written; what is there can be read."""
        self.mark = self._safe = NOTHING

    def __del__(self) -> None:
        """With the run that it belongs to."""
        self.db.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def keep(self, mark: Mark) -> None:
        """So far somebody was told of what is written: from now on it has to be there."""
        self._safe = max(self._safe, mark)

    def run(
        self, work: Transaction[T], notified: set[str], *, reads: bool = False, fails_after: int | None = None
    ) -> T:
        """One transaction. With `fails_after`, it meets an error after so many statements, or at its commit."""
        before = self.db.total_changes
        db: Any = self.db if fails_after is None else _FailingCursor(self.db, fails_after)
        self.db.execute("BEGIN")
        try:
            result = run_statements(cast("sqlite3.Connection", db), iter(work), notified)
            writes = not reads and self.db.total_changes != before
            if writes:
                self._flush(fails=fails_after is not None)
        except BaseException as error:
            self.db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise (StoreUnavailable if is_transient(error) else StoreError)(f"refused: {error}") from error
            raise
        self.db.execute("ROLLBACK" if reads else "COMMIT")
        if writes:
            self.mark = Mark(self.mark.commits + 1, self._log.stat().st_size)
        return result

    def _flush(self, *, fails: bool) -> None:
        if self.is_full or fails:
            raise _storage_error(_Fault.FULL if self.is_full else _Fault.IO)
        self.db.execute(f"PRAGMA user_version = {self.mark.commits + 1}")

    def checkpoint(self) -> None:
        """Copy the log into the file, and begin it anew. It is flushed first, so all of it is safe."""
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.mark = self._safe = Mark(self.mark.commits)

    def lose_power(self, chance: random.Random) -> str:
        """Start again with what is found: the log up to some byte after what has to be there, and maybe rubbish.

        A write that is cut off in the middle of its page is torn.
        """
        file, log = self._path.read_bytes(), self._log.read_bytes()
        kept = chance.choice((self._safe.bytes, chance.randint(self._safe.bytes, len(log)), len(log)))
        lost = len(log) - kept
        is_torn = (kept - _LOG_HEADER_BYTES) % (_FRAME_HEADER_BYTES + _PAGE_BYTES) > 0
        rest = chance.choice((b"", bytes(lost), chance.randbytes(lost)))
        self.db.close()
        self._path.write_bytes(file)
        self._log.write_bytes(log[:kept] + rest)
        self.db = self._open()
        return self._recovered(lost, "torn" if is_torn else "whole")

    def _recovered(self, lost: int, last: str) -> str:
        found = self.db.execute("PRAGMA integrity_check").fetchone()[0]
        (commits,) = self.db.execute("PRAGMA user_version").fetchone()
        if found != "ok" or not self._safe.commits <= commits <= self.mark.commits:
            raise AssertionError(f"recovered {commits} commits of {self._safe.commits} to {self.mark.commits}: {found}")
        dropped, self.mark = self.mark.commits - commits, Mark(commits)
        self.checkpoint()
        return f"loses {lost} bytes and {dropped} commits; the last write is {last}"

    def _open(self) -> sqlite3.Connection:
        db = connect(self._path)
        db.execute("PRAGMA synchronous = OFF")
        return db
