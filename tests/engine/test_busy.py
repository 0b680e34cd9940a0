"""What becomes of messages that arrive while a turn runs, or that belong together."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from palaver.model.key import GroupScope, Scope, ScopedSetting
from palaver.model.transcript import Role
from palaver.model.turn import BusyMode, Cause
from palaver.protocols.adapter import Limits
from palaver.protocols.agent import Event, Final, Request
from palaver.settings.limits import LimitsConfig
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Scripted, Slow, heard
from tests.engine.gateway import MovableClock, running, until
from tests.engine.mouth import Mouth


def mode(busy: BusyMode) -> ScopedSetting[BusyMode]:
    return ScopedSetting(default=busy)


async def test_by_default_a_message_waits_and_has_a_turn_of_its_own(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "second")
        await chat.hears("Still answering")
        agent.go.set()
        await chat.hears("answer to: second")
        assert [heard(request) for request in agent.requests] == ["first", "second"]


async def test_the_acknowledgement_is_given_once_per_turn_and_promises_only_what_holds(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        for number in range(3):
            await chat.say(alice, f"more {number}")
        await chat.hears("Still answering")
        agent.go.set()
        await chat.hears("more 2")
        told = ["Still answering" in message.text for message in chat.shown]
        # A later turn mentions it again to who wrote after the first notice, if that turn takes a while.
        assert told[:2] == [True, False]
        assert (True, True) not in pairwise(told)
        assert "next" not in chat.shown[0].text  # others may be in front


async def test_a_short_wait_is_not_mentioned(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent, acknowledge_after=timedelta(hours=1)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "second")
        await until(lambda: not here.world.unacknowledged())
        agent.go.set()
        await chat.hears("answer to: second")
        assert len(chat.shown) == 2
    assert LimitsConfig().acknowledge_after == timedelta(seconds=2)


async def test_a_wait_goes_on_through_the_turns_in_front(tmp_path: Path) -> None:
    """Each of them is short, but together they take long."""
    agent, clock = Slow(), MovableClock()
    async with running(tmp_path / "p.db", agent=agent, clock=clock, acknowledge_after=timedelta(hours=1)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        for text in ("second", "third"):
            await chat.say(alice, text)
        await until(lambda: not here.world.unacknowledged())
        clock.later(hours=1)
        agent.go.set()
        agent.go.clear()
        await chat.hears("Still answering")
        assert len(agent.requests) == 2
        agent.go.set()


async def test_nobody_has_to_wait_where_that_is_switched_off(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent, acknowledges=False) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "second")
        await until(lambda: not here.world.unacknowledged())
        agent.go.set()
        await chat.hears("answer to: second")
        assert len(chat.shown) == 2


async def test_collect_makes_one_turn_of_what_waited_and_keeps_each_message(store_url: str) -> None:
    agent = Slow()
    async with running(store_url, agent=agent, busy=mode(BusyMode.COLLECT)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        for text in ("two", "three", "four"):
            await chat.say(alice, text)
        await chat.hears("until then together")
        await until(lambda: not here.world.unacknowledged())
        agent.go.set()
        answer = await chat.hears("four")
        assert answer.reply_to == chat.said[-1].id
        assert len(agent.requests) == 2
        said = [entry.text for entry in await here.entries() if entry.role is Role.USER]
        assert said == ["first", "two", "three", "four"]


async def test_collect_stops_at_a_command(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent, busy=mode(BusyMode.COLLECT)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        for text in ("two", "/new", "three"):
            await chat.say(alice, text)
        await until(lambda: not here.world.unacknowledged())
        agent.go.set()
        await chat.hears("answer to: three")
        assert [heard(request) for request in agent.requests][1:] == ["two", "three"]
        assert len({request.session for request in agent.requests}) == 2


async def test_everybody_whose_words_went_into_a_turn_can_read_the_conversation(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent, busy=mode(BusyMode.COLLECT)) as here:
        alice, bob, carol = (here.world.person(name) for name in ("alice", "bob", "carol"))
        group = here.world.group("friends", alice, bob, carol)
        await group.say(alice, "first", thread="5")
        await until(lambda: bool(agent.requests))
        await group.say(bob, "from bob", thread="5")
        await group.say(carol, "from carol", thread="5")
        await until(lambda: not here.world.unacknowledged())
        agent.go.set()
        await group.hears("from carol")
        assert len(await here.rows("SELECT DISTINCT identity FROM participants")) == 3


@pytest.mark.parametrize("first_word", ["half an", ""])
async def test_interrupt_stops_the_answer_and_keeps_what_was_said(store_url: str, first_word: str) -> None:
    agent = Slow(first_word)
    async with running(store_url, agent=agent, busy=mode(BusyMode.INTERRUPT)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        if first_word:
            await chat.hears(first_word)
        agent.go.clear()
        await chat.say(alice, "second")
        await until(lambda: len(agent.requests) == 2)
        agent.go.set()
        await chat.hears("second")
        texts = await here.texts()
        assert any("stopped" in text for text in texts)
        assert (first_word in texts) == bool(first_word)
        await here.settled()
        if first_word:
            assert [message.text for message in chat.shown if message.text.startswith(first_word)] == ["half an …"]


async def test_a_look_at_the_status_interrupts_nothing(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent, busy=mode(BusyMode.INTERRUPT)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        for number in range(5):
            await chat.say(alice, "/status")
            await chat.hears("working since", times=number + 1)
        agent.go.set()
        await chat.hears("answer to: first")
        assert len(agent.requests) == 1


async def test_what_is_only_overheard_interrupts_nothing(tmp_path: Path) -> None:
    agent, world, clock = Slow(), FakePlatform(), MovableClock()
    mouth = Mouth(world, clock)
    async with running(
        tmp_path / "p.db", world, agent=agent, adapters=[mouth], clock=clock, busy=mode(BusyMode.INTERRUPT)
    ) as here:
        group = world.group("friends")
        await mouth.say(group, "answer me")
        await until(lambda: bool(agent.requests))
        await mouth.say(group, "chatter", observed=True)
        await asyncio.sleep(0.05)
        agent.go.set()
        await group.hears("answer to: answer me")
        await here.settled()
        assert len(agent.requests) == 1


async def test_steer_offers_a_message_after_the_next_tool_call_and_writes_it_down(store_url: str) -> None:
    agent = Slow(tool=True)
    async with running(store_url, agent=agent, busy=mode(BusyMode.STEER)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "also this")
        await chat.hears("joins this answer")
        agent.go.set()
        await chat.hears("answer to: first")
        await here.settled()
        (meanwhile,) = agent.meanwhile
        assert meanwhile.endswith("+00:00⟧ also this")
        assert len(agent.requests) == 1
        assert "also this" in await here.texts()
        states = await here.rows("SELECT t.state, i.turn_no FROM inbox i JOIN turns t ON t.no = i.turn_no")
        assert [tuple(row) for row in states] == [("done", 1), ("done", 1)]


async def test_steer_without_a_tool_call_is_answered_next(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent, busy=mode(BusyMode.STEER)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "also this")
        await chat.hears("joins this answer")
        agent.go.set()
        await chat.hears("answer to: also this")


async def test_what_is_overheard_is_not_passed_on_as_if_it_had_been_said_to_the_agent(tmp_path: Path) -> None:
    agent, world, clock = Slow(tool=True), FakePlatform(), MovableClock()
    mouth = Mouth(world, clock)
    shared = ScopedSetting(default=Scope(group=GroupScope.SHARED))
    options: dict[str, Any] = {"busy": mode(BusyMode.STEER), "scopes": shared}
    async with running(tmp_path / "p.db", world, agent=agent, adapters=[mouth], clock=clock, **options) as here:
        group = world.group("friends")
        await mouth.say(group, "answer me")
        await until(lambda: bool(agent.requests))
        await mouth.say(group, "chatter", observed=True)
        await mouth.say(group, "to you")
        agent.go.set()
        await group.hears("answer to: answer me")
        await here.settled()
        overheard, said = agent.meanwhile
        assert "⟧ ⟦overheard, not said to you, from " in overheard
        assert said.endswith("⟧ to you")
        assert "overheard" not in said
        assert {"chatter", "to you"} <= set(await here.texts())


async def test_an_album_becomes_one_turn_though_its_parts_arrive_one_by_one(tmp_path: Path) -> None:
    agent, world, clock = Slow(), FakePlatform(), MovableClock()
    agent.go.set()
    mouth = Mouth(world, clock)
    window = timedelta(seconds=0.5)
    async with running(
        tmp_path / "p.db", world, agent=agent, adapters=[mouth], clock=clock, burst_window=window
    ) as here:
        chat = world.dm(world.person("alice"))
        for part in ("one", "two", "three"):
            await mouth.say(chat, part, burst="album")
            await asyncio.sleep(0.03)
        await chat.hears("three")
        await here.settled()
        assert len(agent.requests) == 1
        assert [entry.text for entry in await here.entries() if entry.role is Role.USER] == ["one", "two", "three"]


async def test_a_text_that_the_platform_has_cut_waits_for_its_rest(tmp_path: Path) -> None:
    agent, world, clock = Slow(), FakePlatform(), MovableClock()
    agent.go.set()
    mouth = Mouth(world, clock, limits=Limits(text=100))
    window = timedelta(seconds=0.1)
    async with running(
        tmp_path / "p.db", world, agent=agent, adapters=[mouth], clock=clock, burst_window=window
    ) as here:
        chat = world.dm(world.person("alice"))
        await mouth.say(chat, "x" * 100)
        await asyncio.sleep(0.02)
        await mouth.say(chat, "the rest")
        await chat.hears("the rest")
        await here.settled()
        assert len(agent.requests) == 1


async def test_a_long_text_without_a_rest_is_answered_after_the_window(tmp_path: Path) -> None:
    world, clock = FakePlatform(), MovableClock()
    mouth = Mouth(world, clock, limits=Limits(text=100))
    window = timedelta(seconds=0.05)
    async with running(tmp_path / "p.db", world, adapters=[mouth], clock=clock, burst_window=window):
        chat = world.dm(world.person("alice"))
        await mouth.say(chat, "x" * 100)
        await chat.hears("You said")


@pytest.mark.parametrize("cause", [Cause.SCHEDULE, Cause.PROCESS])
async def test_only_a_person_learns_that_the_turn_is_still_at_work(tmp_path: Path, cause: Cause) -> None:
    world, clock, agent = FakePlatform(), MovableClock(), Slow()
    mouth = Mouth(world, clock)
    chat = world.dm(world.person("alice"))
    async with running(tmp_path / "p.db", world, agent=agent, adapters=[mouth], clock=clock) as here:
        await mouth.say(chat, "first")
        await until(lambda: bool(agent.requests))
        await mouth.say(chat, "a build has ended", cause=cause)
        assert await here.rows("SELECT 1 FROM outbox") == []
        await mouth.say(chat, "second")
        await chat.hears("Still answering")


async def test_a_silent_answer_is_sent_to_a_person_and_not_for_a_notice(tmp_path: Path) -> None:
    async def script(_: Request) -> AsyncGenerator[Event]:
        yield Final(text="I looked at the build.\n[SILENT]")

    world, clock, agent = FakePlatform(), MovableClock(), Scripted(script)
    mouth = Mouth(world, clock)
    chat = world.dm(world.person("alice"))
    async with running(tmp_path / "p.db", world, agent=agent, adapters=[mouth], clock=clock) as here:
        await mouth.say(chat, "a build has ended", cause=Cause.PROCESS)
        await here.settled()
        assert (len(agent.requests), await here.rows("SELECT 1 FROM outbox")) == (1, [])
        await mouth.say(chat, "and now?")
        await chat.hears("[SILENT]")
