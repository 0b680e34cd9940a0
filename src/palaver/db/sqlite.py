"""SQLite: one writer thread that commits concurrent transactions together, and readers that never wait for it."""

import asyncio
import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from palaver.db.cipher import open_file
from palaver.db.file_lock import FileLock, is_transient, is_writable
from palaver.db.high_water import MEASURE, SLOT_BYTES, mark_path, parse_slot, read_mark
from palaver.db.in_step import Members, Text
from palaver.db.private_files import open_private, touch_private
from palaver.db.sqlite_batch import run_in_step
from palaver.db.transaction import (
    KeyedTransaction,
    Member,
    Notifier,
    Notify,
    Row,
    Statements,
    Transaction,
    fail_statement,
    storable,
    violation,
)
from palaver.model.epochs import HighWater
from palaver.model.errors import StoreDamaged, StoreError, StoreUnavailable

T = TypeVar("T")
_log = logging.getLogger(__name__)

_MAX_BATCH = 256
_READER_COUNT = 3
_CHECKPOINT_BYTES, _MAX_LOG_BYTES = 1024 * 1024, 16 * 1024 * 1024
"""Checkpoint the log from this size; truncate it to the second one when it restarts."""
_BATCHES_PER_CHECKPOINT = 128
"""How many batches that wrote something, between two looks at the size of the log."""
_MAX_PAGES_ON_WRITER = 4096
"""Checkpoint at most so many pages on the writer thread."""
_TRANSACTIONS_PER_BATCH = 32
"""A larger batch counts as several."""
_FILE_CHECK_SECONDS = 0.1
_BUSY_TIMEOUT_MS = 10_000
"""How long to wait for another writer's lock."""


def connect(path: Path, key: bytes | None = None, *, read_only: bool = False, new: bool = True) -> sqlite3.Connection:
    """Connect with explicit transactions, durable commits, and checkpoints off the commit path.

    Create a file that does not exist, unless `new` is false. A `key` opens an encrypted file.
    """
    name = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    if new and not read_only and not path.exists():
        touch_private(path)  # only the owner reads it; -wal and -shm get the same mode
    mode = "ro" if read_only else "rwc" if new else "rw"
    uri = f"file:{name}?mode={mode}{'&immutable=1' if _is_immutable(path) else ''}"
    db = open_file(uri, key, uri=True)
    db.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
    db.execute("PRAGMA temp_store = MEMORY")
    if not read_only:
        if key is None:  # SQLCipher has its own size
            db.execute("PRAGMA page_size = 2048")
        use_write_ahead_log(db)
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}")
    return db


def _is_immutable(path: Path) -> bool:
    """Return whether we can only read the file and it has no log: SQLite could not create its own beside it."""
    return not (is_writable(path) and is_writable(path.parent)) and not path.with_name(path.name + "-wal").exists()


def use_write_ahead_log(db: sqlite3.Connection) -> None:
    """Retry while another process opens the same new file: SQLite does not wait here."""
    for _ in range(_WAL_ATTEMPTS):
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise
            time.sleep(0.02)
        else:
            return
    db.execute("PRAGMA journal_mode = WAL")


_WAL_ATTEMPTS = 100


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
                fail_statement(steps, violation(error) if isinstance(error, sqlite3.IntegrityError) else error)
            statement = steps.send(rows)
    except StopIteration as finished:
        return finished.value
    finally:
        cursor.close()  # A statement that failed halfway would keep its connection at the snapshot it reads.


def _run_batch(db: sqlite3.Connection, members: Members, positions: dict[Text, int], notified: set[str]) -> bool:
    """Run all members; return False if one failed or was cancelled, so that all must be rolled back.

    Those without a key run first, each alone.
    """
    members = [member for member in members if not member.future.cancelled()]
    in_step = [member for member in members if member.key]
    if len(in_step) < _MIN_IN_STEP:
        return all(_run_member(db, member, notified) for member in members)
    if not all(_run_member(db, member, notified) for member in members if not member.key):
        return False
    try:
        notified |= run_in_step(db, in_step, positions)
    except BaseException as error:  # noqa: BLE001 - in the retry each gets its own error
        # Not the error itself: it can name a value.
        _log.debug("A batch runs again, one by one: %s", type(error).__name__, extra={"action": "batch.retried"})
        _accept_any_text(db, error)
        return False
    return not any(member.error or member.future.cancelled() for member in in_step)


_MIN_IN_STEP = 2


def _run_member(db: sqlite3.Connection, member: Member[Any], notified: set[str]) -> bool:
    """Run a member alone; return False if it failed or was cancelled, so that it must be rolled back."""
    if member.future.cancelled():
        return True
    try:
        member.result = run_statements(db, iter(member.work), notified)
    except sqlite3.Error as error:
        _accept_any_text(db, error)  # for the retry
        member.error = _store_error("the database refused", error)
    except UnicodeDecodeError:
        member.error = _store_error("the database refused", undecodable_schema())
    except BaseException as error:  # noqa: BLE001 - the caller handles it
        member.error = error
    return member.error is None and not member.future.cancelled()


def _run_read(db: sqlite3.Connection, work: Transaction[T]) -> T:
    db.execute("BEGIN")
    try:
        return run_statements(db, iter(work), set())
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _accept_any_text(db: sqlite3.Connection, error: BaseException) -> bool:
    """Read text that is not UTF-8 as well as possible from now on, if that was the error; it is slower."""
    if not str(error).startswith("Could not decode to UTF-8") or db.text_factory is not str:
        return False
    db.text_factory = _decode
    return True


def _decode(text: bytes) -> str:
    return text.decode(errors="replace")


_FIXES = {
    "no such ": ". Run palaver doctor",
    "attempt to write a readonly ": ". Make its file and its folder writable, or use another data directory",
    "database or disk is full": ". Make room on its disk",
}


def with_advice(error: Exception) -> str:
    """Return what SQLite says, and what to do about it."""
    return str(error) + next((advice for said, advice in _FIXES.items() if str(error).startswith(said)), "")


_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def undecodable_schema() -> sqlite3.DatabaseError:
    """Return what a schema that is not text means: Python cannot even decode what SQLite says about it."""
    found = sqlite3.DatabaseError("malformed database schema: it is not text")
    found.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return found


def is_damage(error: BaseException | None) -> bool:
    """Return whether SQLite cannot read its file."""
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


def _store_error(problem: str, error: sqlite3.Error) -> StoreError:
    failed = (StoreUnavailable if is_transient(error) else StoreError)(f"{problem}: {with_advice(error)}")
    failed.__cause__ = error  # raised on another thread
    return failed


def _unreachable(error: Exception) -> StoreUnavailable:
    unavailable = StoreUnavailable(f"the database cannot be reached: {error}")
    unavailable.__cause__ = error  # raised on another thread
    return unavailable


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class MarkFile:
    """The file of the high-water mark, kept open. It only rises.

    It has two slots, and what is higher counts: one of the gateway that owns the database, which so needs no lock and
    does not read it again, and one that everybody else shares.
    """

    def __init__(self, path: Path, reached: HighWater, *, is_shared: bool) -> None:
        self.problem = ""
        """Why it could not be written."""
        self._is_shared = is_shared
        self._mark = read_mark(path)
        self._written: HighWater | None = None
        self._handle = open_private(mark_path(path), os.O_RDWR, like=path)
        self.write(reached)

    def write(self, reached: HighWater) -> None:
        """Raise the mark. That the commit has happened does not change if this fails."""
        self._mark = HighWater(*map(max, reached, self._mark))
        if self._mark == self._written:
            return
        try:
            if self._is_shared:
                with self._locked():
                    others = parse_slot(os.pread(self._handle, SLOT_BYTES, SLOT_BYTES))
                    self._mark = self._mark.raised_to(others)
                    self._save()
            else:
                self._save()
        except OSError as error:
            if not self.problem:
                _log.warning("The mark of the database cannot be written: %s", error, extra={"action": "mark.failed"})
            self.problem = str(error)

    def _save(self) -> None:
        numbers = b"%d %d %d %d" % self._mark
        # Of one length, so that nothing is left of a longer one.
        content = (b"%b %08x" % (numbers, crc32(numbers))).ljust(SLOT_BYTES)
        os.pwrite(self._handle, content, SLOT_BYTES if self._is_shared else 0)
        self._written, self.problem = self._mark, ""

    @contextmanager
    def _locked(self) -> Generator[None]:
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def flush(self) -> None:
        with suppress(OSError):
            os.fdatasync(self._handle)

    def close(self) -> None:
        self.flush()
        os.close(self._handle)


class SqliteDatabase(Notifier):
    """One SQLite file. A transaction that is cancelled before its commit is rolled back."""

    def __init__(self, path: Path, ownership: FileLock, key: bytes | None = None) -> None:
        super().__init__()
        self.path = path
        self.key = key
        """None if the file is not encrypted."""
        self._ownership = ownership
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Member[Any] | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="palaver-writer", daemon=True)
        self._readers = ThreadPoolExecutor(_READER_COUNT, thread_name_prefix="palaver-reader")
        self._local = threading.local()
        self._open_readers: list[sqlite3.Connection] = []
        self._checkpointer = ThreadPoolExecutor(1, thread_name_prefix="palaver-checkpoint")
        self._db = connect(path, key)
        # Checkpoint before the first write: a gateway that is killed again and again reaches no other checkpoint.
        if ownership.is_taken and self._log_size() > _CHECKPOINT_BYTES:
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        self._positions: dict[Text, int] = {}
        self._file = _identity(path)
        self._next_file_check = 0.0
        self._batches = 0
        self._changes = 0
        self._checkpoint_future: Future[_CheckpointResult] | None = None
        self._closed = False
        self._stops_on_damage = False
        self._mark: MarkFile | None = None
        self._mark_problem = ""
        self._writer.start()

    def keep_mark(self, reached: HighWater) -> None:
        """Write the high-water mark with every commit from now on, if the database can be written."""
        try:
            if is_writable(self.path):
                self._mark = MarkFile(self.path, reached, is_shared=not self._ownership.is_taken)
        except OSError as error:
            self._mark_problem = str(error)
            _log.warning("The mark of the database cannot be opened: %s", error, extra={"action": "mark.failed"})

    @property
    def mark_problem(self) -> str:
        """Why no high-water mark is kept; nothing if it is."""
        return self._mark.problem if self._mark else self._mark_problem

    def transact(self, work: Transaction[T]) -> "asyncio.Future[T]":
        self._refuse_when_closed()
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(Member(work, future, work.key if isinstance(work, KeyedTransaction) else ""))
        return future

    async def read(self, work: Transaction[T]) -> T:
        self._refuse_when_closed()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    async def browse(self, work: Transaction[T]) -> T:
        return await self.read(work)

    async def scrub(self) -> None:
        """Truncate the log as soon as nobody reads it; SQLite overwrites free space itself (secure_delete).

        Raises StoreError if somebody reads for too long.
        """
        self._refuse_when_closed()
        try:
            checkpoint = self._checkpoint, "TRUNCATE"
            done = await asyncio.get_running_loop().run_in_executor(self._checkpointer, *checkpoint)
        except sqlite3.Error as error:
            raise _store_error("the database log cannot be truncated", error) from error
        except OSError as error:
            raise _unreachable(error) from error
        if done.is_busy:
            raise StoreError("the database log cannot be truncated: another process reads the database")

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)  # the writer stops after the jobs before it
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._writer.join)
        await loop.run_in_executor(None, self._readers.shutdown)
        await loop.run_in_executor(None, self._checkpointer.shutdown)
        for reader in self._open_readers:
            reader.close()
        with suppress(sqlite3.OperationalError):  # a read-only file
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._db.close()
        if self._mark:
            self._mark.close()
        self._ownership.release()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StoreError("the store is closed")

    # Readers

    def _read(self, work: Transaction[T]) -> T:
        try:
            db = self._reader()
            try:
                return _run_read(db, work)
            except sqlite3.Error as error:
                if not _accept_any_text(db, error):
                    raise
                return _run_read(db, work)
        except UnicodeDecodeError as error:
            raise self._failed("the database cannot be read", undecodable_schema()) from error
        except sqlite3.Error as error:
            raise self._failed("the database cannot be read", error) from error
        except OSError as error:
            raise _unreachable(error) from error

    def stop_on_damage(self) -> None:
        """Write nothing more once something damaged was read: what is written then can be lost or damage more."""
        self._stops_on_damage = True

    def _failed(self, problem: str, error: sqlite3.Error) -> StoreError:
        if not (self._stops_on_damage and is_damage(error)):
            return _store_error(problem, error)
        if not self.damage:
            self.damage = f"the database {self.path} is damaged: {error}. palaver doctor says what to do"
            _log.error("%s", self.damage, extra={"action": "store.damaged"})
        failed = StoreDamaged(self.damage)
        failed.__cause__ = error  # raised on another thread
        return failed

    def _refuse_damage(self, batch: Members) -> None:
        """Raise StoreDamaged if a transaction met damage: then none of the batch is written."""
        for member in batch:
            cause = member.error.__cause__ if member.error else None
            if self._stops_on_damage and isinstance(cause, sqlite3.Error) and is_damage(cause):
                member.error = self._failed("the database refused", cause)
        if self.damage:
            raise StoreDamaged(self.damage)

    def _reader(self) -> sqlite3.Connection:
        if not hasattr(self._local, "db"):
            self._local.db = connect(self.path, self.key, read_only=True)
            self._open_readers.append(self._local.db)
        return self._local.db

    # The writer

    def _write(self) -> None:
        stopping = False
        while not stopping:
            batch, stopping = self._take()
            if batch:
                self._deliver(batch, self._commit(batch))
                self._checkpoint_if_due(len(batch))

    def _take(self) -> tuple[list[Member[Any]], bool]:
        """Wait for at least one transaction; return all that wait."""
        batch: list[Member[Any]] = []
        while not batch or (len(batch) < _MAX_BATCH and not self._queue.empty()):
            member = self._queue.get()
            if member is None:
                return batch, True
            batch.append(member)
        return batch, False

    def _commit(self, batch: Members) -> set[str]:
        """Commit all transactions together. One that fails is rolled back alone."""
        notified: set[str] = set()
        try:
            self._check_file()
            self._refuse_damage(batch)
            self._db.execute("BEGIN IMMEDIATE")
            if not _run_batch(self._db, batch, self._positions, notified):
                self._retry_with_savepoints(batch, notified)
            self._refuse_damage(batch)
            # Measured before the commit, which would need another transaction, and written after it.
            reached = self._measure()
            self._db.execute("COMMIT")
            if self._mark and reached:
                self._mark.write(reached)
        except sqlite3.Error as error:
            self._fail_batch(batch, self._failed(f"the database {self.path} could not commit", error))
        except StoreUnavailable as error:
            self._fail_batch(batch, error)
        except Exception as error:  # noqa: BLE001 - all of them wait for this thread
            self._fail_batch(batch, _unreachable(error))
        return notified

    def _measure(self) -> HighWater | None:
        """Return how far the database has got; None if nothing was written."""
        if self._mark is None or self._db.total_changes == self._changes:
            return None
        try:
            return HighWater(*self._db.execute(MEASURE).fetchone())
        except sqlite3.Error:  # a table is missing: palaver doctor says so
            return None

    def _retry_with_savepoints(self, batch: Members, notified: set[str]) -> None:
        """Run the batch again, each alone and with a savepoint. Failures are rare, so the first run needs none."""
        for member in batch:
            member.restart()
        self._roll_back()
        self._db.execute("BEGIN IMMEDIATE")
        for member in batch:
            self._db.execute("SAVEPOINT work")
            kept = _run_member(self._db, member, notified)
            if not self._db.in_transaction:  # a full disk rolls back everything
                raise StoreUnavailable(f"the transaction was lost in {self.path}: {member.error}")
            if not kept:
                self._db.execute("ROLLBACK TO work")
            self._db.execute("RELEASE work")

    def _check_file(self) -> None:
        """Acknowledge nothing that would be written to a removed file. Checked a few times per second."""
        now = time.monotonic()
        if now >= self._next_file_check:
            self._refuse_another_file()
            self._next_file_check = now + _FILE_CHECK_SECONDS

    def _refuse_another_file(self) -> None:
        if _identity(self.path) != self._file:
            raise StoreUnavailable(
                f"the database {self.path} was removed or replaced while it was open; stop the gateway, put the file "
                "back or remove it, and start again"
            )

    def _fail_batch(self, batch: Members, error: StoreError) -> None:
        for member in batch:
            member.error = member.error or error
        with suppress(sqlite3.Error):  # what stays open is rolled back before the next commit
            self._roll_back()

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _deliver(self, batch: Members, notified: set[str]) -> None:
        """Wake the event loop once for the whole batch."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle, batch, notified)

    def _settle(self, batch: Members, notified: set[str]) -> None:
        for member in batch:
            member.settle()
        for topic in notified:
            self.wake(topic)

    # The log

    def _checkpoint_if_due(self, done: int) -> None:
        """Checkpoint the log, because overwriting it from its start is faster than letting it grow.

        The log restarts with the first commit after all of it was checkpointed. Another thread checkpoints most of
        it; what was written meanwhile follows here if it is little. Two checkpoints never run at once while others
        write: SQLite before 3.51.3 can lose pages then.
        """
        if self._db.total_changes == self._changes:
            return
        self._changes = self._db.total_changes
        self._batches += 1 + done // _TRANSACTIONS_PER_BATCH
        with suppress(OSError, RuntimeError, sqlite3.Error, StoreUnavailable):  # try again with the next batch
            if self._checkpoint_future is None:
                self._start_checkpoint_if_due()
            elif self._checkpoint_future.done():
                copy, self._checkpoint_future = self._checkpoint_future, None
                self._finish_checkpoint(copy.result())

    def _start_checkpoint_if_due(self) -> None:
        if self._batches >= _BATCHES_PER_CHECKPOINT:
            self._batches = 0
            if self._log_size() > _CHECKPOINT_BYTES:
                self._checkpoint_future = self._checkpointer.submit(self._checkpoint, "PASSIVE")

    def _finish_checkpoint(self, copied: "_CheckpointResult") -> None:
        """Checkpoint the rest, unless a long read or many writes have left too much of it."""
        is_little = (
            not copied.is_busy and copied.left < _MAX_PAGES_ON_WRITER and self._batches < _BATCHES_PER_CHECKPOINT
        )
        self._batches = 0
        if is_little:
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _log_size(self) -> int:
        wal = self.path.with_name(self.path.name + "-wal")
        return wal.stat().st_size if wal.exists() else 0

    def _checkpoint(self, how: str) -> "_CheckpointResult":
        """Checkpoint only if the file is still ours: SQLite discards a log beside another file."""
        self._refuse_another_file()
        if self._mark:
            self._mark.flush()
        db = connect(self.path, self.key, new=False)
        try:
            return _CheckpointResult(*db.execute(f"PRAGMA wal_checkpoint({how})").fetchone())
        finally:
            db.close()


class _CheckpointResult(NamedTuple):
    """The result row of a checkpoint."""

    is_busy: int
    pages: int
    copied: int

    @property
    def left(self) -> int:
        return self.pages - self.copied
