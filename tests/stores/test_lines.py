"""The line: whatever waits is in it, also when it is brought to a conversation that is just leaving it."""

import asyncio
from typing import Any

import asyncpg

from palaver.domain.key import SessionKey
from palaver.ports.work import Steps, work
from palaver.stores import inbox, turns
from palaver.stores.opening import open_store
from tests.stores.conftest import fresh_database
from tests.stores.world import World, dm, key_of

DRIVER: Any = asyncpg  # it has no types of its own
DESK, PHONE = dm("desk"), dm("phone")
SLEEPERS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"


@work
def carry_slowly(old: SessionKey, new: SessionKey) -> Steps[None]:
    yield from inbox.carry(old, old, new)
    yield "SELECT pg_sleep(1)", ()


async def until_somebody_sleeps(url: str) -> None:
    observer = await DRIVER.connect(url)
    try:
        async with asyncio.timeout(60):
            while not await observer.fetchval(SLEEPERS):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        await observer.close()


async def test_what_is_brought_to_a_conversation_that_leaves_the_line_keeps_it_there(postgres_server: str) -> None:
    url = await fresh_database(postgres_server)
    async with await open_store(url) as store:
        world = World(store)
        await world.say("said there", DESK)
        await world.say("brought there", PHONE)
        bringing = asyncio.create_task(store.transact(carry_slowly(key_of(PHONE), key_of(DESK))))
        await until_somebody_sleeps(url)
        begun = await world.begin(DESK)
        await bringing
        assert begun
        assert [each.inbound.text for each in begun.messages] == ["said there"]
        await store.transact(turns.settle(begun.turn, [], [], world.now))
        assert await store.read(inbox.claimable(10)) == [key_of(DESK)]
