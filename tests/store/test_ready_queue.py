"""The line: anything that waits is in it, also when it is brought to a conversation that is just leaving it."""

import asyncio
from dataclasses import replace
from typing import Any

import asyncpg

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.model.turn import Inbound
from palaver.store.opening import open_store
from palaver.store.privacy.digests import load_digests
from palaver.store.privacy.erase_steps import erase_messages
from palaver.store.queue import inbox, turns
from palaver.store.store import Store
from tests.store.conftest import fresh_store
from tests.store.world import World, dm, key_of

DRIVER: Any = asyncpg  # it has no types of its own
DESK, PHONE = dm("desk"), dm("phone")
SLEEPERS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"


async def test_a_conversation_in_which_nothing_waits_leaves_the_line_when_it_is_looked_at(store: Store) -> None:
    @transaction
    def stray() -> Statements[None]:
        yield "INSERT INTO ready_queue (key, position) VALUES (?, 1)", (key_of(DESK).text,)

    await store.transact(stray())
    assert await store.read(inbox.list_ready(10)) == [key_of(DESK)]
    assert await World(store).begin(DESK) is None
    assert await store.read(inbox.list_ready(10)) == []


# Several workers at once


def slowly(steps: Statements[Any] | Transaction[Any]) -> Transaction[Any]:
    @transaction
    def sleep_before_the_commit() -> Statements[Any]:
        result = yield from steps
        yield "SELECT pg_sleep(1)", ()
        return result

    return sleep_before_the_commit()


async def until_somebody_sleeps(url: str) -> None:
    observer = await DRIVER.connect(url)
    try:
        async with asyncio.timeout(60):
            while not await observer.fetchval(SLEEPERS):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        await observer.close()


async def test_what_is_brought_to_a_conversation_that_leaves_the_line_keeps_it_there(postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    async with await open_store(url) as store:
        world = World(store)
        await world.say("said there", DESK)
        await world.say("brought there", PHONE)
        bringing = asyncio.create_task(
            store.transact(slowly(inbox.move_waiting(key_of(PHONE), key_of(PHONE), key_of(DESK))))
        )
        await until_somebody_sleeps(url)
        begun = await world.begin(DESK)
        await bringing
        assert begun
        assert [each.inbound.text for each in begun.messages] == ["said there"]
        await store.transact(turns.settle(begun.turn, [], [], world.now))
        assert await store.read(inbox.list_ready(10)) == [key_of(DESK)]


async def test_what_is_said_while_somebody_else_is_forgotten_is_in_the_line(postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    async with await open_store(url) as store:
        world = World(store)
        await world.say("forgotten", DESK)
        digests = await store.transact(load_digests())
        forgotten = await store.read(inbox.list_waiting(key_of(DESK)))
        late = Inbound(source=replace(DESK, message_id="late"), text="late", at=world.now)
        saying = asyncio.create_task(store.transact(slowly(iter(inbox.accept(late, key_of(DESK), world.now)))))
        await until_somebody_sleeps(url)
        await store.transact(erase_messages(1, [each.number for each in forgotten], forgotten, digests))
        await saying
        assert await store.read(inbox.list_ready(10)) == [key_of(DESK)]
