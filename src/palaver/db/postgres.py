"""PostgreSQL: a pool of connections that reconnects, and one connection that listens for notifications."""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import count
from typing import Any, TypeVar

import asyncpg

from palaver.db.schema import HOLD_SCHEMA, connection_name
from palaver.db.transaction import (
    Lock,
    Notifier,
    Notify,
    Row,
    Statement,
    Statements,
    Transaction,
    fail_statement,
    storable,
    violation,
)
from palaver.model.errors import NewerSchema, StoreError, StoreUnavailable

T = TypeVar("T")
# asyncpg has no types of its own.
Connection = Any
_asyncpg: Any = asyncpg

CHANNEL = "palaver"
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
_MAX_ATTEMPTS = 8
_FIRST_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 2.0
_COMMAND_TIMEOUT_SECONDS = 60.0
_VACUUM_TIMEOUT_SECONDS = 3600.0
_HOLD_TIMEOUT_SECONDS = 60.0
_RECONNECT_TIMEOUT_SECONDS = 5.0
_CLOSE_TIMEOUT_SECONDS = 10.0
# The server rolled the transaction back in favour of another: run it again.
_ROLLED_BACK = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.IdleInTransactionSessionTimeoutError)
SESSION_TIMEOUTS = {"idle_in_transaction_session_timeout": "5s", "transaction_timeout": "60s"}
"""A connection that is silent for so long inside a transaction is frozen or gone, and others wait for its locks.

The first does not count while the server has half a statement; the second does, from PostgreSQL 17.
"""
# The connection is gone or the server is not ready.
_LOST = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
)
# SQLSTATE classes that are not the fault of a statement: read-only server, timeout, full disk, shutdown, server error.
_TRANSIENT = ("25006", "25P04", "53", "57", "58")


@lru_cache(maxsize=512)
def to_postgres(sql: str) -> str:
    """Number the values of a statement, and uncomment what only PostgreSQL understands (`/*pg … */`)."""
    numbers = count(1)
    numbered = re.sub(r"\?", lambda _: f"${next(numbers)}", sql)
    return re.sub(r"/\*pg (.*?)\*/", r"\1", numbered)


async def _drive(connection: Connection, steps: Statements[T], topics: set[str]) -> T:
    try:
        statement = next(steps)
        while True:
            if isinstance(statement, Notify):
                topics.add(statement.topic)
            try:
                rows = await _run(connection, statement)
            except asyncpg.IntegrityConstraintViolationError as error:
                fail_statement(steps, violation(error))
            except (*_LOST, asyncpg.PostgresError) as error:
                fail_statement(steps, error)
            statement = steps.send(rows)
    except StopIteration as finished:
        return finished.value


async def _run(connection: Connection, statement: Statement) -> list[Row]:
    if isinstance(statement, Notify):
        return []  # sent with the commit
    if isinstance(statement, Lock):
        return await connection.fetch(LOCK, statement.name)
    sql, values = statement
    if isinstance(values, list):
        await connection.executemany(to_postgres(sql), [storable(row) for row in values])
        return []
    return await connection.fetch(to_postgres(sql), *storable(values))


async def _refuse_transaction_pooler(url: str) -> None:
    """Raise StoreError if a pooler lends us a server process for each transaction: then nothing can listen.

    A pooler does not know the server process when we log in. Whether it lends the one that was used last or first, some
    of these transactions get another process than ours, or ours serves another connection.
    """
    first: Connection = await _asyncpg.connect(url, timeout=10, statement_cache_size=0)
    try:
        process = await _serving_process(first)
        if process == first.get_server_pid():
            return
        second: Connection = await _asyncpg.connect(url, timeout=10, statement_cache_size=0)
        try:
            ours = {await _serving_process(first)}
            other = await _serving_process(second)
            ours.add(await _serving_process(first))
        finally:
            second.terminate()
    finally:
        first.terminate()
    if ours != {process} or other == process:
        raise StoreError(
            "PostgreSQL is behind a connection pooler in transaction mode, but Palaver needs its own connections:"
            " connect to PostgreSQL itself, or set pool_mode = session in the pooler"
        )


async def _serving_process(connection: Connection) -> int:
    """Return the process that serves a transaction of this connection."""
    await connection.execute("BEGIN", timeout=_RECONNECT_TIMEOUT_SECONDS)
    process = await connection.fetchval("SELECT pg_backend_pid()", timeout=_RECONNECT_TIMEOUT_SECONDS)
    await connection.execute("COMMIT", timeout=_RECONNECT_TIMEOUT_SECONDS)
    return process


async def _set_timeouts(connection: Connection) -> None:
    for name, limit in SESSION_TIMEOUTS.items():
        await connection.execute("SELECT set_config(name, $2, false) FROM pg_settings WHERE name = $1", name, limit)


async def _vacuum(connection: Connection) -> None:
    tables = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema()"
    for (table,) in await connection.fetch(tables):
        await connection.execute(f"VACUUM {table}", timeout=_VACUUM_TIMEOUT_SECONDS)


async def _reset_nothing(_: Connection) -> None:
    """Reset nothing: a transaction leaves nothing behind in its connection."""


class PostgresDatabase(Notifier):
    """One PostgreSQL database, shared by any number of gateways."""

    def __init__(self, url: str, *, connections: int = 10) -> None:
        super().__init__()
        self._url = url
        self._connections = connections
        self._pool: Any = None
        self._closed = False
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._listener: asyncio.Task[None] | None = None
        self._held_version: int | None = None
        """The schema version that nobody can migrate while we use it."""
        self._held = asyncio.Event()
        self._newer: NewerSchema | None = None

    async def open(self) -> None:
        try:
            await _refuse_transaction_pooler(self._url)
            self._pool = await _asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._connections,
                command_timeout=_COMMAND_TIMEOUT_SECONDS,
                init=_set_timeouts,
                reset=_reset_nothing,
            )
        except (*_LOST, asyncpg.PostgresError) as error:
            raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error
        self._listener = asyncio.create_task(self._listen(), name="palaver-listener")

    async def serve(self, version: int) -> None:
        """Keep others from migrating the schema. Raise NewerSchema if it was already migrated."""
        self._held_version = version
        await self._stop_listening()
        self._listener = asyncio.create_task(self._listen(), name="palaver-listener")
        try:
            async with asyncio.timeout(_HOLD_TIMEOUT_SECONDS):
                await self._held.wait()
        except TimeoutError as error:
            raise StoreUnavailable("PostgreSQL does not answer, or its schema is being migrated") from error
        if self._newer:
            raise self._newer

    async def transact(self, work: Transaction[T]) -> T:
        return await self._run_transaction(work, read_only=False)

    async def read(self, work: Transaction[T]) -> T:
        return await self._run_transaction(work, read_only=True)

    async def migrate(self, step: Transaction[T]) -> T:
        """Run a step of a migration, which can take long on a large store."""
        return await self._without_time_limits(lambda connection: _in_transaction(connection, step, read_only=False))

    async def scrub(self) -> None:
        """Vacuum every table, so that the space of deleted rows is used again."""
        if self._closed:
            raise StoreError("the store is closed")
        await self._without_time_limits(_vacuum)

    async def _without_time_limits(self, run: Callable[[Connection], Awaitable[T]]) -> T:
        """Run it on a connection of its own that has no time limits."""

        async def attempt() -> T:
            connection: Connection = await _asyncpg.connect(self._url, timeout=10)
            try:
                return await run(connection)
            finally:
                connection.terminate()

        return await self._run_with_retries(attempt)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._stop_listening()
        self._held.set()  # those who wait see that it is closed
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
                await self._idle.wait()
                if self._pool:
                    await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def _stop_listening(self) -> None:
        if self._listener:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)

    async def _run_transaction(self, work: Transaction[T], *, read_only: bool) -> T:
        """Run it, unless the store is closed; closing waits for it."""
        if not self._closed:
            await self._wait_for_schema()
        if self._closed:
            raise StoreError("the store is closed")
        if self._newer:
            raise self._newer
        self._busy += 1
        self._idle.clear()
        try:
            return await self._run_with_retries(lambda: self._attempt(work, read_only=read_only))
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def _wait_for_schema(self) -> None:
        """Wait until we hold the schema again after a lost connection: another process may be migrating it."""
        if self._held_version is None or self._held.is_set():
            return
        try:
            async with asyncio.timeout(_RECONNECT_TIMEOUT_SECONDS):
                await self._held.wait()
        except TimeoutError as error:
            raise StoreUnavailable("PostgreSQL does not answer on the connection that holds the schema") from error

    async def _run_with_retries(self, run: Callable[[], Awaitable[T]]) -> T:
        """Run it again if it certainly did not happen. Raise StoreUnavailable if that is not known."""
        pause = _FIRST_PAUSE_SECONDS
        for attempt in range(_MAX_ATTEMPTS):
            try:
                return await run()
            except (*_ROLLED_BACK, *_LOST) as error:
                if attempt == _MAX_ATTEMPTS - 1:
                    raise StoreUnavailable(_why(error)) from error
                # Random, so that transactions that collided do not collide again.
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(pause * 2, _MAX_PAUSE_SECONDS)
            except asyncpg.PostgresError as error:
                passes = str(getattr(error, "sqlstate", "")).startswith(_TRANSIENT)
                raise (StoreUnavailable if passes else StoreError)(f"the database refused: {error}") from error
        raise AssertionError

    async def _attempt(self, work: Transaction[T], *, read_only: bool) -> T:
        connection: Connection = await self._pool.acquire()
        try:
            return await _in_transaction(connection, work, read_only=read_only)
        finally:
            with suppress(*_LOST):  # a connection that breaks now must not make a committed transaction look failed
                await self._pool.release(connection)

    async def _listen(self) -> None:
        """Keep one connection listening. After a reconnect everyone is woken, so nothing is missed."""
        while True:
            try:
                await self._listen_until_lost()
            except (*_LOST, asyncpg.PostgresError):
                await asyncio.sleep(_FIRST_PAUSE_SECONDS * 4)

    async def _listen_until_lost(self) -> None:
        settings = {} if self._held_version is None else {"application_name": connection_name(self._held_version)}
        connection: Connection = await _asyncpg.connect(self._url, timeout=10, server_settings=settings)
        cut = asyncio.Event()

        def on_cut(_: Connection) -> None:
            cut.set()

        def on_notify(_: Connection, _pid: int, _channel: str, topic: str) -> None:
            self.wake(topic)

        connection.add_termination_listener(on_cut)
        try:
            if self._held_version is not None:
                await self._hold(connection, self._held_version)
            await connection.add_listener(CHANNEL, on_notify)
            self.wake_all()
            while not cut.is_set():
                try:
                    await asyncio.wait_for(cut.wait(), timeout=5)
                except TimeoutError:
                    await connection.execute("SELECT 1", timeout=5)
        finally:
            self._held.clear()
            connection.terminate()

    async def _hold(self, connection: Connection, version: int) -> None:
        """Hold the schema, and refuse all work if it was migrated while the connection was lost."""
        await connection.execute(HOLD_SCHEMA)
        found = int(await connection.fetchval("SELECT value FROM meta WHERE name = 'schema'") or 0)
        self._newer = NewerSchema(found, version) if found > version else None
        self._held.set()


def _why(error: Exception) -> str:
    if isinstance(error, _ROLLED_BACK):
        return f"PostgreSQL rolled the transaction back {_MAX_ATTEMPTS} times, and nothing was written: {error}"
    return f"PostgreSQL does not answer: {error}"


async def _in_transaction(connection: Connection, work: Transaction[T], *, read_only: bool) -> T:
    topics: set[str] = set()
    try:
        await connection.execute(_READ if read_only else _WRITE)
        result = await _drive(connection, iter(work), topics)
        await _commit(connection, topics)
    except BaseException:
        # The first error is the reason, even if the connection breaks during the rollback.
        with suppress(*_LOST):
            await connection.execute("ROLLBACK;")
        raise
    return result


async def _commit(connection: Connection, topics: Iterable[str]) -> None:
    """Commit and notify. A commit without an answer may have happened, so it is never repeated."""
    try:
        await connection.execute("".join(map(_notify, topics)) + "COMMIT;")
    except _LOST as error:
        raise StoreUnavailable("PostgreSQL was lost during a commit, which may or may not have happened") from error


def _notify(topic: str) -> str:
    quoted = topic.replace("'", "''")
    return f"NOTIFY {CHANNEL}, '{quoted}'; "
