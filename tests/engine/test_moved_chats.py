"""A chat that gets another id goes on there, no matter what is under way in it."""

import asyncio
from pathlib import Path

import pytest

from palaver.db.transaction import Lock, Statements, transaction
from palaver.engine import texts
from palaver.model.key import ScopedSetting
from palaver.model.turn import BusyMode, Outbound
from palaver.protocols.adapter import TargetGone
from palaver.store.status.invariants import violations
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Slow
from tests.engine.gateway import Bench, MovableClock, running, until
from tests.store.conftest import fresh_store
from tests.store.world import cause


@pytest.mark.parametrize("silently", [False, True], ids=["told", "found out by a send"])
async def test_a_conversation_goes_on_under_the_new_id(store_url: str, silently: bool) -> None:
    clock = MovableClock()
    async with running(store_url, clock=clock) as here:
        alice = here.world.person("alice")
        chat = here.world.group("Dev", alice)
        await chat.say(alice, "one", mentions=("bot",))
        await chat.hears("You said: one")
        await chat.move(silently=silently)
        if silently:
            place = Outbound(platform="fake", account="bot", chat_id="c1", text="owed to the old id")
            await here.store.transact(here.store.outbox.enqueue(place, cause("owed"), clock.now()))
            await chat.hears("owed to the old id")
        await chat.say(alice, "two", mentions=("bot",))
        await chat.hears("You said: two")
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1
        assert await here.rows("SELECT state FROM outbox WHERE state <> 'delivered'") == []
        assert await here.store.read(violations()) == []


async def test_a_turn_that_runs_across_the_move_is_answered_in_the_new_chat(store_url: str) -> None:
    agent = Slow()
    async with running(store_url, agent=agent, acknowledges=False) as here:
        alice = here.world.person("alice")
        chat = here.world.group("Dev", alice)
        await chat.say(alice, "hello", mentions=("bot",))
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "and then?", mentions=("bot",))
        await chat.move()
        await until(lambda: not here.world.unacknowledged())
        agent.go.set()
        answered = await chat.hears("answer to: hello")
        assert answered.reply_to is None
        await chat.hears("answer to: and then?")
        await here.settled()
        assert [message.text for message in chat.shown] == ["answer to: hello", "answer to: and then?"]
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1
        assert await here.store.read(violations()) == []


@pytest.mark.parametrize("moves", [1, 2], ids=["moved", "moved again"])
async def test_a_turn_that_runs_across_the_move_can_be_stopped(store_url: str, moves: int) -> None:
    agent = Slow()
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.group("Dev", alice)
        await chat.say(alice, "hello", mentions=("bot",))
        await until(lambda: bool(agent.requests))
        for _ in range(moves):
            await chat.move()
        await chat.say(alice, "/stop", mentions=("bot",))
        await chat.hears("Stopping.")
        await here.settled()
        assert texts.STOPPED_NOTE in await here.texts()
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1


async def test_a_newer_message_takes_the_place_of_a_turn_that_runs_across_the_move(store_url: str) -> None:
    agent = Slow()
    async with running(
        store_url, agent=agent, busy=ScopedSetting(default=BusyMode.INTERRUPT), acknowledges=False
    ) as here:
        alice = here.world.person("alice")
        chat = here.world.group("Dev", alice)
        await chat.say(alice, "hello", mentions=("bot",))
        await until(lambda: bool(agent.requests))
        await chat.move()
        await chat.say(alice, "rather this", mentions=("bot",))
        await until(lambda: len(agent.requests) == 2)
        agent.go.set()
        await chat.hears("rather this")


async def test_what_is_said_to_a_turn_that_runs_across_the_move_goes_into_it(store_url: str) -> None:
    agent = Slow(tool=True)
    async with running(store_url, agent=agent, busy=ScopedSetting(default=BusyMode.STEER), acknowledges=False) as here:
        alice = here.world.person("alice")
        chat = here.world.group("Dev", alice)
        await chat.say(alice, "hello", mentions=("bot",))
        await until(lambda: bool(agent.requests))
        await chat.move()
        await chat.say(alice, "and this", mentions=("bot",))
        await until(lambda: not here.world.unacknowledged())
        agent.go.set()
        await here.settled()
        assert "and this" in "".join(agent.meanwhile)
        assert len(agent.requests) == 1
        assert await here.store.read(violations()) == []


class Held(FakeAdapter):
    """Sends wait at the door."""

    def __init__(self, world: FakePlatform) -> None:
        super().__init__(world)
        self.comes, self.go = asyncio.Event(), asyncio.Event()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        self.comes.set()
        await self.go.wait()
        return await super().send(outbound, idempotency_key=idempotency_key)


async def test_a_send_that_is_under_way_while_the_chat_moves_is_not_lost(store_url: str) -> None:
    world = FakePlatform()
    adapter = Held(world)
    async with running(store_url, world, adapters=[adapter], acknowledges=False) as here:
        alice = world.person("alice")
        chat = world.group("Dev", alice)
        await chat.say(alice, "hello", mentions=("bot",))
        await adapter.comes.wait()
        await chat.move()
        await until(lambda: not world.unacknowledged())
        adapter.go.set()
        await chat.hears("You said: hello")
        await here.settled()
        assert await here.rows("SELECT state, attempts FROM outbox") == [("delivered", 2)]
        assert await here.rows("SELECT 1 FROM gone_chats") == []
        with pytest.raises(TargetGone):
            await adapter.send(Outbound(platform="fake", chat_id="c1", text="x"), idempotency_key="x")


async def test_what_is_delivered_again_from_the_old_chat_is_the_same_and_what_comes_late_goes_on_there(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.group("Dev", alice)
        said = await chat.say(alice, "hello", mentions=("bot",))
        await chat.hears("You said: hello")
        new = await chat.move()
        await until(lambda: not here.world.unacknowledged())
        chat.id = "c1"  # as if the platform had not noticed yet
        await chat.edit(alice, said, "hello you")
        await chat.say(alice, "late", mentions=("bot",))
        chat.id = new
        await chat.hears("You said: late")
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1
        assert len(await here.rows("SELECT 1 FROM inbox WHERE version <> ''")) == 1


WAITS = (
    "SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
    " WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted"
)


@transaction
def _move_once_somebody_waits(here: Bench, key: str, new: str, held: asyncio.Event) -> Statements[bool]:
    yield Lock(key)
    held.set()
    while not (yield WAITS, ()):
        pass
    return (yield from here.store.chat_migration.move("fake", "bot", "c1", new, MovableClock().now()))


async def test_what_is_accepted_while_its_chat_moves_goes_on_there(postgres_server: str) -> None:
    async with running(await fresh_store(postgres_server), acknowledges=False) as here:
        alice = here.world.person("alice")
        chat = here.world.group("Dev", alice)
        await chat.say(alice, "one", mentions=("bot",))
        await chat.hears("You said: one")
        await here.settled()
        ((key,),) = await here.rows("SELECT key FROM sessions")
        new, held = await chat.move(silently=True), asyncio.Event()
        moving = asyncio.create_task(here.store.transact(_move_once_somebody_waits(here, key, new, held)))
        await held.wait()
        chat.id = "c1"  # as if the platform had not noticed yet
        await chat.say(alice, "two", mentions=("bot",))
        chat.id = new
        assert await moving
        await chat.hears("You said: two")
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1
