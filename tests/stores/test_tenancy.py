"""A newer Palaver does not change the schema of PostgreSQL under gateways of an older one."""

import asyncio
import os
from collections.abc import Callable

import pytest

from palaver.domain.errors import NewerSchema, StoreInUse
from palaver.ports.work import Row, Steps, work
from palaver.stores import opening
from palaver.stores.opening import open_store
from palaver.stores.postgres import PostgresDatabase
from palaver.stores.schema import Migration, known_migrations
from palaver.stores.store import Store
from tests.stores.conftest import DRIVER, fresh_store

OLDER = known_migrations()
NEWEST = OLDER[-1].number
NEXT = Migration(NEWEST + 1, "next", "CREATE TABLE moods (no @counter) @strict;")


@work
def _schema() -> Steps[list[Row]]:
    return (yield "SELECT value FROM meta WHERE name = 'schema'", ())


@pytest.fixture
async def url(postgres_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(opening, "_PATIENCE", 0.1)
    return await fresh_store(postgres_server)


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Palaver as it may be one day."""
    return lambda: monkeypatch.setattr(opening, "known_migrations", lambda: [*OLDER, NEXT])


async def test_who_still_works_with_it_is_named_and_nothing_is_changed(url: str, upgrade: Callable[[], None]) -> None:
    async with await open_store(url, exclusive=True) as one, await open_store(url, exclusive=True):
        upgrade()
        for exclusive in (False, True):
            with pytest.raises(StoreInUse) as refused:
                await open_store(url, exclusive=exclusive)
            told = str(refused.value)
            assert "older than this Palaver's, and gateways still work with it" in told
            assert told.count(f"palaver gateway, schema {NEWEST}, pid {os.getpid()} on ") == 2
        assert await one.read(_schema()) == [(str(NEWEST),)]
    async with await open_store(url, exclusive=True) as store:
        assert await store.read(_schema()) == [(str(NEXT.number),)]


async def test_a_command_holds_nothing_up(url: str, upgrade: Callable[[], None]) -> None:
    async with await open_store(url):
        upgrade()
        async with await open_store(url) as store:
            assert await store.read(_schema()) == [(str(NEXT.number),)]


async def test_what_was_changed_while_a_gateway_was_cut_off_ends_its_work(url: str) -> None:
    async with await open_store(url, exclusive=True) as store:
        connection = await DRIVER.connect(url)
        await connection.execute("UPDATE meta SET value = '99' WHERE name = 'schema'")
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'palaver gateway%'"
            " AND datname = current_database()"
        )
        await connection.close()
        with pytest.raises(NewerSchema, match="schema 99"):
            await asyncio.wait_for(_reads_on(store), 10)


async def _reads_on(store: Store) -> None:
    while True:
        await store.read(_schema())
        await asyncio.sleep(0.01)


async def test_a_gateway_that_starts_while_the_schema_is_changed_finds_it_changed(url: str) -> None:
    connection = await DRIVER.connect(url)
    await connection.execute("UPDATE meta SET value = '99' WHERE name = 'schema'")
    await connection.close()
    database = PostgresDatabase(url)
    await database.open()
    try:
        with pytest.raises(NewerSchema, match="schema 99"):
            await database.serve(NEWEST)
    finally:
        await database.close()
