"""Bare asyncpg: one connection, and a pool of as many as the store has."""

from typing import Any, Self

import asyncpg

from bench.raw import Call, Script
from palaver.db.postgres import CHANNEL
from palaver.db.postgres_statements import LOCK, to_postgres
from palaver.db.transaction import Lock, Notify, Row, Statement, Transaction

__all__ = ["BarePool", "RawPostgres"]

# asyncpg has no types of its own.
_asyncpg: Any = asyncpg
_CONNECTIONS = 10


class RawPostgres:
    def __init__(self, connection: Any) -> None:  # noqa: ANN401
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> Self:
        return cls(await _asyncpg.connect(url))

    async def record(self, work: Transaction[Any]) -> Script:
        script: Script = []
        steps = iter(work)
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            statement: Statement = next(steps)
            while True:
                script.append(_in_postgres(statement))
                statement = steps.send(await _run(self._connection, script[-1]))
        except StopIteration:
            return script
        finally:
            await transaction.rollback()

    async def replay(self, script: Script) -> list[Row]:
        return await _replay(self._connection, script)

    async def transact(self, script: Script) -> None:
        async with self._connection.transaction():
            await _replay(self._connection, script)

    def between(self) -> None:
        pass

    async def close(self) -> None:
        await self._connection.close()


def _in_postgres(statement: Statement) -> Call:
    """Locks and wake-ups are statements there."""
    if isinstance(statement, Lock):
        return LOCK, (statement.name,)
    if isinstance(statement, Notify):
        return "SELECT pg_notify($1, $2)", (CHANNEL, statement.topic)
    return to_postgres(statement[0]), statement[1]


async def _run(connection: Any, call: Call) -> list[Row]:  # noqa: ANN401
    sql, values = call
    if isinstance(values, list):
        await connection.executemany(sql, values)
        return []
    return await connection.fetch(sql, *values)


async def _replay(connection: Any, script: Script) -> list[Row]:  # noqa: ANN401
    rows: list[Row] = []
    for call in script:
        rows = await _run(connection, call)
    return rows


class BarePool:
    """Every transaction on the next free connection."""

    def __init__(self, pool: Any) -> None:  # noqa: ANN401
        self._pool = pool

    @classmethod
    async def open(cls, url: str) -> Self:
        return cls(await _asyncpg.create_pool(url, min_size=1, max_size=_CONNECTIONS))

    async def transact(self, script: Script) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            await _replay(connection, script)

    def between(self) -> None:
        pass

    async def close(self) -> None:
        await self._pool.close()
