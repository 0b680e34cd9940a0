"""PostgreSQL: a pool of connections that reconnects, and one connection that listens for notifications."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import asyncpg

from palaver.db.high_water import MEASURE, Loss, Reckoned, Seen, Witness
from palaver.db.in_step import Members, Text
from palaver.db.postgres_batch import BEGIN_BATCH, Batcher, run_batch
from palaver.db.postgres_commit import COMMIT_SECONDS, Commits
from palaver.db.postgres_pool import DURABLE, SESSION_TIMEOUTS, SILENCE, Connector, Pool, identify
from palaver.db.postgres_servers import parse_servers, refuse_transaction_pooler
from palaver.db.postgres_statements import (
    LOCK,
    LOST,
    ROLLED_BACK,
    TRY_LOCK,
    StandbyAnswered,
    is_transient,
    to_postgres,
)
from palaver.db.schema import HOLD_SCHEMA, READ_SCHEMA, check_schema, connection_name, refuse_running_gateways
from palaver.db.transaction import (
    COMMITS_MISSING,
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
    waiting_of_request,
)
from palaver.model.epochs import HighWater
from palaver.model.errors import NewerSchema, StoreError, StoreUnavailable

T = TypeVar("T")
# asyncpg has no types of its own.
Connection = Any
_asyncpg: Any = asyncpg

Announce = Callable[[Iterable[str]], None]
Reckon = Callable[[Witness, str], Transaction[Reckoned]]
"""Compares the database on a server with what this process has seen of it."""

CHANNEL = "palaver"
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
_NOTIFY = f"SELECT pg_notify('{CHANNEL}', topic) FROM unnest($1::text[]) AS topic"
_LOOK = f"SELECT seen.*, current_setting('synchronous_standby_names') <> '' FROM ({to_postgres(MEASURE)}) AS seen"
_COALESCE_SECONDS = 0.005
"""Within so long, what other gateways are woken for is sent together."""
_PING_SECONDS = 1.0
_ANSWER_SECONDS = 2.5
"""A server that does not answer our listener for so long is frozen or cut off."""
_SILENT_SECONDS = 1.0
"""A server that does not answer, or confirms no commit, for so long will not for a while: an outage is known."""
_LOOK_SECONDS = 0.25
"""How often to look whether the server is silent, while a request waits."""
_MAX_ATTEMPTS = 8
_PATIENCE_SECONDS = 5.0
"""How long to try again while the server does not answer."""
_LAST_TRY_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 2.0
_VACUUM_TIMEOUT_SECONDS = 3600.0
_HOLD_TIMEOUT_SECONDS = 60.0
_HOLD_ATTEMPT_SECONDS = 10.0
"""A server that says nothing for so long while we hold the schema can be frozen. If it was busy, we ask again."""
_REPLICA_TIMEOUT_SECONDS = 3.0
_REPLICA_REST_SECONDS = 30.0
_CLOSE_TIMEOUT_SECONDS = 10.0


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


async def _vacuum(connection: Connection) -> None:
    tables = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema()"
    for (table,) in await connection.fetch(tables):
        await connection.execute(f"VACUUM {table}", timeout=_VACUUM_TIMEOUT_SECONDS)


class PostgresDatabase(Notifier):
    """One PostgreSQL database, shared by any number of gateways."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._servers = parse_servers(url)
        self._direct = Connector(self._servers.direct)
        self._pool: Pool | None = None
        self._replica: Pool | None = None
        self._replica_rests_until = 0.0
        self._lost_at: float | None = None
        """Since when no connection listens; None while one does, and before the first one."""
        self._closed = False
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._listener: asyncio.Task[None] | None = None
        self._held_version: int | None = None
        """The schema version that nobody can migrate while we use it."""
        self._held = asyncio.Event()
        self._newer: NewerSchema | None = None
        self._unsent: set[str] = set()
        """Topics for which other gateways have to be woken."""
        self._has_unsent = asyncio.Event()
        self._batcher = Batcher(lambda members: self._run_with_retries(lambda: self._attempt_batch(members)))
        self._positions: dict[Text, int] = {}
        self._reckon: Reckon | None = None
        self._commits = Commits(COMMIT_SECONDS)
        self._host = ""
        """To which our listener was connected, and the pool can still be."""
        self._server = ""
        """Which one was compared with what we have seen."""
        self._witness = Witness()
        self._looks_at = 0.0
        """When to look again how far the database has got."""
        self._loss: Loss | None = None

    async def open(self) -> None:
        try:
            if not self._servers.is_pooled:
                await refuse_transaction_pooler(self._direct.connect)
            # They know together which host takes writes, unless there is a pooler.
            connector = Connector(self._servers.url) if self._servers.is_pooled else self._direct
            self._pool = await self._open_pool(connector, is_pooled=self._servers.is_pooled)
            await self._pool.run(_do_nothing)
            if self._servers.replica:
                self._replica = await self._open_pool(Connector(self._servers.replica))
        except (*LOST, asyncpg.PostgresError) as error:
            raise StoreUnavailable(_outage_text(error)) from error
        self._listener = asyncio.create_task(self._listen(), name="palaver-listener")

    async def _open_pool(self, connector: Connector, *, is_pooled: bool = False) -> Pool:
        pool = Pool(connector, self._refuse_other_server, is_pooled=is_pooled)
        await pool.open()
        return pool

    @property
    def is_away(self) -> bool:
        return self._lost_seconds > _SILENT_SECONDS

    @property
    def is_stalled(self) -> bool:
        return _seconds_since(self._commits.silent_since) > _SILENT_SECONDS

    @property
    def _lost_seconds(self) -> float:
        return _seconds_since(self._lost_at)

    @property
    def _silent_seconds(self) -> float:
        """For how long the server has not answered, or has confirmed no commit."""
        return max(self._lost_seconds, _seconds_since(self._commits.silent_since))

    async def reckon(self, reckon: Reckon) -> None:
        """Compare the database with what this process has seen of it, now and after each reconnect."""
        self._reckon = reckon
        await self._run_with_retries(lambda: self._on_connection(self._compare))

    async def _compare(self, connection: Connection) -> None:
        if self._reckon is None:
            return
        server, topics = await identify(connection), set[str]()
        async with _transaction(connection, self._begin(_WRITE), topics, self._announce, self._commits):
            found = await _drive(connection, iter(self._reckon(self._witness, server)), topics)
        if self._server not in {"", server}:
            await self._drop_connections()
        self._server, self.epochs, self._loss = server, found.epochs, found.loss or self._loss
        if found.epochs.newest:
            self._witness.start_again(found.epochs.newest.check)
        self._looks_at = 0.0
        await self._look(connection)
        if found.loss:
            self.wake(COMMITS_MISSING)

    async def _look(self, connection: Connection) -> None:
        """Remember how far the database has got, and whether a standby confirms commits."""
        now = asyncio.get_running_loop().time()
        if self._reckon is not None and now >= self._looks_at:
            self._looks_at = now + _PING_SECONDS
            row = await connection.fetchrow(_LOOK, timeout=_ANSWER_SECONDS)
            self._witness.mark = self._witness.mark.raised_to(HighWater(*row[:-1]))
            self._witness.is_synchronous = row[-1]

    async def _refuse_other_server(self, connection: Connection) -> None:
        """Raise ConnectionResetError for a server with which what we have seen was not compared."""
        if self._server and await identify(connection) not in {"", self._server}:
            raise ConnectionResetError("another server has taken over, and what is stored there is compared first")

    def saw(self, seen: Seen) -> None:
        self._witness.saw(seen)

    def take_loss(self) -> Loss | None:
        loss, self._loss = self._loss, None
        return loss

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
        return await self._answer(lambda: self._transact(work), writes=True)

    async def _transact(self, work: Transaction[T]) -> T:
        await self._wait_for_schema()
        with self._admitted():
            if isinstance(work, KeyedTransaction):
                with suppress(RunAlone):
                    return await self._batcher.transact(work)
            return await self._run_with_retries(lambda: self._attempt(work, read_only=False))

    async def read(self, work: Transaction[T]) -> T:
        return await self._answer(lambda: self._read(work), writes=False)

    async def _read(self, work: Transaction[T]) -> T:
        await self._wait_for_schema()
        with self._admitted():
            return await self._run_with_retries(lambda: self._attempt(work, read_only=True))

    async def _answer(self, run: Callable[[], Coroutine[Any, Any, T]], *, writes: bool) -> T:
        """Run it. A request waits for a silent server for a few seconds, over all that it does.

        What it began by then goes on: it may be in its commit, which cannot be taken back.
        """
        waiting = waiting_of_request()
        if waiting is None:
            return await run()
        if (self._silent_seconds if writes else self._lost_seconds) > _PATIENCE_SECONDS:
            raise StoreUnavailable("PostgreSQL has not answered for a while")
        left = max(_LOOK_SECONDS, _PATIENCE_SECONDS - waiting.seconds)
        began = asyncio.get_running_loop().time()
        running = asyncio.create_task(run())
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=_LOOK_SECONDS)
                if not running.done() and self._silent_seconds > _SILENT_SECONDS and _seconds_since(began) > left:
                    running.add_done_callback(_ignore)
                    raise StoreUnavailable("PostgreSQL does not answer: what was asked may or may not have happened")
            return running.result()
        except asyncio.CancelledError:
            running.cancel()
            raise
        finally:
            waiting.seconds += _seconds_since(began)

    async def browse(self, work: Transaction[T]) -> T:
        now = asyncio.get_running_loop().time()
        if self._replica and not self._closed and not self._newer and now >= self._replica_rests_until:
            try:
                return await self._browse(self._replica, work)
            except (*LOST, StoreUnavailable):  # it is gone
                self._replica_rests_until = now + _REPLICA_REST_SECONDS
            except (*ROLLED_BACK, asyncpg.PostgresError):  # it is too far behind
                pass
        return await self.read(work)

    async def _browse(self, replica: Pool, work: Transaction[T]) -> T:
        """Read from the replica. Raise TimeoutError, and drop its connections, if that takes too long."""
        run = partial(_in_transaction, work=work, begin=_READ, announce=self._announce, commits=self._commits)
        reading = asyncio.ensure_future(replica.run(run))
        try:
            await asyncio.wait({reading}, timeout=_REPLICA_TIMEOUT_SECONDS)
            if reading.done():
                return await reading
            raise TimeoutError
        finally:
            if not reading.done():
                await replica.drop()
                reading.cancel()

    async def migrate(self, step: Transaction[T]) -> T:
        """Run a step of a migration, which can take long on a large store."""
        run = partial(_in_transaction, work=step, begin=_WRITE, announce=self._announce, commits=Commits())
        return await self._without_time_limits(run)

    @asynccontextmanager
    async def keep_free(self) -> AsyncGenerator[None]:
        """Keep gateways from starting; raise StoreInUse if one runs."""
        try:
            connection: Connection = await self._direct.connect()
        except (*LOST, asyncpg.PostgresError) as error:
            raise StoreUnavailable(_outage_text(error)) from error
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
            connection: Connection = await self._direct.connect()
            try:
                await connection.execute(DURABLE.format(is_local="false"))
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
                        await self._pool.run(self._send_unsent)
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
            async with asyncio.timeout(self._patience_seconds):
                await self._held.wait()
        except TimeoutError as error:
            raise StoreUnavailable("PostgreSQL does not answer on the connection that holds the schema") from error

    @property
    def _patience_seconds(self) -> float:
        """How long to try again: an outage is waited for once, however many steps somebody takes meanwhile."""
        now = asyncio.get_running_loop().time()
        return max(_LAST_TRY_SECONDS, (self._lost_at or now) + _PATIENCE_SECONDS - now)

    async def _run_with_retries(self, run: Callable[[], Awaitable[T]]) -> T:
        """Run it again if it certainly did not happen. Raise StoreUnavailable if that is not known."""
        pause = _FIRST_PAUSE_SECONDS
        deadline = asyncio.get_running_loop().time() + self._patience_seconds
        for attempt in range(_MAX_ATTEMPTS):
            try:
                return await run()
            except (*ROLLED_BACK, *LOST) as error:
                # Once more in any case: it may have waited for a server that was frozen, and there is another now.
                is_late = attempt and isinstance(error, LOST) and asyncio.get_running_loop().time() > deadline
                if is_late or attempt == _MAX_ATTEMPTS - 1:
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
        run = partial(_in_transaction, work=work, begin=begin, announce=self._announce, commits=self._commits)
        return await self._on_connection(run)

    async def _on_connection(self, run: Callable[[Connection], Awaitable[T]]) -> T:
        if self._pool is None:
            raise StoreError("the store is not open")
        return await self._pool.run(run, None if self._lost_at is None else self._patience_seconds)

    async def _attempt_batch(self, members: Members) -> None:
        async def run(connection: Connection) -> None:
            topics: set[str] = set()
            async with _transaction(connection, self._begin(BEGIN_BATCH), topics, self._announce, self._commits):
                topics.update(await run_batch(connection, members, self._positions))

        await self._on_connection(run)

    def _begin(self, begin: str) -> str:
        """Behind a pooler settings are those of the transaction. The limit on its time is the server's there."""
        if not self._servers.is_pooled:
            return begin
        return f"{begin} SET LOCAL {SILENCE} = '{SESSION_TIMEOUTS[SILENCE]}'; {DURABLE.format(is_local='true')};"

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
        topics, self._unsent = self._unsent, set[str]()
        try:
            await connection.execute(_NOTIFY, sorted(topics), timeout=_ANSWER_SECONDS)
        except BaseException:
            self._unsent |= topics
            raise

    async def _listen(self) -> None:
        """Keep one connection listening. After a reconnect everyone is woken, so nothing is missed."""
        while True:
            try:
                await self._listen_until_lost()
            except TimeoutError:
                await self._drop_connections()
                self._host = ""
            except (*LOST, asyncpg.PostgresError):
                await asyncio.sleep(_FIRST_PAUSE_SECONDS * 4)

    async def _drop_connections(self) -> None:
        """Break all connections of the pool: on a server that is frozen they would wait for as long as it is."""
        if self._pool:
            await self._pool.drop()

    async def _listen_until_lost(self) -> None:
        settings = {} if self._held_version is None else {"application_name": connection_name(self._held_version)}
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            connection: Connection = await self._direct.connect(server_settings=settings)
        except BaseException:
            self._lost_at = self._lost_at or asked_at
            raise

        def on_cut(_: Connection) -> None:
            self._has_unsent.set()

        def on_notify(_: Connection, process: int, _channel: str, topic: str) -> None:
            if process != connection.get_server_pid():
                self.wake(topic)

        connection.add_termination_listener(on_cut)
        try:
            # Before anything begins on the new one.
            if self._host not in {"", self._direct.current}:
                await self._drop_connections()
            self._host = self._direct.current
            async with asyncio.timeout(_HOLD_ATTEMPT_SECONDS):
                await self._hold(connection, self._held_version)
            await connection.add_listener(CHANNEL, on_notify)
            # Nothing that matters is written here: a wake-up can be lost, so everybody also looks from time to time.
            await connection.execute("SET synchronous_commit = off")
            self._lost_at = None
            self.wake_all()
            while not (self._closed or connection.is_closed()):
                # Not `asyncio.wait_for`: before Python 3.12 it can swallow the cancellation that closing waits for.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PING_SECONDS):
                        await self._has_unsent.wait()
                asked_at = loop.time()
                await self._send_unsent(connection)
                await self._look(connection)
                await asyncio.sleep(_COALESCE_SECONDS)
        finally:
            self._held.clear()
            self._lost_at = self._lost_at or asked_at
            connection.terminate()

    async def _hold(self, connection: Connection, version: int | None) -> None:
        """Hold the schema, and refuse all work if it was migrated while the connection was lost. Compare what is there.

        Without a version it is not held.
        """
        if version is None:
            await self._compare(connection)
            return
        await connection.execute(HOLD_SCHEMA)
        self._newer = None
        try:
            check_schema(await connection.fetch(READ_SCHEMA), version, serves=True)
        except NewerSchema as newer:
            self._newer = newer
        else:
            await self._compare(connection)
        self._held.set()


def _seconds_since(began: float | None) -> float:
    return 0.0 if began is None else asyncio.get_running_loop().time() - began


def _ignore(running: "asyncio.Task[Any]") -> None:
    """Nobody waits for it any more."""
    if not running.cancelled():
        running.exception()


def _outage_text(error: Exception) -> str:
    if isinstance(error, ROLLED_BACK):
        return f"PostgreSQL rolled the transaction back {_MAX_ATTEMPTS} times, and nothing was written: {error}"
    return f"PostgreSQL does not answer: {str(error) or 'no answer in time'}"


async def _in_transaction(
    connection: Connection, *, work: Transaction[T], begin: str, announce: Announce, commits: Commits
) -> T:
    topics: set[str] = set()
    async with _transaction(connection, begin, topics, announce, commits):
        return await _drive(connection, iter(work), topics)


@asynccontextmanager
async def _transaction(
    connection: Connection, begin: str, topics: set[str], announce: Announce, commits: Commits
) -> AsyncGenerator[None]:
    """Commit at the end and announce the topics that were collected until then; roll back after an error."""
    try:
        await _begin(connection, begin)
        yield
        try:
            # What only reads can be done again, also if its commit gets no answer.
            await (connection.execute("COMMIT;") if begin.startswith(_READ) else commits.commit(connection))
        finally:  # it may have happened even if it failed
            announce(topics)
    except BaseException:
        # The first error is the reason, even if the connection breaks during the rollback, or was dropped.
        with suppress(*LOST, AttributeError):
            await connection.execute("ROLLBACK;")
        raise


async def _begin(connection: Connection, begin: str) -> None:
    try:
        await connection.execute(begin)
    except asyncpg.FeatureNotSupportedError as error:  # only a standby knows no such transaction
        connection.terminate()
        raise StandbyAnswered("the server is a standby, which takes no writes") from error


async def _do_nothing(_: Connection) -> None:
    """Only connect."""
