"""Every store test runs on both engines, but those in on_sqlite.txt, whose statements others run on PostgreSQL."""

import os
from collections.abc import AsyncIterator, Generator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from palaver.store.opening import open_store
from palaver.store.store import Store
from tests.store.encrypted import IS_ENCRYPTED, encrypted_stores
from tests.store.failing_disk import failing_every
from tests.store.interruptions import interrupted
from tests.store.statements import name_in_list, on_sqlite_only

ENGINES = ("sqlite", "postgres")
_databases = count(1)
_templates: dict[str, str] = {}
_done: dict[str, list[str]] = {}
# asyncpg has no types of its own.
DRIVER: Any = asyncpg


async def fresh_database(server: str, template: str = "template1") -> str:
    """A new database on the server: an empty one, or a copy of another. Those that tests are done with go."""
    name = f"test_{os.getpid()}_{next(_databases)}"
    connection = await DRIVER.connect(server)
    try:
        for url in _done.pop(server, []):
            await connection.execute(f"DROP DATABASE {_name(url)} WITH (FORCE)")
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    finally:
        await connection.close()
    return server.replace("/postgres?", f"/{name}?")


def _name(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


async def fresh_store(server: str) -> str:
    """A new database with the tables of an empty store, which are quicker to copy than to make."""
    if server not in _templates:
        url = await fresh_database(server)
        async with await open_store(url):
            _templates[server] = _name(url)
    return await fresh_database(server, _templates[server])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    listed = on_sqlite_only()
    left_out = [item for item in items if "[postgres" in item.name and name_in_list(item) in listed]
    if IS_ENCRYPTED:  # the contract suite; others look into the files themselves
        left_out = [item for item in items if "[sqlite" not in item.name]
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(params=ENGINES)
async def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/palaver.db"
        return
    server: str = request.getfixturevalue("postgres_server")
    is_about_tables = request.path.parent.name == "db" or request.path.name == "test_opening.py"
    makes_them = is_about_tables and "store" not in request.fixturenames
    url = await (fresh_database if makes_them else fresh_store)(server)
    yield url
    _done.setdefault(server, []).append(url)


@pytest.fixture(autouse=True)
def _interruptions() -> Generator[None]:
    """With `PALAVER_INTERRUPT` every store of the suite is interrupted again and again; the number is a seed."""
    seed = os.environ.get("PALAVER_INTERRUPT")
    if seed is None:
        yield
        return
    with interrupted(int(seed)):
        yield


@pytest.fixture(autouse=True)
def _failing_disk(request: pytest.FixtureRequest) -> Generator[None]:
    """With `PALAVER_FAIL_DISK=n` each n-th write or flush of a log fails under every store of the suite."""
    n = os.environ.get("PALAVER_FAIL_DISK")
    if n is None or "failing_disk" in request.node.nodeid:
        yield
        return
    with failing_every(int(n)):
        yield


@pytest.fixture(autouse=True)
def _encrypted() -> Generator[None]:
    """With `PALAVER_ENCRYPTED` the suite runs on SQLite alone, and every store of it is encrypted."""
    with encrypted_stores() if IS_ENCRYPTED else nullcontext():
        yield


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    async with await open_store(store_url) as opened:
        yield opened
