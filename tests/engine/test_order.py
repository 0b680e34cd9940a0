"""One turn at a time in a conversation, in the order of arrival; many conversations at once, fairly."""

import asyncio
import json
from pathlib import Path
from typing import TypeVar

import pytest

from palaver.db.transaction import Transaction
from palaver.store.store import Store
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Slow
from tests.engine.gateway import running, until

T = TypeVar("T")


async def test_what_is_said_in_one_chat_is_answered_one_by_one_in_order(store_url: str) -> None:
    async with running(store_url, acknowledges=False) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for number in range(10):
            await chat.say(alice, f"message {number}.")
        await chat.hears("message 9.")
        assert [message.text for message in chat.shown] == [f"You said: message {number}." for number in range(10)]


async def test_one_conversation_never_has_two_turns_at_once(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent, acknowledges=False) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for number in range(3):
            await chat.say(alice, f"message {number}")
        await until(lambda: bool(agent.requests))
        await asyncio.sleep(0.05)
        assert len(agent.requests) == 1
        agent.go.set()
        await chat.hears("message 2")
        assert agent.most_at_once == 1


async def test_a_message_that_the_platform_repeats_is_answered_once(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        here.world.injector.faults = type(here.world.injector.faults)(duplicate=1.0)
        await chat.say(alice, "once")
        await chat.say(alice, "twice")
        await chat.hears("You said: twice")
        await here.settled()
        assert len([message for message in chat.shown if "You said" in message.text]) == 2


async def test_no_more_conversations_are_at_work_than_allowed(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent, concurrent_turns=3) as here:
        alice = here.world.person("alice")
        chats = [here.world.dm(alice) for _ in range(8)]
        for chat in chats:
            await chat.say(alice, "hello")
        await until(lambda: len(agent.requests) == 3)
        await asyncio.sleep(0.05)
        assert len(agent.requests) == 3
        agent.go.set()
        for chat in chats:
            await chat.hears("answer to: hello")
        assert agent.most_at_once == 3


async def test_a_chat_with_much_to_say_does_not_keep_others_waiting(store_url: str) -> None:
    agent = Slow()
    async with running(store_url, agent=agent, concurrent_turns=1, acknowledges=False) as here:
        alice, bob, carol = (here.world.person(name) for name in ("alice", "bob", "carol"))
        busy, busy_too, quiet = (here.world.dm(person) for person in (alice, bob, carol))
        for number in range(20):
            await busy.say(alice, f"alice {number}")
            await busy_too.say(bob, f"bob {number}")
        await quiet.say(carol, "only this")
        await until(lambda: not here.world.unacknowledged())
        agent.go.set()
        await quiet.hears("only this")
        assert len(busy.shown) + len(busy_too.shown) <= 4
        await busy_too.hears("bob 19")
        await busy.hears("alice 19")


@pytest.mark.drops_transactions
async def test_messages_handed_over_at_once_are_accepted_in_order_also_before_people_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    chat = world.dm(alice)
    said = [f"message {number}" for number in range(8)]
    for text in said:
        await chat.say(alice, text)
    delays = iter(range(32, 0, -1))

    async def slower_at_first(store: Store, work: Transaction[T]) -> T:
        await asyncio.sleep(next(delays, 0) / 500)
        return await store.database.read(work)

    monkeypatch.setattr(Store, "read", slower_at_first)
    path = tmp_path / "p.db"
    async with running(path, world, adapters=[FakeAdapter(world, concurrency=8)], concurrent_turns=0) as here:
        await until(lambda: not world.unacknowledged())
        rows = await here.rows("SELECT body FROM inbox ORDER BY no")
        assert [json.loads(row[0])["text"] for row in rows] == said
