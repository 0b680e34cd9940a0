"""A newer Palaver does not change the schema of PostgreSQL under gateways of an older one."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palaver.config.model import Config
from palaver.db import postgres
from palaver.db.postgres import PostgresDatabase
from palaver.db.schema import HOLD_SCHEMA, Migration, known_migrations
from palaver.db.transaction import Row, Statements, transaction
from palaver.gateway.gateway import Gateway
from palaver.model.errors import NewerSchema, StoreInUse, StoreUnavailable
from palaver.store import opening
from palaver.store.damage.schema import check_schema
from palaver.store.opening import open_store
from palaver.store.store import Store
from tests.engine.gateway import until
from tests.store.conftest import DRIVER, fresh_store

OLDER = known_migrations()
NEWEST = OLDER[-1].number
NEXT = Migration(NEWEST + 1, "next", "CREATE TABLE moods (no @counter) @strict;")
ADDITIVE = NEXT._replace(sql=f"-- additive\n{NEXT.sql}")


@transaction
def _schema() -> Statements[list[Row]]:
    return (yield "SELECT value FROM meta WHERE name = 'schema'", ())


@pytest.fixture
async def url(postgres_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(opening, "_GATEWAY_START_SECONDS", 0.1)
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
            assert "older than this Palaver's, and gateways still use it" in told
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
        await connection.execute("UPDATE meta SET value = '999' WHERE name = 'schema'")
        await connection.execute(_CUT)
        await connection.close()
        with pytest.raises(NewerSchema, match="schema 999"):
            await asyncio.wait_for(_reads_on(store), 60)


async def _reads_on(store: Store) -> None:
    while True:
        await store.read(_schema())
        await asyncio.sleep(0.01)


_CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'palaver gateway%'"
    " AND datname = current_database()"
)


async def test_a_gateway_that_was_cut_off_and_finds_a_newer_schema_ends_and_says_so(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    connection = await DRIVER.connect(url)
    serving = asyncio.create_task(Gateway(Config(data_dir=tmp_path, store=url)).serve())
    try:
        await until(lambda: "the gateway is up" in caplog.text)
        await connection.execute("UPDATE meta SET value = '999' WHERE name = 'schema'")
        await connection.execute(_CUT)
        with pytest.raises(NewerSchema, match="schema 999"):
            await asyncio.wait_for(serving, 60)
    finally:
        serving.cancel()
        await connection.close()


async def test_gateways_are_upgraded_one_after_the_other(
    url: str,
    tmp_path: Path,
    upgrade: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As docs/install.md says: side by side with the same schema, and alone where a migration changes it."""
    caplog.set_level("INFO")
    config = Config(data_dir=tmp_path, store=url)
    old, beside = Gateway(config), Gateway(config)
    serving = [asyncio.create_task(each.serve()) for each in (old, beside)]
    await until(lambda: caplog.text.count("the gateway is up") == 2)
    upgrade()
    with pytest.raises(StoreInUse, match="gateways still use it"):
        await Gateway(config).serve()
    for each in (old, beside):
        each.stop()
    assert await asyncio.gather(*serving) == [True, True]
    new = Gateway(config)
    started = asyncio.create_task(new.serve())
    await until(lambda: caplog.text.count("the gateway is up") == 3)
    monkeypatch.undo()
    with pytest.raises(NewerSchema):
        await Gateway(config).serve()
    new.stop()
    assert await started


async def test_gateways_go_on_beside_one_that_only_adds_to_the_schema(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await open_store(url, exclusive=True) as old:
        with monkeypatch.context() as newer:
            newer.setattr(opening, "known_migrations", lambda: [*OLDER, ADDITIVE])
            async with await open_store(url, exclusive=True) as new:
                assert await new.read(_schema()) == await old.read(_schema()) == [(str(NEXT.number),)]
        connection = await DRIVER.connect(url)
        before = await _holders(connection)
        await connection.execute(_CUT)  # who comes back looks at the schema again
        await until(lambda: _is_held_again(connection, before))
        await connection.close()
        async with await open_store(url, exclusive=True) as again:
            found = await check_schema(again)
            assert found.ok
            assert f"added to the schema {NEWEST}" in found.found
        with pytest.raises(NewerSchema, match=f"schema {NEXT.number}"):
            await open_store(url)  # a command could miss what was added
        last = NEXT._replace(number=NEXT.number + 1, sql=NEXT.sql.replace("moods", "tastes"))
        monkeypatch.setattr(opening, "known_migrations", lambda: [*OLDER, ADDITIVE, last])
        with pytest.raises(StoreInUse, match="gateways still use it"):
            await open_store(url)
    async with await open_store(url):
        monkeypatch.undo()
        with pytest.raises(NewerSchema):
            await open_store(url, exclusive=True)


async def _holders(connection: Any) -> set[int]:
    here = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    found = await connection.fetch(f"SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND {here}")  # noqa: S608
    return {row[0] for row in found}


async def _is_held_again(connection: Any, before: set[int]) -> bool:
    """Whether who held the schema before is gone, and somebody holds it."""
    found = await _holders(connection)
    return bool(found) and found.isdisjoint(before)


async def _is_waited_for(connection: Any) -> bool:
    return bool(await connection.fetch("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))


async def test_who_is_cut_off_does_nothing_while_somebody_changes_the_schema(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_PATIENCE_SECONDS", "_LAST_TRY_SECONDS"):
        monkeypatch.setattr(postgres, name, 0.1)
    async with await open_store(url, exclusive=True) as store:
        changes, cuts = await DRIVER.connect(url), await DRIVER.connect(url)
        alone = asyncio.create_task(changes.execute(HOLD_SCHEMA.replace("_shared", "")))
        await until(lambda: _is_waited_for(cuts))
        await cuts.execute(_CUT)
        await alone
        with pytest.raises(StoreUnavailable, match="holds the schema"):
            await asyncio.wait_for(_reads_on(store), 60)
        await changes.close()
        monkeypatch.undo()
        assert await store.read(_schema()) == [(str(NEWEST),)]
        await cuts.close()


async def test_a_gateway_that_starts_while_the_schema_is_changed_finds_it_changed(url: str) -> None:
    connection = await DRIVER.connect(url)
    await connection.execute("UPDATE meta SET value = '999' WHERE name = 'schema'")
    await connection.close()
    database = PostgresDatabase(url)
    await database.open()
    try:
        with pytest.raises(NewerSchema, match="schema 999"):
            await database.serve(NEWEST)
    finally:
        await database.close()
