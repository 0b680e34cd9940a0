"""Any text from outside can be stored, on both engines alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.db.transaction import Statements, storable, transaction
from palaver.model.turn import Usage
from palaver.store.conversations import sessions
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
