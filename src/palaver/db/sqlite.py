"""SQLite: one writer thread that puts concurrent work into one commit, and readers that never wait for it."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, NamedTuple, TypeVar

from palaver.db.file_lock import FileLock, is_transient, is_writable
from palaver.db.notifications import Notifier
from palaver.db.transaction import (
    ConstraintViolated,
    Notify,
    Row,
    Statements,
    Transaction,
    fail_statement,
    storable,
)
from palaver.model.errors import StoreError, StoreUnavailable

__all__ = [
    "SqliteDatabase",
    "connect",
    "run_statements",
    "use_write_ahead_log",
]

T = TypeVar("T")

_LARGEST_BATCH = 256
_READERS = 3
_LONG_LOG, _LONGEST_LOG = 1024 * 1024, 16 * 1024 * 1024
"""Bytes. What the file has beyond the longest is given up when the log begins anew."""
_COPY_EVERY = 128
"""Batches that wrote something."""
_LITTLE = 4096
"""Pages."""
_LARGE_BATCH = 32
"""So many pieces of work count as a batch of their own."""
_LOOK_EVERY = 0.1
"""Seconds."""
_PATIENTLY = 10_000
"""Milliseconds for which whoever is in the way is waited for."""


def connect(path: Path, *, read_only: bool = False, new: bool = True) -> sqlite3.Connection:
    """A connection in our one way: transactions by hand, durable, checkpoints off the commit path.

    A file that does not exist is made, but where it may not be `new`.
    """
    name = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    if new and not read_only and not path.exists():
        path.touch(mode=0o600)  # conversations are nobody else's business; -wal and -shm follow the file
    mode = "ro" if read_only else "rwc" if new else "rw"
    uri = f"file:{name}?mode={mode}{'&immutable=1' if _stands_still(path) else ''}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=512)
    db.execute(f"PRAGMA busy_timeout = {_PATIENTLY}")
    db.execute("PRAGMA temp_store = MEMORY")
    if not read_only:
        db.execute("PRAGMA page_size = 2048")
        use_write_ahead_log(db)
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute(f"PRAGMA journal_size_limit = {_LONGEST_LOG}")
    return db


def _stands_still(path: Path) -> bool:
    """What we may not write, and has no log beside it, is read as it is: SQLite could not make its own beside."""
    return not (is_writable(path) and is_writable(path.parent)) and not path.with_name(path.name + "-wal").exists()


def use_write_ahead_log(db: sqlite3.Connection) -> None:
    """Two who open a new file at once get in each other's way here, and SQLite does not wait by itself."""
    for _ in range(_PATIENCE):
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            time.sleep(0.02)
        else:
            return
    db.execute("PRAGMA journal_mode = WAL")


_PATIENCE = 100


def run_statements(db: sqlite3.Connection, steps: Statements[T], notified: set[str]) -> T:
    """Run every statement of a transaction on this connection. Locks need no statement: there is one writer."""
    cursor = db.cursor()
    try:
        statement = next(steps)
        while True:
            rows: list[Row] = []
            try:
                if isinstance(statement, tuple):
                    sql, values = statement
                    if isinstance(values, tuple):
                        rows = cursor.execute(sql, storable(values)).fetchall()
                    else:
                        cursor.executemany(sql, map(storable, values))
                elif isinstance(statement, Notify):
                    notified.add(statement.topic)
            except sqlite3.Error as error:
                fail_statement(steps, _violation(error) or error)
            statement = steps.send(rows)
    except StopIteration as finished:
        return finished.value


def _violation(error: sqlite3.Error) -> ConstraintViolated | None:
    if not isinstance(error, sqlite3.IntegrityError):
        return None
    violated = ConstraintViolated(f"the database refused: {error}")
    violated.__cause__ = error
    return violated


def _refusal(problem: str, error: sqlite3.Error) -> StoreError:
    refusal = (StoreUnavailable if is_transient(error) else StoreError)(f"{problem}: {error}")
    refusal.__cause__ = error  # it is handed over, not raised here
    return refusal


def _unreachable(error: Exception) -> StoreUnavailable:
    refusal = StoreUnavailable(f"the database cannot be reached: {error}")
    refusal.__cause__ = error  # it is handed over, not raised here
    return refusal


class _Job(Generic[T]):
    """Transaction on its way through the writer thread and back to the loop that asked for it."""

    __slots__ = ("error", "future", "result", "work")

    def __init__(self, work: Transaction[T], future: "asyncio.Future[T]") -> None:
        self.work = work
        self.future = future
        self.error: BaseException | None = None
        self.result: T | None = None

    def run(self, db: sqlite3.Connection, notified: set[str]) -> bool:
        """Whether what it did may stay: it did not fail, and somebody still wants it."""
        if self.future.cancelled():
            return True
        self.error = None
        try:
            self.result = run_statements(db, iter(self.work), notified)
        except sqlite3.Error as error:
            self.error = _refusal("the database refused", error)
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the caller, not to this thread
            self.error = error
        return self.error is None and not self.future.cancelled()

    def settle(self) -> None:
        """On the loop's thread: hand the outcome over, unless nobody waits for it any more."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # pyright: ignore[reportArgumentType]


class _Stop: ...


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is, whatever its name; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class SqliteDatabase:
    """One SQLite file. Transaction that is cancelled before its commit is rolled back; otherwise it happened whole."""

    def __init__(self, path: Path, ownership: FileLock) -> None:
        self.path = path
        self._ownership = ownership
        self._loop = asyncio.get_running_loop()
        self._wakeups = Notifier()
        self._jobs: SimpleQueue[_Job[object] | _Stop] = SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="palaver-writer", daemon=True)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="palaver-reader")
        self._local = threading.local()
        self._open_readers: list[sqlite3.Connection] = []
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="palaver-checkpoint")
        self._db = connect(path)
        # Before anything is written, so that the log begins anew: who is killed again and again never comes to another.
        if ownership.is_taken and self._log_size() > _LONG_LOG:
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        self._file = _identity(path)
        self._look_again = 0.0
        self._batches = 0
        self._changes = 0
        self._copying: Future[_Copied] | None = None
        self._closed = False
        self._writer.start()

    def transact(self, work: Transaction[T]) -> "asyncio.Future[T]":
        self._refuse_when_closed()
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(work, future))  # pyright: ignore[reportArgumentType]
        return future

    async def read(self, work: Transaction[T]) -> T:
        self._refuse_when_closed()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    async def scrub(self) -> None:
        """Free space is overwritten as it becomes free; the log is emptied here, as soon as nobody reads it."""
        await asyncio.get_running_loop().run_in_executor(self._beside, self._checkpoint, "TRUNCATE")

    def listen(self, topic: str) -> AbstractContextManager[asyncio.Event]:
        return self._wakeups.listen(topic)

    def hear(self, topic: str, call: Callable[[], None]) -> AbstractContextManager[None]:
        return self._wakeups.hear(topic, call)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._jobs.put(_Stop())
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._writer.join)
        await loop.run_in_executor(None, self._readers.shutdown)
        await loop.run_in_executor(None, self._beside.shutdown)
        for reader in self._open_readers:
            reader.close()
        with suppress(sqlite3.OperationalError):  # of a file that may only be read
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._db.close()
        self._ownership.release()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StoreError("the store is closed")

    # Readers

    def _read(self, work: Transaction[T]) -> T:
        try:
            db = self._reader()
            db.execute("BEGIN")
            try:
                return run_statements(db, iter(work), set())
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise _refusal("the database cannot be read", error) from error
        except OSError as error:
            raise _unreachable(error) from error

    def _reader(self) -> sqlite3.Connection:
        if not hasattr(self._local, "db"):
            self._local.db = connect(self.path, read_only=True)
            self._open_readers.append(self._local.db)
        return self._local.db

    # The writer

    def _write(self) -> None:
        stopping = False
        while not stopping:
            batch, stopping = self._take()
            if batch:
                self._hand_over(batch, self._commit(batch))
                self._keep_log_short(len(batch))

    def _take(self) -> tuple[list[_Job[object]], bool]:
        """Everything that waits, at least one piece of work."""
        batch: list[_Job[object]] = []
        while not batch or (len(batch) < _LARGEST_BATCH and not self._jobs.empty()):
            job = self._jobs.get()
            if isinstance(job, _Stop):
                return batch, True
            batch.append(job)
        return batch, False

    def _commit(self, batch: Sequence[_Job[object]]) -> set[str]:
        """All the work in one transaction; the failure of one piece takes back nothing but itself."""
        notified: set[str] = set()
        try:
            self._refuse_when_gone()
            self._db.execute("BEGIN IMMEDIATE")
            for job in batch:
                if not job.run(self._db, notified):
                    self._start_over(batch, notified)
                    break
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._give_up(batch, _refusal("the database could not commit", error))
        except StoreUnavailable as error:
            self._give_up(batch, error)
        except Exception as error:  # noqa: BLE001 - whoever waits for this thread would wait for ever if it ended
            self._give_up(batch, _unreachable(error))
        return notified

    def _start_over(self, batch: Sequence[_Job[object]], notified: set[str]) -> None:
        """Failures are rare: only after one does each piece of work get a savepoint, to be taken back by itself."""
        self._roll_back()
        self._db.execute("BEGIN IMMEDIATE")
        for job in batch:
            self._db.execute("SAVEPOINT work")
            kept = job.run(self._db, notified)
            if not self._db.in_transaction:  # a full disk takes everything back
                raise StoreUnavailable(f"the transaction was lost: {job.error}")
            if not kept:
                self._db.execute("ROLLBACK TO work")
            self._db.execute("RELEASE work")

    def _refuse_when_gone(self) -> None:
        """Nothing may be acknowledged that would be written into a file nobody can find again.

        What is acknowledged between two looks is as if the file had been removed a moment later.
        """
        now = time.monotonic()
        if now >= self._look_again:
            self._refuse_another_file()
            self._look_again = now + _LOOK_EVERY

    def _refuse_another_file(self) -> None:
        if _identity(self.path) != self._file:
            raise StoreUnavailable(
                f"the database {self.path} was removed or replaced while it was open; stop the gateway, put the file "
                "back or remove it, and start again"
            )

    def _give_up(self, batch: Sequence[_Job[object]], error: StoreError) -> None:
        for job in batch:
            job.error = job.error or error
        with suppress(sqlite3.Error):  # what stays open is refused, and rolled back, before anything is committed
            self._roll_back()

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _hand_over(self, batch: Sequence[_Job[object]], notified: set[str]) -> None:
        """Wake the loop once for the whole batch."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle, batch, notified)

    def _settle(self, batch: Sequence[_Job[object]], notified: set[str]) -> None:
        for job in batch:
            job.settle()
        for topic in notified:
            self._wakeups.wake(topic)

    # The log

    def _keep_log_short(self, done: int) -> None:
        """A log that is written over from its start is quicker than one that grows.

        It begins anew with the commit that finds all of it in the file. Another thread brings it there, and what was
        written meanwhile follows here, if it is little. Never do two follow each other at once while others write on:
        SQLite before 3.51.3 may then lose pages.
        """
        if self._db.total_changes == self._changes:
            return
        self._changes = self._db.total_changes
        self._batches += 1 + done // _LARGE_BATCH
        with suppress(OSError, RuntimeError, sqlite3.Error, StoreUnavailable):  # no look, no thread to spare: next time
            if self._copying is None:
                self._copy_when_due()
            elif self._copying.done():
                copy, self._copying = self._copying, None
                self._follow(copy.result())

    def _copy_when_due(self) -> None:
        if self._batches >= _COPY_EVERY:
            self._batches = 0
            if self._log_size() > _LONG_LOG:
                self._copying = self._beside.submit(self._checkpoint, "PASSIVE")

    def _follow(self, copied: "_Copied") -> None:
        """Where somebody reads for long, or much is written at once, the log grows on until the next time."""
        is_little = not copied.is_busy and copied.left < _LITTLE and self._batches < _COPY_EVERY
        self._batches = 0
        if is_little:
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _log_size(self) -> int:
        wal = self.path.with_name(self.path.name + "-wal")
        return wal.stat().st_size if wal.exists() else 0

    def _checkpoint(self, how: str) -> "_Copied":
        """A log is of its file alone: beside another, or none, SQLite would throw it away."""
        self._refuse_another_file()
        db = connect(self.path, new=False)
        try:
            return _Copied(*db.execute(f"PRAGMA wal_checkpoint({how})").fetchone())
        finally:
            db.close()


class _Copied(NamedTuple):
    """What SQLite says of a checkpoint."""

    is_busy: int
    pages: int
    copied: int

    @property
    def left(self) -> int:
        return self.pages - self.copied
