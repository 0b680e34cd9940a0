"""Statements that fail now and then, below the store's own suite: anyone who tries again notices nothing.

`PALAVER_INTERRUPT=1 make test ARGS=tests/store` runs the suite like that.
"""

import asyncio
import random
import re
import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

import asyncpg
import pytest

from palaver.db import cipher, postgres
from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Row, Statement, Transaction
from palaver.model.errors import StoreUnavailable

__all__ = ["Interruptions", "interrupted", "try_again"]

T = TypeVar("T")

_LONGEST_PEACE = (5, 30, 60, 3000)
"""At most so many statements in a row pass; the last is enough for a migration."""
_ATTEMPTS = 100


class Interruptions:
    """The same seed and the same calls give the same failures."""

    def __init__(self, seed: int) -> None:
        self.count = 0
        self._chance = random.Random(seed)  # noqa: S311 - a test
        self._left = self._draw()

    def strikes(self) -> bool:
        self._left -= 1
        if self._left > 0:
            return False
        self.count += 1
        self._left = self._draw()
        return True

    def _draw(self) -> int:
        return self._chance.randint(1, self._chance.choice(_LONGEST_PEACE))


def _interrupt_sqlite(patch: pytest.MonkeyPatch, chance: Interruptions) -> None:
    """Each statement of a write transaction can fail, and the commit before it happens."""
    encrypted = cipher.sqlcipher()
    patch.setattr(cipher, "sqlite3", _failing(sqlite3, chance))
    patch.setattr(cipher, "sqlcipher", lambda: _failing(encrypted, chance))
    try_again(patch)


def _failing(driver: Any, chance: Interruptions) -> SimpleNamespace:
    """The driver, whose connections are interrupted."""

    def refuse(db: Any, sql: str) -> None:
        if db.in_transaction and sql != "ROLLBACK" and chance.strikes():
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

    class Cursor(driver.Cursor):
        def execute(self, sql: str, parameters: Any = (), /) -> "Cursor":
            refuse(self.connection, sql)
            driver.Cursor.execute(self, sql, parameters)
            return self

        def executemany(self, sql: str, parameters: Iterable[Any], /) -> "Cursor":
            refuse(self.connection, sql)
            driver.Cursor.executemany(self, sql, parameters)
            return self

    class Connection(driver.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return driver.Connection.cursor(self, factory)

        def execute(self, sql: str, parameters: Any = (), /) -> Any:
            refuse(self, sql)
            return driver.Connection.execute(self, sql, parameters)

    def connect(name: str, **more: Any) -> Any:
        return driver.connect(name, factory=Connection, **more)

    return SimpleNamespace(**{**vars(driver), "connect": connect})


def try_again(patch: pytest.MonkeyPatch) -> None:
    """Try each transaction again that met an error of the disk."""
    for name in ("transact", "read"):
        patch.setattr(SqliteDatabase, name, _trying_again(getattr(SqliteDatabase, name)))
    scrub = SqliteDatabase.scrub

    async def scrub_again(database: SqliteDatabase) -> None:
        """As a gateway does: what is left to scrub is owed."""
        for _ in range(_ATTEMPTS):
            try:
                return await scrub(database)
            except StoreUnavailable as error:
                if not _DISK_ERROR.search(str(error)):
                    raise
        raise AssertionError(f"scrub failed {_ATTEMPTS} times")

    patch.setattr(SqliteDatabase, "scrub", scrub_again)


_DISK_ERROR = re.compile("disk I/O error|made to fail")


def _trying_again(method: Callable[..., Any]) -> Callable[..., "asyncio.Future[Any]"]:
    async def retry(first: "asyncio.Future[T]", database: SqliteDatabase, work: Transaction[T]) -> T:
        attempt = first
        for _ in range(_ATTEMPTS):
            try:
                return await attempt
            except StoreUnavailable as error:
                if not _DISK_ERROR.search(str(error)):
                    raise
            attempt = asyncio.ensure_future(method(database, work))
        raise AssertionError(f"{work.func.__name__} failed {_ATTEMPTS} times")

    def start(database: SqliteDatabase, work: Transaction[T]) -> "asyncio.Future[T]":
        first = asyncio.ensure_future(method(database, work))
        answer = asyncio.ensure_future(retry(first, database, work))
        answer.add_done_callback(lambda _: first.cancel())  # also if it is cancelled before it begins
        return answer

    return start


def _interrupt_postgres(patch: pytest.MonkeyPatch, chance: Interruptions) -> None:
    """The connection breaks before a statement: the driver itself tries again."""
    run: Callable[[Any, Statement], Any] = getattr(postgres, "_run")  # noqa: B009 - it is private

    async def run_or_break(connection: Any, statement: Statement) -> Sequence[Row]:
        if chance.strikes():
            connection.terminate()
            raise asyncpg.PostgresConnectionError("the connection was cut")
        return await run(connection, statement)

    patch.setattr(postgres, "_run", run_or_break)
    patch.setattr(postgres, "_MAX_ATTEMPTS", _ATTEMPTS)
    patch.setattr(postgres, "_MAX_PAUSE_SECONDS", 0.0)
    patch.setattr(postgres, "_FIRST_PAUSE_SECONDS", 0.0)


@contextmanager
def interrupted(seed: int) -> Generator[Interruptions]:
    chance = Interruptions(seed)
    with pytest.MonkeyPatch.context() as patch:
        _interrupt_sqlite(patch, chance)
        _interrupt_postgres(patch, chance)
        yield chance
