"""Stores of the last schema that cannot be migrated, only copied."""

import sqlite3
from contextlib import closing
from pathlib import Path

from palaver.db.postgres_statements import to_postgres
from palaver.db.schema import POSTGRES, SQLITE, translate
from palaver.db.tables import copy_order
from palaver.store.opening import sqlite_path
from tests.store.conftest import DRIVER

__all__ = ["OLDER", "change_older", "make_older"]

OLDER = 70
_DDL = Path(__file__).with_name("schema_70.sql").read_text()


async def make_older(source: Path, url: str) -> None:
    """Make a store of the older schema with the rows of one of ours."""
    statements = translate(_DDL, SQLITE if sqlite_path(url) else POSTGRES)
    await change_older(url, *statements)
    with closing(sqlite3.connect(source)) as db:
        for table in copy_order():
            columns = ", ".join(table.columns)
            rows = db.execute(f"SELECT {columns} FROM {table.name}").fetchall()  # noqa: S608 - our own words
            if rows:
                await _insert(url, f"INSERT INTO {table.name} ({columns})", rows)
    await change_older(url, f"UPDATE meta SET value = '{OLDER}' WHERE name = 'schema'")  # noqa: S608


async def _insert(url: str, into: str, rows: list[tuple[object, ...]]) -> None:
    width = len(rows[0])
    if path := sqlite_path(url):
        with closing(sqlite3.connect(path)) as db, db:
            db.executemany(f"{into} VALUES ({', '.join('?' * width)})", rows)
        return
    connection = await DRIVER.connect(url)
    try:
        places = ", ".join(f"${number}" for number in range(1, width + 1))
        await connection.executemany(f"{into} VALUES ({places})", rows)
    finally:
        await connection.close()


async def change_older(url: str, *statements: str) -> None:
    if path := sqlite_path(url):
        with closing(sqlite3.connect(path)) as db, db:
            for statement in statements:
                db.execute(statement)
        return
    connection = await DRIVER.connect(url)
    try:
        for statement in statements:
            await connection.execute(to_postgres(statement))
    finally:
        await connection.close()
