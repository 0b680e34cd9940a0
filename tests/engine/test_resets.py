"""Conversations that end by themselves: by whose silence, with which words, and the way back."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.commands.trace_steps import Step, trace_steps
from palaver.model.access import AccessRole, Grant
from palaver.model.key import ScopedSetting
from palaver.model.platform import Platform
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.turn import Cause, QuestionMode
from palaver.store.status.trace import find_traces
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Slow, noted
from tests.engine.gateway import OPERATOR, Bench, MovableClock, running, until
from tests.engine.mouth import Mouth
from tests.store.process_rows import start_process

IDLE = ScopedSetting(default=ResetPolicy(mode=ResetMode.IDLE, idle_minutes=60))
DAILY = ScopedSetting(default=ResetPolicy(mode=ResetMode.DAILY, at_hour=4))
NOTICE = "This is a fresh conversation"


def at_once() -> Slow:
    agent = Slow()
    agent.go.set()
    return agent


async def steps(here: Bench, message: str) -> list[Step]:
    (trace,) = await here.store.read(find_traces(message, OPERATOR))
    return trace_steps(trace, MovableClock().now())


async def test_after_an_hour_of_silence_both_the_agent_and_the_chat_learn_of_it(store_url: str) -> None:
    agent, clock = at_once(), MovableClock()
    async with running(store_url, agent=agent, clock=clock, resets=IDLE) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "before")
        await chat.hears("before")
        clock.later(hours=2)
        await chat.say(alice, "after")
        notice = await chat.hears(NOTICE)
        assert "nobody wrote for a while" in notice.text
        assert "/back" in notice.text
        assert "/resume" in notice.text
        await chat.hears("answer to: after")
        assert "nobody wrote for a while" in noted(agent.requests[1])
        traced = [" ".join(step.sentence for step in await steps(here, f"in:{number}")) for number in (1, 2)]
        assert ["(reset: idle)" in told for told in traced] == [False, True]
        assert "before" not in noted(agent.requests[1])
        await chat.say(alice, "go on")
        await chat.hears("answer to: go on")
        assert [message.text.count(NOTICE) for message in chat.shown] == [0, 1, 0, 0]


@pytest.mark.parametrize("is_first", [True, False], ids=["opens it", "goes on"])
async def test_a_message_that_waits_does_not_keep_its_conversation_longer(store_url: str, *, is_first: bool) -> None:
    agent, clock = Slow(), MovableClock()
    async with running(store_url, agent=agent, clock=clock, resets=IDLE, concurrent_turns=1) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat = here.world.dm(alice)
        await (here.world.dm(bob).say(bob, "slow") if is_first else chat.say(alice, "slow"))
        await until(lambda: len(agent.requests) == 1)
        await chat.say(alice, "waits")
        await until(lambda: not here.world.unacknowledged())
        clock.later(minutes=50)
        agent.go.set()
        await chat.hears("answer to: waits")
        clock.later(minutes=20)
        await chat.say(alice, "an hour after what waited")
        await chat.hears(NOTICE)


async def test_a_message_that_waits_takes_no_time_from_what_was_said_after_it(store_url: str) -> None:
    clock = MovableClock()
    waits = ScopedSetting(default=QuestionMode.WAIT)
    async with running(store_url, clock=clock, resets=IDLE, questions=waits) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "!approve it")
        await chat.hears("Reply /approve or /deny.")
        await chat.say(alice, "waits")
        await until(lambda: not here.world.unacknowledged())
        clock.later(minutes=50)
        await chat.say(alice, "/approve")
        await chat.hears("You said: waits")
        clock.later(minutes=20)
        await chat.say(alice, "still here")
        await chat.hears("You said: still here")
        assert not any(NOTICE in message.text for message in chat.shown)


async def test_a_new_day_is_reported_as_such(tmp_path: Path) -> None:
    clock = MovableClock()
    async with running(tmp_path / "p.db", clock=clock, resets=DAILY) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "before")
        await chat.hears("before")
        clock.later(hours=25)
        await chat.say(alice, "after")
        assert "a new day began" in (await chat.hears(NOTICE)).text


async def test_the_notice_can_be_switched_off(tmp_path: Path) -> None:
    agent, clock = at_once(), MovableClock()
    async with running(
        tmp_path / "p.db", agent=agent, clock=clock, resets=IDLE, reset_notices=ScopedSetting(default=False)
    ) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "before")
        await chat.hears("before")
        clock.later(hours=2)
        await chat.say(alice, "after")
        await chat.hears("answer to: after")
        assert "nobody wrote for a while" in noted(agent.requests[1])
        assert not any(NOTICE in message.text for message in chat.shown)


async def test_no_notice_where_nothing_had_been_said(tmp_path: Path) -> None:
    clock = MovableClock()
    async with running(tmp_path / "p.db", clock=clock, resets=IDLE) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/new")
        await chat.hears("Started a new conversation")
        clock.later(hours=2)
        await chat.say(alice, "hello")
        await chat.hears("You said: hello")
        assert len(chat.shown) == 2


async def test_no_notice_where_no_people_read(tmp_path: Path) -> None:
    clock, world = MovableClock(), FakePlatform()
    hook = Platform(name="webhook", title="Webhook", for_people=False)
    mouth = Mouth(world, clock, platform=hook)
    grants = (Grant(platform="webhook", role=AccessRole.MEMBER),)
    async with running(tmp_path / "p.db", world, clock=clock, resets=IDLE, adapters=[mouth], grants=grants):
        chat = world.dm(world.person("alice"))
        await mouth.say(chat, "before")
        await chat.hears("before")
        clock.later(hours=2)
        await mouth.say(chat, "after")
        await chat.hears("You said: after")
        assert not any(NOTICE in message.text for message in chat.shown)


async def test_only_people_keep_a_conversation_awake(tmp_path: Path) -> None:
    agent, clock, world = at_once(), MovableClock(), FakePlatform()
    mouth = Mouth(world, clock)
    async with running(tmp_path / "p.db", world, agent=agent, clock=clock, resets=IDLE, adapters=[mouth]) as here:
        chat = world.dm(world.person("alice"))
        await mouth.say(chat, "before")
        await chat.hears("before")
        clock.later(minutes=45)
        await mouth.say(chat, "the weather", cause=Cause.SCHEDULE)
        await mouth.say(chat, "chatter", observed=True)
        await mouth.say(chat, "/status")
        await here.settled()
        clock.later(minutes=45)
        await mouth.say(chat, "after")
        await chat.hears("answer to: after")
        await chat.hears(NOTICE)


async def test_a_live_process_keeps_a_conversation_for_a_day(tmp_path: Path) -> None:
    clock = MovableClock()
    async with running(tmp_path / "p.db", clock=clock, resets=IDLE, sweep_every=timedelta(seconds=0.02)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "before")
        await chat.hears("before")
        await here.store.transact(start_process(1, int(clock.now().timestamp() * 1_000_000)))
        clock.later(hours=20)
        await asyncio.sleep(0.1)
        assert [row[0] for row in await here.rows("SELECT ended FROM sessions")] == [None]
        await chat.say(alice, "during")
        await chat.hears("You said: during")
        clock.later(hours=20)
        await until(lambda: _has_ended(here))


async def _has_ended(here: Bench) -> bool:
    return [row[0] for row in await here.rows("SELECT end_reason FROM sessions ORDER BY no")] == ["idle"]


async def test_the_watcher_ends_what_has_expired_and_back_returns_to_it(store_url: str) -> None:
    agent, clock = at_once(), MovableClock()
    async with running(store_url, agent=agent, clock=clock, resets=IDLE, sweep_every=timedelta(seconds=0.02)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "before")
        await chat.hears("before")
        clock.later(hours=2)
        await until(lambda: _has_ended(here))
        await chat.say(alice, "/back")
        await chat.hears("Undid the last")
        await chat.say(alice, "where were we?")
        await chat.hears("where were we?")
        assert agent.requests[1].session == agent.requests[0].session


async def test_each_conversation_ends_when_its_own_time_comes(tmp_path: Path) -> None:
    clock = MovableClock()
    hourly, soon = (ResetPolicy(mode=ResetMode.IDLE, idle_minutes=minutes) for minutes in (55, 20))
    resets = ScopedSetting(default=hourly, kinds={"group": soon})
    async with running(tmp_path / "p.db", clock=clock, resets=resets, sweep_every=timedelta(seconds=0.02)) as here:
        alice = here.world.person("alice")
        for chat in (here.world.dm(alice), here.world.group("friends", alice)):
            await chat.say(alice, "hello")
            await chat.hears("hello")

        async def ended() -> list[str | None]:
            return [row[0] for row in await here.rows("SELECT end_reason FROM sessions ORDER BY no")]

        for minutes, expected in (
            (10, [None, None]),
            (15, [None, "idle"]),
            (15, [None, "idle"]),
            (15, ["idle", "idle"]),
        ):
            clock.later(minutes=minutes)
            await asyncio.sleep(0.1)
            assert await ended() == expected


async def test_back_after_a_reset_returns_to_the_conversation_before(tmp_path: Path) -> None:
    agent, clock = at_once(), MovableClock()
    async with running(tmp_path / "p.db", agent=agent, clock=clock, resets=IDLE) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "before")
        await chat.hears("before")
        clock.later(hours=2)
        await chat.say(alice, "after")
        await chat.hears("answer to: after")
        await chat.say(alice, "/back")
        await chat.hears("Undid the last")
        await chat.say(alice, "where were we?")
        await chat.hears("where were we?")
        assert agent.requests[2].session == agent.requests[0].session != agent.requests[1].session


async def test_what_a_turn_holds_is_not_ended_under_it(tmp_path: Path) -> None:
    agent, clock = Slow(), MovableClock()
    async with running(
        tmp_path / "p.db",
        agent=agent,
        clock=clock,
        resets=IDLE,
        sweep_every=timedelta(seconds=0.02),
        lease=timedelta(days=30),
    ) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "before")
        await until(lambda: bool(agent.requests))
        clock.later(hours=2)
        await asyncio.sleep(0.1)
        agent.go.set()
        await chat.hears("answer to: before")


async def test_never_means_never(tmp_path: Path) -> None:
    clock, agent = MovableClock(), at_once()
    async with running(tmp_path / "p.db", clock=clock, agent=agent, sweep_every=timedelta(seconds=0.02)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "before")
        await chat.hears("before")
        for _ in range(2):  # when a second sweep has begun, the first is over
            clock.later(days=2000)
            lease = await here.rows(SWEEPER)
            await until(lambda lease=lease: _has_changed(here, lease))
        await chat.say(alice, "after")
        await chat.hears("answer to: after")
        assert agent.requests[1].session == agent.requests[0].session
        assert not any(NOTICE in message.text for message in chat.shown)


SWEEPER = "SELECT lease_until FROM accounts WHERE account = 'sweeper'"


async def _has_changed(here: Bench, lease: object) -> bool:
    return await here.rows(SWEEPER) != lease
