"""A disk that fails the n-th write or flush, and knows what a power failure would leave of each file.

SQLite's own code runs on it, through a VFS of the package apsw; a stand-in for `sqlite3` connects the store to it.
"""

import random
import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Self

import apsw
import pytest

from palaver.db.high_water import HighWater
from palaver.db.sqlite import MarkFile, SqliteDatabase
from palaver.db.transaction import Row
from tests.store.interruptions import try_again

__all__ = ["DiskError", "FailingDisk", "failing_every", "installed"]

_URI_FLAGS = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


class DiskError(Enum):
    """How a call fails: which kind of call, and what SQLite calls it."""

    WRITE = ("write", apsw.IOError, apsw.SQLITE_IOERR_WRITE)
    FULL = ("write", apsw.FullError, apsw.SQLITE_FULL)
    FLUSH = ("flush", apsw.IOError, apsw.SQLITE_IOERR_FSYNC)

    @property
    def call(self) -> str:
        return self.value[0]

    def error(self) -> apsw.Error:
        _, kind, code = self.value
        error: Any = kind(f"made to fail: {self.name}")
        error.result, error.extendedresult = code & 0xFF, code
        return error


@dataclass
class _Content:
    """What of a file is safe, and what was written since its last flush."""

    safe: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list[tuple[int, bytes | None]])
    """Bytes at an offset; none, where the file was cut."""

    def flush(self) -> None:
        self.safe, self.pending = self._with(self.pending), []

    def after_power_failure(self, chance: random.Random) -> bytes:
        """Of what was not flushed, each write is there, or not, or in part."""
        survivors: list[tuple[int, bytes | None]] = []
        for offset, data in self.pending:
            fate = chance.choice(("there", "lost", "torn"))
            if fate == "torn" and data:
                survivors.append((offset, data[: chance.randrange(len(data))]))
            elif fate != "lost":
                survivors.append((offset, data))
        return self._with(survivors)

    def _with(self, writes: Sequence[tuple[int, bytes | None]]) -> bytes:
        content = bytearray(self.safe)
        for offset, data in writes:
            content.extend(bytes(max(0, offset - len(content))))
            if data is None:
                del content[offset:]
            else:
                content[offset : offset + len(data)] = data
        return bytes(content)


@dataclass
class _Plan:
    error: DiskError
    left: int
    """Calls of its kind that pass before one fails."""
    for_good: bool

    def fails(self, call: str) -> bool:
        if call != self.error.call:
            return False
        self.left -= 1
        return self.left == -1 or (self.for_good and self.left < 0)


class FailingDisk(apsw.VFS):
    """Passes everything on to the real disk, until a call is to fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        """`write` or `flush`, in order."""
        self.on_call: Callable[[], None] = lambda: None
        """Called before each of them."""
        self._plan: _Plan | None = None
        self._every = self._gap = self._passed = 0
        self.opened_logs: set[str] = set()
        """Logs of stores that were opened, whose calls `fail_every` counts."""
        self.failures = 0
        """How many calls failed of those that `fail_every` counts."""
        self._contents: dict[str, _Content] = {}
        self.name = f"failing-{id(self)}"
        super().__init__(self.name, "")

    def fail(self, error: DiskError, after: int, *, for_good: bool = False) -> None:
        """Let so many calls of its kind pass, and fail the next; `for_good`, all that follow."""
        self._plan = _Plan(error, after, for_good)

    def fail_every(self, n: int) -> None:
        """Fail each n-th write or flush of the log of a store, once it is open.

        After a failure twice as many pass, until something is committed. So a large commit completes, too.
        """
        self._every = self._gap = n

    def heal(self) -> bool:
        """Nothing fails any more; gives whether something has."""
        plan, self._plan = self._plan, None
        return plan is not None and plan.left < 0

    def leave_behind(self, folder: Path, chance: random.Random | None = None) -> None:
        """Write to a folder what a power failure would leave now: what was flushed, and by chance some of the rest."""
        for name, content in list(self._contents.items()):  # another thread can open a file meanwhile
            (folder / Path(name).name).write_bytes(content.after_power_failure(chance) if chance else content.safe)

    def content(self, name: str) -> _Content:
        if name not in self._contents:
            path = Path(name)
            self._contents[name] = _Content(path.read_bytes() if path.exists() else b"")
        return self._contents[name]

    def count(self, call: str, name: str) -> None:
        self.calls.append(call)
        self.on_call()
        if self._every and name in self.opened_logs:
            self._fail_nth(call)
        if self._plan and self._plan.fails(call):
            raise self._plan.error.error()

    def _fail_nth(self, call: str) -> None:
        self._passed += 1
        if self._passed >= self._gap:
            self._passed, self._gap = 0, self._gap * 2
            self.failures += 1
            raise (DiskError.FLUSH if call == "flush" else DiskError.WRITE).error()

    def note_commit(self) -> None:
        self._gap = self._every

    # What SQLite calls

    def xOpen(self, name: "str | apsw.URIFilename | None", flags: list[int]) -> "_File":  # noqa: N802
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self._contents.pop(filename, None)


class _File(apsw.VFSFile):
    def __init__(self, disk: FailingDisk, name: "str | apsw.URIFilename | None", flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = path or ""
        self._content = disk.content(path) if path else _Content()
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.count("write", self._name)
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]
        self._content.pending.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.count("write", self._name)
        super().xTruncate(newsize)
        self._content.pending.append((newsize, None))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.count("flush", self._name)
        super().xSync(flags)
        self._content.flush()


# What the store calls


_KINDS: dict[type[apsw.Error], type[sqlite3.Error]] = {
    apsw.ConstraintError: sqlite3.IntegrityError,
    apsw.CorruptError: sqlite3.DatabaseError,
    apsw.NotADBError: sqlite3.DatabaseError,
}


@contextmanager
def _as_sqlite3() -> Generator[None]:
    try:
        yield
    except apsw.Error as error:
        translated = _KINDS.get(type(error), sqlite3.OperationalError)(str(error))
        translated.sqlite_errorcode = getattr(error, "extendedresult", apsw.SQLITE_ERROR)
        raise translated from error


class _Rows:
    """The rows of a statement that was run to its end."""

    def __init__(self, connection: "_Connection") -> None:
        self._connection = connection
        self._rows: Iterator[Row] = iter(())

    def execute(self, sql: str, values: Sequence[Any] = ()) -> "_Rows":
        with _as_sqlite3():
            self._rows = iter(list(self._connection.inner.execute(sql, tuple(values))))
        return self

    def executemany(self, sql: str, values: Iterator[Sequence[Any]]) -> "_Rows":
        with _as_sqlite3():
            self._rows = iter(list(self._connection.inner.executemany(sql, values)))
        return self

    def __iter__(self) -> Iterator[Row]:
        return self._rows

    def fetchall(self) -> list[Row]:
        return list(self._rows)

    def fetchone(self) -> Row | None:
        return next(self._rows, None)

    def close(self) -> None:
        self._rows = iter(())


class _Connection:
    """As much of `sqlite3.Connection` as the store uses."""

    text_factory: Any = str

    def __init__(self, name: str, disk: FailingDisk) -> None:
        with _as_sqlite3():
            self.inner: Any = apsw.Connection(name, flags=_URI_FLAGS, vfs=disk.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.commit()

    @property
    def in_transaction(self) -> bool:
        return self.inner.in_transaction

    @property
    def total_changes(self) -> int:
        return self.inner.total_changes()

    def cursor(self) -> _Rows:
        return _Rows(self)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> _Rows:
        return _Rows(self).execute(sql, values)

    def executemany(self, sql: str, values: Iterator[Sequence[Any]]) -> _Rows:
        return _Rows(self).executemany(sql, values)

    def executescript(self, sql: str) -> None:
        self.execute(sql)

    def commit(self) -> None:
        """Each statement commits itself, unless it is in a transaction."""
        if self.in_transaction:
            self.execute("COMMIT")

    def set_progress_handler(self, handler: Callable[[], bool] | None, steps: int) -> None:
        self.inner.set_progress_handler(handler, steps)

    def backup(self, target: "_Connection") -> None:
        with _as_sqlite3(), target.inner.backup("main", self.inner, "main") as backup:
            backup.step()

    def close(self) -> None:
        with suppress(apsw.IOError, apsw.FullError):  # the checkpoint of the last one to close, which SQLite forgives
            self.inner.close()


@contextmanager
def failing_every(n: int) -> Generator[FailingDisk]:
    """Each n-th write or flush of a log fails below a test, and every transaction is tried again.

    `PALAVER_FAIL_DISK=50 make test ARGS=tests/store` runs the suite like that.
    """
    with installed() as disk, pytest.MonkeyPatch.context() as patch:
        keep_mark, write = SqliteDatabase.keep_mark, MarkFile.write

        def keep_mark_and_count(database: SqliteDatabase, reached: HighWater) -> None:
            keep_mark(database, reached)
            disk.opened_logs.add(f"{database.path}-wal")

        def write_and_note(mark: MarkFile, reached: HighWater) -> None:
            write(mark, reached)
            disk.note_commit()

        patch.setattr(SqliteDatabase, "keep_mark", keep_mark_and_count)
        patch.setattr(MarkFile, "write", write_and_note)  # it is written after each commit
        disk.fail_every(n)
        try_again(patch)
        yield disk


@contextmanager
def installed() -> Generator[FailingDisk]:
    """Everything that is opened meanwhile lies on a failing disk."""
    disk = FailingDisk()

    def connect(name: str | Path, **_: object) -> _Connection:
        return _Connection(str(name), disk)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        yield disk
