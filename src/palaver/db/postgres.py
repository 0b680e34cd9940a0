"""PostgreSQL: a pool of connections that reconnects, and one connection that listens for notifications."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import asyncpg

from palaver.db.in_step import Members, Text
from palaver.db.postgres_batch import BEGIN_BATCH, Batcher, run_batch
from palaver.db.postgres_servers import parse_servers, refuse_transaction_pooler
from palaver.db.postgres_statements import LOCK, LOST, ROLLED_BACK, TRY_LOCK, is_transient, to_postgres
from palaver.db.schema import HOLD_SCHEMA, READ_SCHEMA, check_schema, connection_name, refuse_running_gateways
from palaver.db.transaction import (
    KeyedTransaction,
    Lock,
    Notifier,
    Notify,
    Row,
    RunAlone,
    Statement,
    Statements,
    Transaction,
    TryLock,
    fail_statement,
    storable,
    violation,
)
from palaver.model.errors import NewerSchema, StoreError, StoreUnavailable

T = TypeVar("T")
# asyncpg has no types of its own.
Connection = Any
_asyncpg: Any = asyncpg

Announce = Callable[[Iterable[str]], None]

CHANNEL = "palaver"
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
_COMMIT = "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; COMMIT;"
"""A commit can wait for a standby. A timeout there would end the wait, but not undo the commit."""
_NOTIFY = f"SELECT pg_notify('{CHANNEL}', topic) FROM unnest($1::text[]) AS topic"
_COALESCE_SECONDS = 0.005
"""Within so long, what other gateways are woken for is sent together."""
_PING_SECONDS = 5.0
_MAX_CONNECTIONS = 10
_MAX_ATTEMPTS = 8
_FIRST_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 2.0
_COMMAND_TIMEOUT_SECONDS = 60.0
_VACUUM_TIMEOUT_SECONDS = 3600.0
_HOLD_TIMEOUT_SECONDS = 60.0
_RECONNECT_TIMEOUT_SECONDS = 5.0
_REPLICA_TIMEOUT_SECONDS = 3.0
_CLOSE_TIMEOUT_SECONDS = 10.0
_CACHED_STATEMENTS = 512
_SILENCE = "idle_in_transaction_session_timeout"
SESSION_TIMEOUTS = {_SILENCE: "5s", "transaction_timeout": "60s"}
"""A connection that is silent for so long inside a transaction is frozen or gone, and others wait for its locks.

The first does not count while the server has half a statement; the second does, from PostgreSQL 17.
"""
_SET_TIMEOUTS = """
SELECT set_config(name, period, false) FROM unnest($1::text[], $2::text[]) AS timeouts (name, period)
WHERE current_setting(name, true) IS NOT NULL
"""


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
            except (*LOST, asyncpg.PostgresError) as error:
                fail_statement(steps, error)
            statement = steps.send(rows)
    except StopIteration as finished:
        return finished.value


async def _run(connection: Connection, statement: Statement) -> list[Row]:
    if isinstance(statement, Notify):
        return []  # sent with the commit
    if isinstance(statement, Lock):
        return await connection.fetch(TRY_LOCK if isinstance(statement, TryLock) else LOCK, statement.name)
    sql, values = statement
    if isinstance(values, list):
        await connection.executemany(to_postgres(sql), [storable(row) for row in values])
        return []
    return await connection.fetch(to_postgres(sql), *storable(values))


async def _set_timeouts(connection: Connection) -> None:
    await connection.execute(_SET_TIMEOUTS, list(SESSION_TIMEOUTS), list(SESSION_TIMEOUTS.values()))


async def _vacuum(connection: Connection) -> None:
    tables = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema()"
    for (table,) in await connection.fetch(tables):
        await connection.execute(f"VACUUM {table}", timeout=_VACUUM_TIMEOUT_SECONDS)


async def _reset_nothing(_: Connection) -> None:
    """Reset nothing: a transaction leaves nothing behind in its connection."""


class PostgresDatabase(Notifier):
    """One PostgreSQL database, shared by any number of gateways."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._servers = parse_servers(url)
        self._pool: Any = None
        self._replica: Any = None
        self._closed = False
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._listener: asyncio.Task[None] | None = None
        self._held_version: int | None = None
        """The schema version that nobody can migrate while we use it."""
        self._held = asyncio.Event()
        self._newer: NewerSchema | None = None
        self._unsent = set[str]()
        """Topics for which other gateways have to be woken."""
        self._has_unsent = asyncio.Event()
        self._batcher = Batcher(lambda members: self._run_with_retries(lambda: self._attempt_batch(members)))
        self._positions: dict[Text, int] = {}

    async def open(self) -> None:
        try:
            if not self._servers.is_pooled:
                await refuse_transaction_pooler(self._servers.url)
            self._pool = await self._make_pool(self._servers.url, is_pooled=self._servers.is_pooled)
            await _on_connection(self._pool, _reset_nothing)
            if self._servers.replica:
                self._replica = await self._make_pool(self._servers.replica)
        except (*LOST, asyncpg.PostgresError) as error:
            raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error
        self._listener = asyncio.create_task(self._listen(), name="palaver-listener")

    def _make_pool(self, url: str, *, is_pooled: bool = False) -> Any:  # noqa: ANN401
        return _asyncpg.create_pool(
            url,
            min_size=0,  # with more, the pool reconnects in the background and logs tracebacks during an outage
            max_size=_MAX_CONNECTIONS,
            command_timeout=_COMMAND_TIMEOUT_SECONDS,
            # The next transaction can get another connection of the server, without what was prepared.
            statement_cache_size=0 if is_pooled else _CACHED_STATEMENTS,
            init=None if is_pooled else _set_timeouts,
            reset=_reset_nothing,
        )

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
        await self._wait_for_schema()
        with self._admitted():
            if isinstance(work, KeyedTransaction):
                with suppress(RunAlone):
                    return await self._batcher.transact(work)
            return await self._run_with_retries(lambda: self._attempt(work, read_only=False))

    async def read(self, work: Transaction[T]) -> T:
        await self._wait_for_schema()
        with self._admitted():
            return await self._run_with_retries(lambda: self._attempt(work, read_only=True))

    async def browse(self, work: Transaction[T]) -> T:
        if self._replica and not self._closed and not self._newer:
            with suppress(
                *ROLLED_BACK, *LOST, asyncpg.PostgresError, StoreUnavailable
            ):  # it is gone, or too far behind
                run = partial(_in_transaction, work=work, begin=_READ, announce=self._announce)
                return await _on_connection(self._replica, run, timeout=_REPLICA_TIMEOUT_SECONDS)
        return await self.read(work)

    async def migrate(self, step: Transaction[T]) -> T:
        """Run a step of a migration, which can take long on a large store."""
        run = partial(_in_transaction, work=step, begin=_WRITE, announce=self._announce)
        return await self._without_time_limits(run)

    @asynccontextmanager
    async def keep_free(self) -> AsyncGenerator[None]:
        """Keep gateways from starting; raise StoreInUse if one runs."""
        try:
            connection: Connection = await _asyncpg.connect(self._servers.direct, timeout=10)
        except (*LOST, asyncpg.PostgresError) as error:
            raise StoreUnavailable(f"PostgreSQL does not answer: {error}") from error
        try:
            await connection.execute("BEGIN")  # The lock is held until it ends.
            await _drive(connection, iter(refuse_running_gateways()), set())
            yield
        finally:
            connection.terminate()

    async def scrub(self) -> None:
        """Vacuum every table, so that the space of deleted rows is used again."""
        if self._closed:
            raise StoreError("the store is closed")
        await self._without_time_limits(_vacuum)

    async def _without_time_limits(self, run: Callable[[Connection], Awaitable[T]]) -> T:
        """Run it on a connection of its own that has no time limits."""

        async def attempt() -> T:
            connection: Connection = await _asyncpg.connect(self._servers.direct, timeout=10)
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
                if self._unsent and self._pool:
                    with suppress(*LOST, asyncpg.PostgresError):
                        await _on_connection(self._pool, self._send_unsent)
                for pool in filter(None, (self._pool, self._replica)):
                    await pool.close()
        except TimeoutError:
            for pool in filter(None, (self._pool, self._replica)):
                pool.terminate()

    async def _stop_listening(self) -> None:
        if self._listener:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)

    @contextmanager
    def _admitted(self) -> Generator[None]:
        """Refuse work if the store is closed or its schema is newer. Closing waits for what was admitted."""
        if self._closed:
            raise StoreError("the store is closed")
        if self._newer:
            raise self._newer
        self._busy += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def _wait_for_schema(self) -> None:
        """Wait until we hold the schema again after a lost connection: another process may be migrating it."""
        if self._closed or self._held_version is None or self._held.is_set():
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
            except (*ROLLED_BACK, *LOST) as error:
                if attempt == _MAX_ATTEMPTS - 1:
                    raise StoreUnavailable(_outage_text(error)) from error
                # Random, so that transactions that collided do not collide again.
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(pause * 2, _MAX_PAUSE_SECONDS)
            except asyncpg.PostgresError as error:
                raise (StoreUnavailable if is_transient(error) else StoreError)(
                    f"the database refused: {error}"
                ) from error
        raise AssertionError

    async def _attempt(self, work: Transaction[T], *, read_only: bool) -> T:
        begin = self._begin(_READ if read_only else _WRITE)
        run = partial(_in_transaction, work=work, begin=begin, announce=self._announce)
        return await _on_connection(self._pool, run)

    async def _attempt_batch(self, members: Members) -> None:
        async def run(connection: Connection) -> None:
            topics: set[str] = set()
            async with _transaction(connection, self._begin(BEGIN_BATCH), topics, self._announce):
                topics.update(await run_batch(connection, members, self._positions))

        await _on_connection(self._pool, run)

    def _begin(self, begin: str) -> str:
        """Behind a pooler the limit on silence is that of the transaction. The other one is the server's there."""
        return f"{begin} SET LOCAL {_SILENCE} = '{SESSION_TIMEOUTS[_SILENCE]}';" if self._servers.is_pooled else begin

    def _announce(self, topics: Iterable[str]) -> None:
        """Wake our own listeners at once, and those of other gateways in a moment."""
        for topic in topics:
            self.wake(topic)
            self._unsent.add(topic)
            self._has_unsent.set()

    async def _send_unsent(self, connection: Connection) -> None:
        """Notify in a transaction of its own.

        PostgreSQL has one lock for all that notify, and holds it until the commit is on disk and on its standbys: with
        what was written, every commit would wait for every other one.
        """
        self._has_unsent.clear()
        topics, self._unsent = self._unsent, set()
        try:
            await connection.execute(_NOTIFY, sorted(topics), timeout=_PING_SECONDS)
        except BaseException:
            self._unsent |= topics
            raise

    async def _listen(self) -> None:
        """Keep one connection listening. After a reconnect everyone is woken, so nothing is missed."""
        while True:
            try:
                await self._listen_until_lost()
            except (*LOST, asyncpg.PostgresError):
                await asyncio.sleep(_FIRST_PAUSE_SECONDS * 4)

    async def _listen_until_lost(self) -> None:
        settings = {} if self._held_version is None else {"application_name": connection_name(self._held_version)}
        connection: Connection = await _asyncpg.connect(self._servers.direct, timeout=10, server_settings=settings)

        def on_cut(_: Connection) -> None:
            self._has_unsent.set()

        def on_notify(_: Connection, process: int, _channel: str, topic: str) -> None:
            if process != connection.get_server_pid():
                self.wake(topic)

        connection.add_termination_listener(on_cut)
        try:
            if self._held_version is not None:
                await self._hold(connection, self._held_version)
            await connection.add_listener(CHANNEL, on_notify)
            # Nothing that matters is written here: a wake-up can be lost, so everybody also looks from time to time.
            await connection.execute("SET synchronous_commit = off")
            self.wake_all()
            while not connection.is_closed():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._has_unsent.wait(), timeout=_PING_SECONDS)
                await self._send_unsent(connection)
                await asyncio.sleep(_COALESCE_SECONDS)
        finally:
            self._held.clear()
            connection.terminate()

    async def _hold(self, connection: Connection, version: int) -> None:
        """Hold the schema, and refuse all work if it was migrated while the connection was lost."""
        await connection.execute(HOLD_SCHEMA)
        self._newer = None
        try:
            check_schema(await connection.fetch(READ_SCHEMA), version, serves=True)
        except NewerSchema as newer:
            self._newer = newer
        self._held.set()


def _outage_text(error: Exception) -> str:
    if isinstance(error, ROLLED_BACK):
        return f"PostgreSQL rolled the transaction back {_MAX_ATTEMPTS} times, and nothing was written: {error}"
    return f"PostgreSQL does not answer: {error}"


async def _on_connection(
    pool: Any,  # noqa: ANN401
    run: Callable[[Connection], Awaitable[T]],
    *,
    timeout: float | None = None,  # noqa: ASYNC109
) -> T:
    connection: Connection = await pool.acquire(timeout=timeout)
    try:
        return await run(connection)
    finally:
        with suppress(*LOST):  # a connection that breaks now must not make a committed transaction look failed
            await pool.release(connection)


async def _in_transaction(connection: Connection, *, work: Transaction[T], begin: str, announce: Announce) -> T:
    topics: set[str] = set()
    async with _transaction(connection, begin, topics, announce):
        return await _drive(connection, iter(work), topics)


@asynccontextmanager
async def _transaction(
    connection: Connection, begin: str, topics: set[str], announce: Announce
) -> AsyncGenerator[None]:
    """Commit at the end and announce the topics that were collected until then; roll back after an error."""
    try:
        await connection.execute(begin)
        yield
        try:
            await _commit(connection, "COMMIT;" if begin.startswith(_READ) else _COMMIT)
        finally:  # it may have happened even if it failed
            announce(topics)
    except BaseException:
        # The first error is the reason, even if the connection breaks during the rollback.
        with suppress(*LOST):
            await connection.execute("ROLLBACK;")
        raise


async def _commit(connection: Connection, commit: str) -> None:
    """Commit. A commit without an answer may have happened, so it is never repeated."""
    try:
        await connection.execute(commit)
    except LOST as error:
        raise StoreUnavailable("PostgreSQL was lost during a commit, which may or may not have happened") from error
