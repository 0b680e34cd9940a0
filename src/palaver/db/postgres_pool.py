"""Connections to PostgreSQL: to the host that answers as it should, and in pools that can be dropped at once."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg

from palaver.db.postgres_servers import hosts_of
from palaver.db.postgres_statements import LOST

T = TypeVar("T")
# asyncpg has no types of its own.
Connection = Any
_Opening = asyncio.Task[Connection]
_asyncpg: Any = asyncpg

_MAX_CONNECTIONS = 10
_CONNECT_TIMEOUT_SECONDS = 3.0
"""For each host by itself: one that is frozen takes connections and says nothing."""
_HEAD_START_SECONDS = 0.5
"""After which the other hosts are tried beside the one that answered last."""
_COMMAND_TIMEOUT_SECONDS = 60.0
_CACHED_STATEMENTS = 512
IDENTIFY = """
SELECT CASE WHEN NOT pg_is_in_recovery() THEN (SELECT system_identifier FROM pg_control_system())::text
 || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) END
"""
"""Names the server and its timeline, which changes when a standby is promoted; NULL on a standby."""
SILENCE = "idle_in_transaction_session_timeout"
SESSION_TIMEOUTS = {SILENCE: "5s", "transaction_timeout": "60s"}
"""A connection that is silent for so long inside a transaction is frozen or gone, and others wait for its locks.

The first does not count while the server has half a statement; the second does, from PostgreSQL 17.
"""
DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', {is_local})"
    " WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')"
)
"""A commit that returns is on disk, and on the synchronous standby if there is one, whatever the role's default."""
_SET_TIMEOUTS = """
SELECT set_config(name, period, false) FROM unnest($1::text[], $2::text[]) AS timeouts (name, period)
WHERE current_setting(name, true) IS NOT NULL
"""


async def identify(connection: Connection) -> str:
    """Name the server and its timeline; nothing if it is a standby, or does not tell."""
    try:
        return await connection.fetchval(IDENTIFY) or ""
    except LOST:
        raise
    except asyncpg.PostgresError:  # some providers allow it to nobody
        return ""


class Connector:
    """Connects to a host of a URL that answers and has the `target_session_attrs`. The last one goes first."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._urls = hosts_of(url)
        self.current = self._urls[0]

    async def connect(self, *_: object, **settings: Any) -> Connection:  # noqa: ANN401
        """Raise the error of the last host if none can be used."""
        settings["timeout"] = _CONNECT_TIMEOUT_SECONDS
        current = self.current
        first = {self._open(current, settings): current}
        again: dict[_Opening, str] = {}
        try:
            await asyncio.wait(first, timeout=_HEAD_START_SECONDS)
            if not any(each.done() and not each.exception() for each in first):
                first |= {self._open(url, settings): url for url in self._urls if url != current}
            while True:
                await asyncio.wait([*first, *again], return_when=asyncio.FIRST_COMPLETED)
                for tries in (first, again):
                    for each in [each for each in tries if each.done()]:
                        url = tries.pop(each)
                        if not each.exception():
                            self.current = url
                            return each.result()
                        if not first:
                            return each.result()  # raises
                        # One is silent. Until that is known to be gone, this one can take over.
                        again[self._open(url, settings, after=_HEAD_START_SECONDS)] = url
        finally:
            for each in (*first, *again):
                each.cancel()
                each.add_done_callback(_drop_late)

    @staticmethod
    def _open(url: str, settings: dict[str, Any], after: float = 0.0) -> "_Opening":
        async def open_host() -> Connection:
            await asyncio.sleep(after)
            return await _asyncpg.connect(url, **settings)

        return asyncio.create_task(open_host())


def _drop_late(opening: "_Opening") -> None:
    """Drop a connection that was not needed any more."""
    if not opening.cancelled() and not opening.exception():
        opening.result().terminate()


class Pool:
    """A pool of connections, all of which can be dropped at once if their server has gone silent."""

    def __init__(
        self, connector: Connector, check: Callable[[Connection], Awaitable[None]], *, is_pooled: bool = False
    ) -> None:
        """`check` raises an error for a connection that must not be used."""
        self._check = check
        self._is_pooled = is_pooled
        self._in_use: set[Connection] = set()
        self._pool = _asyncpg.create_pool(
            connector.url,
            min_size=0,  # with more, the pool reconnects in the background and logs tracebacks during an outage
            max_size=_MAX_CONNECTIONS,
            command_timeout=_COMMAND_TIMEOUT_SECONDS,
            # The next transaction can get another connection of the server, without what was prepared.
            statement_cache_size=0 if is_pooled else _CACHED_STATEMENTS,
            connect=connector.connect,
            init=self._set_up,
            reset=_reset_nothing,
            server_settings={"application_name": f"palaver, pid {os.getpid()} on {socket.gethostname()}"[:63]},
        )

    async def open(self) -> None:
        await self._pool

    async def _set_up(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
                if not self._is_pooled:
                    await connection.execute(_SET_TIMEOUTS, list(SESSION_TIMEOUTS), list(SESSION_TIMEOUTS.values()))
                    await connection.execute(DURABLE.format(is_local="false"))
                await self._check(connection)
        except BaseException:
            connection.terminate()  # the driver would say goodbye, and wait for the answer
            raise

    async def run(self, work: Callable[[Connection], Awaitable[T]], within: float | None = None) -> T:
        """Do it on a connection that is free or made `within` so many seconds."""
        connection: Connection = await self._pool.acquire(timeout=within)
        self._in_use.add(connection)
        try:
            return await work(connection)
        except AttributeError as error:  # asyncpg's, from a connection that was dropped between two statements
            if connection in self._in_use:
                raise
            raise ConnectionResetError("it was dropped, because its server does not answer") from error
        finally:
            self._in_use.discard(connection)
            with suppress(*LOST):  # a connection that breaks now must not make a committed transaction look failed
                await self._pool.release(connection)

    async def drop(self) -> None:
        """Break the connections that are in use, and use none of the others again."""
        dropped, self._in_use = self._in_use, set[Connection]()
        for connection in dropped:
            connection.terminate()
        await self._pool.expire_connections()

    async def close(self) -> None:
        await self._pool.close()

    def terminate(self) -> None:
        self._pool.terminate()


async def _reset_nothing(_: Connection) -> None:
    """Reset nothing: a transaction leaves nothing behind in its connection."""
