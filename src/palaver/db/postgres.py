"""PostgreSQL: a pool of connections that reconnects by itself, and one that listens for wake-ups."""

import asyncio
import random
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from itertools import count
from typing import Any, TypeVar

import asyncpg

from palaver.db.notifications import Notifier
from palaver.db.schema import HOLD_SCHEMA, connection_name
from palaver.db.transaction import (
    ConstraintViolated,
    Lock,
    Notify,
    Row,
    Statement,
    Statements,
    Transaction,
    fail_statement,
    storable,
)
from palaver.model.errors import NewerSchema, StoreError, StoreUnavailable

__all__ = [
    "CHANNEL",
    "LIMITS",
    "LOCK",
    "PostgresDatabase",
    "to_postgres",
]

T = TypeVar("T")
# asyncpg has no types of its own.
Connection = Any
_asyncpg: Any = asyncpg

CHANNEL = "palaver"
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
_TRIES = 8
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_VACUUM = 3600.0
_PATIENCE = 60.0
_CUT_OFF = 5.0
# Given up by the server in favour of others: nothing happened, try again.
_YIELDED = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.IdleInTransactionSessionTimeoutError)
LIMITS = {"idle_in_transaction_session_timeout": "5s", "transaction_timeout": "60s"}
"""Who says nothing for so long in the middle of a transaction is frozen or gone, and others wait for its locks.

The first does not count while the server has half a statement; the second does, where it is known: from PostgreSQL 17.
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
# Not the fault of the work: a server that only reads now, took too long, has no room, was told to stop, or is broken.
_PASSING = ("25006", "25P04", "53", "57", "58")


@lru_cache(maxsize=512)
def to_postgres(sql: str) -> str:
    """Our SQL in PostgreSQL's words: numbered values, and what only it understands taken out of comments."""
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
                violated = ConstraintViolated(f"the database refused: {error}")
                violated.__cause__ = error
                fail_statement(steps, violated)
            except (*_LOST, asyncpg.PostgresError) as error:
                fail_statement(steps, error)
            statement = steps.send(rows)
    except StopIteration as finished:
        return finished.value


async def _run(connection: Connection, statement: Statement) -> list[Row]:
    if isinstance(statement, Notify):
        return []  # it goes with the commit
    if isinstance(statement, Lock):
        return await connection.fetch(LOCK, statement.name)
    sql, values = statement
    if isinstance(values, list):
        await connection.executemany(to_postgres(sql), [storable(row) for row in values])
        return []
    return await connection.fetch(to_postgres(sql), *storable(values))


async def _limit(connection: Connection) -> None:
    for name, limit in LIMITS.items():
        await connection.execute("SELECT set_config(name, $2, false) FROM pg_settings WHERE name = $1", name, limit)


async def _keep(_: Connection) -> None:
    """Transaction leaves nothing behind in a session, so there is nothing to clear before the next."""


class PostgresDatabase:
    """One PostgreSQL database, shared by any number of gateways."""

    def __init__(self, url: str, *, connections: int = 10) -> None:
        self._url = url
        self._connections = connections
        self._wakeups = Notifier()
        self._pool: Any = None
        self._closed = False
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._listener: asyncio.Task[None] | None = None
        self._serves: int | None = None
        """The schema that is worked with, if nobody may change it meanwhile."""
        self._held = asyncio.Event()
        self._newer: NewerSchema | None = None

    async def open(self) -> None:
        try:
            self._pool = await _asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._connections,
                command_timeout=60,
                init=_limit,
                reset=_keep,
            )
        except (*_LOST, asyncpg.PostgresError) as error:
            raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error
        self._listener = asyncio.create_task(self._listen(), name="palaver-listener")

    async def serve(self, version: int) -> None:
        """From now on nobody changes the schema under us. Raises NewerSchema where somebody was faster."""
        self._serves = version
        await self._stop_listening()
        self._listener = asyncio.create_task(self._listen(), name="palaver-listener")
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._held.wait()
        except TimeoutError as error:
            raise StoreUnavailable("PostgreSQL does not answer, or its schema is changed just now") from error
        if self._newer:
            raise self._newer

    async def transact(self, work: Transaction[T]) -> T:
        return await self._run_work(work, read_only=False)

    async def read(self, work: Transaction[T]) -> T:
        return await self._run_work(work, read_only=True)

    async def scrub(self) -> None:
        """Dead rows leave the tables; the space they took is overwritten as it is used again."""
        async with self._pool.acquire() as connection:
            for row in await connection.fetch(
                "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema()"
            ):
                await connection.execute(f"VACUUM {row[0]}", timeout=_VACUUM)

    def listen(self, topic: str) -> AbstractContextManager[asyncio.Event]:
        return self._wakeups.listen(topic)

    def hear(self, topic: str, call: Callable[[], None]) -> AbstractContextManager[None]:
        return self._wakeups.hear(topic, call)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._stop_listening()
        self._held.set()  # whoever waits is told that it is closed
        await self._idle.wait()
        if self._pool:
            await self._pool.close()

    async def _stop_listening(self) -> None:
        if self._listener:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)

    async def _run_work(self, work: Transaction[T], *, read_only: bool) -> T:
        """Closing waits for what has begun and refuses what comes later."""
        if not self._closed:
            await self._until_held()
        if self._closed:
            raise StoreError("the store is closed")
        if self._newer:
            raise self._newer
        self._busy += 1
        self._idle.clear()
        try:
            return await self._until_answered(work, read_only=read_only)
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def _until_held(self) -> None:
        """Where the schema is held, nothing is done while it is not: somebody may be changing it."""
        if self._serves is None or self._held.is_set():
            return
        try:
            async with asyncio.timeout(_CUT_OFF):
                await self._held.wait()
        except TimeoutError as error:
            raise StoreUnavailable("PostgreSQL does not answer whoever would hold its schema as it is") from error

    async def _until_answered(self, work: Transaction[T], *, read_only: bool) -> T:
        """Try again what certainly did not happen; say so when that is not known."""
        pause = _FIRST_PAUSE
        for attempt in range(_TRIES):
            try:
                return await self._attempt(work, read_only=read_only)
            except (*_YIELDED, *_LOST) as error:
                if attempt == _TRIES - 1:
                    raise StoreUnavailable(_why(error)) from error
                # Not all at the same moment, or those who were in each other's way meet again.
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(pause * 2, _LONGEST_PAUSE)
            except asyncpg.PostgresError as error:
                passes = str(getattr(error, "sqlstate", "")).startswith(_PASSING)
                raise (StoreUnavailable if passes else StoreError)(f"the database refused: {error}") from error
        raise AssertionError

    async def _attempt(self, work: Transaction[T], *, read_only: bool) -> T:
        connection: Connection = await self._pool.acquire()
        try:
            return await _in_transaction(connection, work, read_only=read_only)
        finally:
            await self._give_back(connection)

    async def _give_back(self, connection: Connection) -> None:
        """What is done is done: a connection that breaks on its way back must not make it look undone."""
        with suppress(*_LOST):
            await self._pool.release(connection)

    async def _listen(self) -> None:
        """Keep one connection listening; after each reconnect everybody looks again, so nothing is missed."""
        while True:
            try:
                await self._listen_until_cut()
            except (*_LOST, asyncpg.PostgresError):
                await asyncio.sleep(_FIRST_PAUSE * 4)

    async def _listen_until_cut(self) -> None:
        settings = {} if self._serves is None else {"application_name": connection_name(self._serves)}
        connection: Connection = await _asyncpg.connect(self._url, timeout=10, server_settings=settings)
        cut = asyncio.Event()

        def on_cut(_: Connection) -> None:
            cut.set()

        def on_notify(_: Connection, _pid: int, _channel: str, topic: str) -> None:
            self._wakeups.wake(topic)

        connection.add_termination_listener(on_cut)
        try:
            if self._serves is not None:
                await self._hold(connection, self._serves)
            await connection.add_listener(CHANNEL, on_notify)
            self._wakeups.wake_all()
            while not cut.is_set():
                try:
                    await asyncio.wait_for(cut.wait(), timeout=5)
                except TimeoutError:
                    await connection.execute("SELECT 1", timeout=5)
        finally:
            self._held.clear()
            connection.terminate()

    async def _hold(self, connection: Connection, version: int) -> None:
        """While the connection was cut, somebody may have changed the schema: then nothing more is done here."""
        await connection.execute(HOLD_SCHEMA)
        found = int(await connection.fetchval("SELECT value FROM meta WHERE name = 'schema'") or 0)
        self._newer = NewerSchema(found, version) if found > version else None
        self._held.set()


def _why(error: Exception) -> str:
    if isinstance(error, _YIELDED):
        return f"PostgreSQL gave way to others {_TRIES} times, and nothing was written: {error}"
    return f"PostgreSQL does not answer: {error}"


async def _in_transaction(connection: Connection, work: Transaction[T], *, read_only: bool) -> T:
    topics: set[str] = set()
    try:
        await connection.execute(_READ if read_only else _WRITE)
        result = await _drive(connection, iter(work), topics)
        await _commit(connection, topics)
    except BaseException:
        # Whatever ended the work stays the reason, also when the connection breaks while it is taken back.
        with suppress(*_LOST):
            await connection.execute("ROLLBACK;")
        raise
    return result


async def _commit(connection: Connection, topics: Iterable[str]) -> None:
    """A commit that got no answer may have happened: it is never tried again blindly."""
    try:
        await connection.execute("".join(map(_notify, topics)) + "COMMIT;")
    except _LOST as error:
        raise StoreUnavailable("PostgreSQL was lost during a commit: it is not known whether it happened") from error


def _notify(topic: str) -> str:
    quoted = topic.replace("'", "''")
    return f"NOTIFY {CHANNEL}, '{quoted}'; "
