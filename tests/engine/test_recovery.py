"""A turn that was cut off is taken up again, within limits; shutting down lets answers finish."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.engine import maintenance, retry, texts
from palaver.model.errors import StoreError
from palaver.model.transcript import Role, ToolCall
from palaver.model.view import INTERRUPTED
from palaver.protocols.adapter import Limits
from palaver.protocols.agent import Event, Final, Request, TextDelta, ToolCalled
from palaver.testkit.faults import Faults
from palaver.testkit.platform import FakePlatform, LoopClock
from tests.engine.agents import Scripted, Slow, noted
from tests.engine.gateway import MovableClock, running, until
from tests.engine.trouble import trouble


async def _dies_in_a_tool(request: Request) -> AsyncGenerator[Event]:
    if request.attempt == 1:
        yield TextDelta("let me look")
        yield ToolCalled(calls=(ToolCall(id="c1", name="look"),))
        await asyncio.Event().wait()
    yield Final(text=f"done in attempt {request.attempt}")


async def test_a_turn_that_was_cut_off_goes_on_in_its_session_and_the_agent_knows(store_url: str) -> None:
    world, agent = FakePlatform(), Scripted(_dies_in_a_tool)
    alice = world.person("alice")
    chat = world.dm(alice)
    lease = timedelta(seconds=0.3)
    alone = store_url.startswith("sqlite")
    async with running(store_url, world, agent=agent, lease=lease, alone=alone):
        await chat.say(alice, "look")
        await chat.hears("let me look")
        await asyncio.sleep(0.05)
    async with running(store_url, world, agent=agent, worker="w2", lease=lease, alone=alone) as here:
        shown = await chat.hears("done in attempt 2")
        first, second = agent.requests
        assert second.session == first.session
        assert "the gateway restarted while you were answering" in noted(second)
        assert INTERRUPTED in [message.text for message in second.messages if message.role is Role.TOOL]
        await here.settled()
        assert chat.shown == [shown]  # the draft became the answer


async def test_after_too_many_attempts_the_session_is_suspended_and_the_next_starts_fresh(tmp_path: Path) -> None:
    world, agent = FakePlatform(), Slow()
    alice = world.person("alice")
    chat = world.dm(alice)
    for attempt in (1, 2, 3):
        async with running(tmp_path / "p.db", world, agent=agent, worker=f"w{attempt}", crash_limit=9):
            if attempt == 1:
                await chat.say(alice, "poison")
            await until(lambda attempt=attempt: len(agent.requests) == attempt)
    async with running(tmp_path / "p.db", world, agent=agent, worker="w4", crash_limit=9) as here:
        await chat.hears(texts.GIVEN_UP)
        assert [request.attempt for request in agent.requests] == [1, 2, 3]
        rows = await here.rows("SELECT end_reason FROM sessions")
        assert [row[0] for row in rows] == ["suspended"]
        agent.go.set()
        await chat.say(alice, "hello again")
        await chat.hears("fresh conversation because the last turn could not be finished")
        await chat.hears("hello again")
        assert "the last turn could not be finished" in noted(agent.requests[-1])
        assert "poison" not in noted(agent.requests[-1])
        await chat.say(alice, "/back")
        await chat.hears("Undid the last")
        await chat.say(alice, "and now?")
        await chat.hears("and now?")
        assert "poison" in noted(agent.requests[-1])


async def test_a_turn_that_was_cut_off_too_long_ago_is_not_taken_up(tmp_path: Path) -> None:
    world, agent, clock = FakePlatform(), Slow(), MovableClock()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, agent=agent, clock=clock):
        await chat.say(alice, "hello")
        await until(lambda: bool(agent.requests))
    clock.later(hours=2)
    async with running(tmp_path / "p.db", world, agent=agent, clock=clock, worker="w2"):
        await chat.hears(texts.GIVEN_UP)
        assert len(agent.requests) == 1


async def test_without_a_window_it_is_taken_up_however_late(tmp_path: Path) -> None:
    world, agent, clock = FakePlatform(), Slow(), MovableClock()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, agent=agent, clock=clock):
        await chat.say(alice, "hello")
        await until(lambda: bool(agent.requests))
    clock.later(days=30)
    agent.go.set()
    async with running(tmp_path / "p.db", world, agent=agent, clock=clock, worker="w2", fresh_for=None):
        await chat.hears("answer to")


async def test_a_gateway_that_keeps_crashing_gives_up_instead_of_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "PAGE_SIZE", 2)
    world, agent = FakePlatform(), Slow()
    people = [world.person(f"p{number}") for number in range(5)]
    chats = [world.dm(person) for person in people]
    for start in (1, 2, 3):
        async with running(
            tmp_path / "p.db", world, agent=agent, worker=f"w{start}", concurrent_turns=5, attempts=99
        ) as here:
            if start == 1:
                for person, chat in zip(people, chats, strict=True):
                    await chat.say(person, "poison")
            await until(lambda start=start: len(agent.requests) == 5 * start)
    # However many there are, more than may run at once included.
    async with running(tmp_path / "p.db", world, agent=agent, worker="w4", concurrent_turns=2, attempts=99) as here:
        for chat in chats:
            await chat.hears(texts.GIVEN_UP)
        await here.settled()
        assert len(agent.requests) == 15


async def test_a_store_that_refuses_now_and_then_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RESTART_PAUSE_SECONDS", 0.001)
    async with running(tmp_path / "p.db", lease=timedelta(seconds=0.3), crash_limit=1) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "!approve it")
        await chat.hears("Reply /approve")
        for _ in range(3):
            with monkeypatch.context() as patch:
                refused = StoreError("the database refused")
                await until(trouble(patch, here.store, "transact", "attempt = attempt + 1", refused))
        await chat.say(alice, "/approve")
        await chat.hears("You said: it")
        assert await here.store.transact(here.store.accounts.count_start(LoopClock().now(), timedelta(hours=1))) == 2


async def test_ending_in_good_order_is_no_crash(tmp_path: Path) -> None:
    world, agent = FakePlatform(), Slow()
    alice = world.person("alice")
    chat = world.dm(alice)
    for start in range(5):
        async with running(
            tmp_path / "p.db", world, agent=agent, worker=f"w{start}", drain_limit=timedelta(0), attempts=99
        ) as here:
            if not start:
                await chat.say(alice, "hello")
            await until(lambda start=start: len(agent.requests) == start + 1)
            await here.engine.drain()


async def test_draining_lets_a_running_answer_finish_and_arrive(store_url: str) -> None:
    agent = Slow()
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await until(lambda: bool(agent.requests))
        draining = asyncio.create_task(here.engine.drain())
        await asyncio.sleep(0.02)
        agent.go.set()
        await draining
        assert [message.text for message in chat.shown if "answer to" in message.text] == ["answer to: hello"]


async def test_draining_waits_for_every_part_of_an_answer(tmp_path: Path) -> None:
    world = FakePlatform(faults=Faults(delay=0.02))
    async with running(tmp_path / "p.db", world, limits=Limits(text=100), burst_window=timedelta(0)) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        said = " ".join(f"word{number}" for number in range(60))
        await chat.say(alice, said)
        await chat.hears("word0")
        await here.engine.drain()
        assert " ".join(message.text for message in chat.shown).split() == f"You said: {said}".split()


async def test_what_arrives_during_the_drain_is_answered_after_the_restart(tmp_path: Path) -> None:
    world, agent = FakePlatform(), Slow()
    alice, bob = world.person("alice"), world.person("bob")
    chat, other = world.dm(alice), world.dm(bob)
    async with running(tmp_path / "p.db", world, agent=agent, drain_limit=timedelta(seconds=0.1)) as here:
        await chat.say(alice, "cut off")
        await until(lambda: bool(agent.requests))
        draining = asyncio.create_task(here.engine.drain())
        await asyncio.sleep(0.02)
        await other.say(bob, "too late")
        await draining
        assert not world.unacknowledged()
        assert len(agent.requests) == 1
        assert [row[0] for row in await here.rows("SELECT state FROM turns")] == ["interrupted"]
    agent.go.set()
    async with running(tmp_path / "p.db", world, agent=agent, worker="w2"):
        await chat.hears("cut off")
        await other.hears("too late")
        assert any("the gateway restarted" in noted(request) for request in agent.requests[1:])
