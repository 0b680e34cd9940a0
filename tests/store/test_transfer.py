"""A store moves to the other database and back: every row, no number twice, killed in between, never half used."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from palaver.db.tables import copy_order
from palaver.db.transaction import Statements, Value, transaction
from palaver.model.errors import StoreError, StoreInUse
from palaver.model.turn import Outbound
from palaver.store.conversations import deletion
from palaver.store.opening import open_store
from palaver.store.queue import outbox
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from palaver.store.transfer import CopyInUse, Differs, transfer
from tests.forkserver import ROOT, start_module
from tests.store.conftest import fresh_database
from tests.store.test_forgetting import live
from tests.store.world import OPERATOR, World, cause, dm


@transaction
def ask(sql: str, *values: Value) -> Statements[list[tuple[Any, ...]]]:
    return [tuple(row) for row in (yield sql, values)]


async def contents(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    async with await open_store(url) as store:
        for table in copy_order():
            sql = f"SELECT {', '.join(table.columns)} FROM {table.name}"  # noqa: S608
            found[table.name] = sorted(await store.read(ask(sql)), key=repr)
    found["meta"] = [row for row in found["meta"] if row[0] not in {"schema", "copy of", "server"}]
    return found


@pytest.fixture
async def sqlite(tmp_path: Path) -> str:
    """A store in which a lot has happened."""
    url = str(tmp_path / "old.db")
    async with await open_store(url) as store:
        await live(store)
        world = World(store)
        gone = await world.exchange("a word that is soon gone", source=dm("88"))
        await store.transact(deletion.delete(gone.turn.session, OPERATOR, world.now))
        await store.transact(
            outbox.enqueue(Outbound(platform="telegram", chat_id="7", text="n"), cause("x"), world.now)
        )
    return url


@pytest.fixture
async def postgres(request: pytest.FixtureRequest) -> str:
    return await fresh_database(request.getfixturevalue("postgres_server"))


async def test_there_and_back_again_every_row_is_the_same(sqlite: str, postgres: str, tmp_path: Path) -> None:
    before, back = await contents(sqlite), str(tmp_path / "back.db")
    steps: list[str] = []
    done = await transfer(sqlite, postgres, "old", progress=lambda what, _: steps.append(what))
    assert done.rows == sum(len(rows) for name, rows in before.items() if name != "meta")
    assert "copy entries" in steps
    assert "compare entries" in steps
    assert await contents(postgres) == before
    await transfer(postgres, back, "middle")
    assert await contents(back) == before == await contents(sqlite)
    for url in (postgres, back):
        async with await open_store(url) as store:
            assert await store.read(violations()) == []
            await _continues(store)


async def _continues(store: Store) -> None:
    """New rows get numbers that were never given, and what was said before is found."""
    before = (await store.read(ask("SELECT max(no) FROM turns")))[0][0]
    begun = await World(store).exchange("after the move", source=dm("99"))
    assert begun.turn.number > before + 1, "the last turn was deleted with its session"
    assert await store.search.catch_up() >= 0
    assert await store.read(violations()) == []


async def test_killed_anywhere_it_continues_and_is_not_used_before(sqlite: str, postgres: str) -> None:
    before = await contents(sqlite)
    for step in (2, 9, 14):
        child = start_module("tests.store.transfer_child", sqlite, postgres, "7", str(step), cwd=ROOT)
        assert await asyncio.to_thread(child.wait) == -signal.SIGKILL
        with pytest.raises(StoreError, match="incomplete copy of old"):
            await open_store(postgres)
    with pytest.raises(StoreError, match="incomplete copy of old"):
        await transfer(sqlite, postgres, "another")
    await transfer(sqlite, postgres, "old")
    assert await contents(postgres) == before


async def test_a_copy_that_ended_is_recognised_until_it_is_used(sqlite: str, postgres: str) -> None:
    """The command can be killed after its last step, before it says so."""
    done = await transfer(sqlite, postgres, "old")
    assert await transfer(sqlite, postgres, "old") == done
    with pytest.raises(StoreError, match="not empty"):
        await transfer(sqlite, postgres, "another")
    async with await open_store(postgres) as store:
        await World(store).exchange("after the move", source=dm("99"))
    used = await contents(postgres)
    with pytest.raises(CopyInUse, match="complete copy of old"):
        await transfer(sqlite, postgres, "old")
    with pytest.raises(StoreError, match="not empty"):
        await transfer(sqlite, postgres, "old", restart=True)
    assert await contents(postgres) == used


async def test_a_source_that_changed_meanwhile_is_noticed(sqlite: str, postgres: str) -> None:
    def stop(what: str, _: int) -> None:
        if what == "compare turns":
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await transfer(sqlite, postgres, "old", progress=stop)
    async with await open_store(sqlite) as store:
        await store.transact(ask("UPDATE people SET name = 'changed'"))
    with pytest.raises(Differs, match="people"):
        await transfer(sqlite, postgres, "old")
    await transfer(sqlite, postgres, "old", restart=True)
    assert await contents(postgres) == await contents(sqlite)


async def test_a_running_gateway_or_a_full_target_is_refused(sqlite: str, postgres: str) -> None:
    async with await open_store(sqlite, exclusive=True):
        with pytest.raises(StoreInUse):
            await transfer(sqlite, postgres, "old")
    async with await open_store(postgres, exclusive=True):
        with pytest.raises(StoreInUse):
            await transfer(sqlite, postgres, "old")
    async with await open_store(postgres) as store:
        await World(store).exchange("somebody is here")
    with pytest.raises(StoreError, match="not empty"):
        await transfer(sqlite, postgres, "old")
    with pytest.raises(StoreError, match="not empty"):
        await transfer(sqlite, postgres, "old", restart=True)
