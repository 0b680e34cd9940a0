"""A turn that was cut off is taken up again, within limits; shutting down lets answers finish."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import TypeVar, cast

import pytest

from palaver.db.transaction import Transaction
from palaver.engine import retry, texts
from palaver.model.errors import StoreError
from palaver.model.transcript import Role, ToolCall
from palaver.model.view import INTERRUPTED
from palaver.protocols.adapter import Limits
from palaver.protocols.agent import Event, Final, Request, TextDelta, ToolCalled, question_to_person
from palaver.store.results import Begun
from palaver.testkit.faults import Faults
from palaver.testkit.platform import FakePlatform, LoopClock
from tests.engine.agents import Scripted, Slow, noted
from tests.engine.gateway import MovableClock, running, until
from tests.engine.trouble import trouble

T = TypeVar("T")

HOUR = timedelta(hours=1)


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
        await chat.hears("answer to")
        assert [message.text for message in chat.shown if "fresh conversation" in message.text] == [texts.GIVEN_UP]
        assert "the last turn could not be finished" in noted(agent.requests[-1])
        assert "poison" not in noted(agent.requests[-1])
        await chat.say(alice, "/back")
        await chat.hears("Undid the last")
        await chat.say(alice, "and now?")
        await chat.hears("and now?")
        assert "poison" in noted(agent.requests[-1])


async def test_after_a_long_outage_one_notice_is_given_and_what_waits_is_answered_with_its_context(
    store_url: str,
) -> None:
    world, agent, clock = FakePlatform(), Slow(), MovableClock()
    alice = world.person("alice")
    chat = world.dm(alice)
    agent.go.set()
    alone = store_url.startswith("sqlite")
    async with running(store_url, world, agent=agent, clock=clock, alone=alone):
        await chat.say(alice, "my name is Alice")
        await chat.hears("answer to")
        agent.go.clear()
        await chat.say(alice, "hello")
        await until(lambda: len(agent.requests) == 2)
        await chat.say(alice, "what is my name?")
        await chat.hears("queued")
    clock.later(hours=2)
    agent.go.set()
    before = len(chat.shown)
    async with running(store_url, world, agent=agent, clock=clock, worker="w2", alone=alone) as here:
        await chat.hears("what is my name?")
        await here.settled()
        told = [message.text for message in chat.shown[before:] if "queued" not in message.text]
        assert told[:-1] == [texts.STALE]
        assert len(agent.requests) == 3
        assert "my name is Alice" in noted(agent.requests[-1])
        assert texts.STALE_NOTE in noted(agent.requests[-1])
        assert await here.rows("SELECT end_reason FROM sessions") == [(None,)]


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


async def test_a_gateway_that_keeps_crashing_leaves_interrupted_turns_for_later(tmp_path: Path) -> None:
    world, agent = FakePlatform(), Slow()
    people = [world.person(f"p{number}") for number in range(4)]
    chats = [world.dm(person) for person in people]
    for start in (1, 2, 3):
        async with running(tmp_path / "p.db", world, agent=agent, worker=f"w{start}", attempts=99):
            for person, chat in zip(people, chats, strict=True) if start == 1 else ():
                await chat.say(person, "hello")
            await until(lambda start=start: len(agent.requests) == 4 * start)
    agent.go.set()
    # However many there are, more than may run at once included.
    async with running(
        tmp_path / "p.db", world, agent=agent, worker="w4", concurrent_turns=2, attempts=99, crash_window=HOUR
    ) as here:
        stranger = world.person("stranger")
        other = world.dm(stranger)
        await other.say(stranger, "me too")
        await other.hears("answer to: me too")
        assert len(agent.requests) == 13
        await chats[0].say(people[0], "and?")  # the next message
        await chats[0].hears("answer to: hello")
        await chats[0].hears("and?")
        await chats[1].say(people[1], "/stop")  # a command
        await chats[1].hears("Stopping.")
        states = "SELECT state, count(*) FROM turns GROUP BY state ORDER BY state"

        async def others_are_done() -> bool:
            return await here.rows(states) == [("done", 4), ("interrupted", 2)]

        await until(others_are_done)
        assert await here.rows("SELECT 1 FROM sessions WHERE ended IS NOT NULL") == []
        await here.store.transact(here.store.accounts.reset_start_count())
    async with running(tmp_path / "p.db", world, agent=agent, worker="w5", attempts=99):  # the next calm start
        for chat in chats[2:]:
            await chat.hears("answer to: hello")


async def test_a_turn_of_a_crash_loop_that_goes_on_is_like_any_other(tmp_path: Path) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    chat = world.dm(alice)

    async def script(request: Request) -> AsyncGenerator[Event]:
        if len(agent.requests) == 1:
            await asyncio.Event().wait()
        if request.messages[-1].role is Role.TOOL:
            yield Final(text=f"to {request.messages[-1].text}")
            return
        await request.new_messages()
        yield question_to_person("q", "Where to?")

    agent = Scripted(script)
    async with running(tmp_path / "p.db", world, agent=agent):
        await chat.say(alice, "fly")
        await until(lambda: bool(agent.requests))
    async with running(tmp_path / "p.db", world, agent=agent, worker="w2", crash_limit=1, crash_window=HOUR):
        await chat.say(alice, "/steer and soon")
        await chat.hears("Where to?")
        await chat.say(alice, "Rome")  # nothing waits behind the turn any more
        await chat.hears("to Rome")


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


async def test_a_turn_that_begins_when_the_drain_ends_is_interrupted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, began, go = Slow(), asyncio.Event(), asyncio.Event()
    async with running(tmp_path / "p.db", agent=agent, drain_limit=timedelta(0)) as here:
        real, alice = here.store.transact, here.world.person("alice")

        async def answer_late(work: Transaction[T]) -> T:
            result = await real(work)
            if isinstance(result, tuple) and isinstance(cast("tuple[object, ...]", result)[0], Begun):
                began.set()
                await go.wait()
            return cast("T", result)

        monkeypatch.setattr(here.store, "transact", answer_late)
        await here.world.dm(alice).say(alice, "hello")
        await began.wait()
        draining = asyncio.create_task(here.engine.drain())
        await asyncio.sleep(0.1)
        go.set()
        async with asyncio.timeout(60):
            await draining
        assert [row[0] for row in await here.rows("SELECT state FROM turns")] == ["interrupted"]


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
