"""Any text from outside can be stored, on both engines alike."""

import asyncio
import gc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.db.transaction import Statements, storable, transaction
from palaver.model.turn import Usage
from palaver.store.conversations import sessions
from palaver.store.opening import open_store
from palaver.store.queue import turns
from palaver.store.store import Store
from tests.store.world import NOON, World, dm, key_of

_HOSTILE = "a\0b \ud83d c"
_STORED = "a\ufffdb \ufffd c"


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


@transaction
def column(sql: str, *values: str) -> Statements[list[str]]:
    rows = yield sql, values
    return [row[0] for row in rows]


async def test_nul_and_half_surrogates_are_replaced_in_every_text_column(world: World) -> None:
    await world.say("hello")
    begun = await world.begin()
    assert begun
    await world.store.transact(
        turns.settle(begun.turn, [], [], NOON, error=_HOSTILE, usage=Usage(model=_HOSTILE)),
    )
    await world.store.transact(sessions.reset(key_of(dm()), dm(), NOON, by=_HOSTILE))
    found = [
        await world.store.read(column(f"SELECT {name} FROM {table}"))  # noqa: S608
        for name, table in (("error", "turns"), ("model", "turns"), ("actor", "operations"))
    ]
    assert found == [[_STORED]] * 3


async def test_what_was_replaced_is_found_by_the_same_words(world: World) -> None:
    await world.exchange("hello")
    await world.store.transact(sessions.reset(key_of(dm()), dm(), NOON, by=_HOSTILE))
    assert await world.store.read(column("SELECT actor FROM operations WHERE actor = ?", _HOSTILE)) == [_STORED]


async def test_many_values_at_once_are_replaced_too(store: Store) -> None:
    @transaction
    def write() -> Statements[None]:
        yield "INSERT INTO meta (name, value) VALUES (?, ?)", [(f"x{number}", _HOSTILE) for number in range(3)]

    await store.transact(write())
    assert await store.read(column("SELECT value FROM meta WHERE name LIKE 'x%'")) == [_STORED] * 3


@given(st.text())
def test_anything_that_can_be_stored_stays_as_it_is(text: str) -> None:
    (stored,) = storable((text,))
    assert stored == text.replace("\0", "\ufffd")


async def test_a_reader_that_met_unreadable_text_sees_what_is_written_later(tmp_path: Path) -> None:
    @transaction
    def write(value: bytes) -> Statements[None]:
        yield "CREATE TABLE IF NOT EXISTS met (value TEXT)", ()
        yield "DELETE FROM met", ()
        yield "INSERT INTO met VALUES (CAST(? AS TEXT))", (value,)

    @transaction
    def read() -> Statements[str]:
        ((value,),) = yield "SELECT value FROM met", ()
        return value

    async with await open_store(f"sqlite:///{tmp_path}/palaver.db") as store:
        await store.transact(write(b"\xffA"))
        gc.disable()  # which would end what the failed statement holds
        try:
            assert set(await asyncio.gather(*(store.read(read()) for _ in range(20)))) == {"\ufffdA"}
            await store.transact(write(b"later"))
            assert set(await asyncio.gather(*(store.read(read()) for _ in range(20)))) == {"later"}
        finally:
            gc.enable()
