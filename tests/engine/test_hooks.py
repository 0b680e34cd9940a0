"""Hooks learn what happens; a bad one hurts nobody."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.engine import hooks
from palaver.model.key import ScopedSetting
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.protocols.hooks import EventKind, GatewayEvent
from palaver.store.queue.welcome import FIRST_CONTACT_NOTE
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Slow, noted
from tests.engine.gateway import Bench, MovableClock, running, until
from tests.store.conftest import fresh_store

IDLE = ScopedSetting(default=ResetPolicy(mode=ResetMode.IDLE, idle_minutes=60))
OFTEN = timedelta(seconds=0.02)
SELDOM = timedelta(minutes=10)


async def test_a_turn_is_reported_from_its_start_to_its_delivery(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await until(lambda: len(here.happened) == 4)
        assert [happening.kind for happening in here.happened] == [
            EventKind.SESSION_STARTED,
            EventKind.TURN_STARTED,
            EventKind.TURN_FINISHED,
            EventKind.MESSAGE_DELIVERED,
        ]
        assert "hello" not in str(here.happened)


async def test_a_hook_that_fails_and_one_that_hangs_hold_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "HOOK_TIMEOUT_SECONDS", 0.05)

    async def fails(happening: GatewayEvent) -> None:
        raise ValueError(happening.kind)

    async def hangs(_happening: GatewayEvent) -> None:
        await asyncio.Event().wait()

    async with running(tmp_path / "p.db", hooks=(fails, hangs)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("You said: hello")
        await until(lambda: len(here.happened) == 4)


async def test_the_end_of_a_session_is_reported_again_until_the_hook_takes_it(tmp_path: Path) -> None:
    clock = MovableClock()
    tries: list[str | None] = []

    async def fails_twice(happening: GatewayEvent) -> None:
        if happening.kind is EventKind.SESSION_FINALISED:
            tries.append(happening.session)
            if len(tries) < 3:
                raise ValueError

    async with running(tmp_path / "p.db", clock=clock, resets=IDLE, sweep_every=OFTEN, hooks=(fails_twice,)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("hello")
        clock.later(hours=2)
        await until(lambda: len(tries) == 3)
        await asyncio.sleep(0.1)
        assert len(tries) == 3
        assert EventKind.SESSION_ENDED in [happening.kind for happening in here.happened]


async def test_a_hook_that_took_the_end_is_not_told_again_because_another_failed(store_url: str) -> None:
    clock, took, failed = MovableClock(), list[str | None](), list[str | None]()

    async def takes(happening: GatewayEvent) -> None:
        if happening.kind is EventKind.SESSION_FINALISED:
            took.append(happening.session)

    async def fails(happening: GatewayEvent) -> None:
        if happening.kind is EventKind.SESSION_FINALISED:
            failed.append(happening.session)
            raise ValueError

    async with running(store_url, clock=clock, resets=IDLE, sweep_every=OFTEN, hooks=(fails, takes)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("hello")
        clock.later(hours=2)

        async def is_finalised() -> bool:
            return bool(await here.rows("SELECT 1 FROM sessions WHERE finalised IS NOT NULL"))

        await until(is_finalised)
        assert (len(failed), len(took)) == (3, 1)


async def test_a_hook_that_never_takes_it_is_asked_three_times_over_restarts(tmp_path: Path) -> None:
    clock, world = MovableClock(), FakePlatform()
    tries: list[str | None] = []

    async def fails(happening: GatewayEvent) -> None:
        if happening.kind is EventKind.SESSION_FINALISED:
            tries.append(happening.session)
            raise ValueError

    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, clock=clock, resets=IDLE, hooks=(fails,)):
        await chat.say(alice, "hello")
        await chat.hears("hello")
        clock.later(hours=2)
    for start in range(5):
        # One look at each start: a try that is cut off before it is counted would not count.
        async with running(
            tmp_path / "p.db", world, clock=clock, resets=IDLE, hooks=(fails,), worker=f"w{start}", sweep_every=SELDOM
        ) as here:
            await until(lambda here=here, start=start: _has_tried(here, min(3, start + 1)))
            await asyncio.sleep(0.03)
    assert len(tries) == 3


async def _has_tried(here: Bench, times: int) -> bool:
    return await here.rows("SELECT finalise_tries FROM sessions") == [(times,)]


async def test_many_gateways_tell_the_end_of_a_session_once(postgres_server: str) -> None:
    url, clock, world = await fresh_store(postgres_server), MovableClock(), FakePlatform()
    told: list[str | None] = []

    async def slow(happening: GatewayEvent) -> None:
        if happening.kind is EventKind.SESSION_FINALISED:
            told.append(happening.session)
            await asyncio.sleep(0.1)

    alice = world.person("alice")
    chats = [world.dm(alice) for _ in range(8)]
    async with running(url, world, clock=clock, resets=IDLE, alone=False):
        for chat in chats:
            await chat.say(alice, "hello")
            await chat.hears("hello")
        clock.later(hours=2)
    sweeping = {"clock": clock, "resets": IDLE, "sweep_every": timedelta(seconds=0.2), "hooks": (slow,), "alone": False}
    async with (
        running(url, worker="w2", adapters=[], **sweeping),  # pyright: ignore[reportArgumentType]
        running(url, worker="w3", adapters=[], **sweeping),  # pyright: ignore[reportArgumentType]
    ):
        # Longer than one lease of the worker that sweeps.
        await until(lambda: len(set(told)) == len(chats))
        await asyncio.sleep(0.5)
    assert len(told) == len(chats)


async def test_a_person_who_speaks_for_the_first_time_is_noted_once(store_url: str) -> None:
    agent = Slow()
    agent.go.set()
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for text in ("hello", "/new", "again"):
            await chat.say(alice, text)
        await chat.hears("again")
        assert [FIRST_CONTACT_NOTE in noted(request) for request in agent.requests] == [True, False]


async def test_somebody_new_in_a_conversation_that_exists_is_noted_too(tmp_path: Path) -> None:
    agent = Slow()
    agent.go.set()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        group = here.world.group("friends", alice, bob)
        await group.say(alice, "hello", thread="5")
        await group.hears("hello")
        await group.say(bob, "me too", thread="5")
        await group.hears("me too")
        assert [noted(request).count(FIRST_CONTACT_NOTE) for request in agent.requests] == [1, 2]


async def test_a_fresh_conversation_is_reported_with_the_end_of_the_one_before(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one")
        await until(lambda: len(here.happened) == 4)
        here.happened.clear()
        await chat.say(alice, "/new")
        await chat.hears("Started a new conversation.")
        await until(lambda: len(here.happened) == 4)
        (first, second) = [row[0] for row in await here.rows("SELECT id FROM sessions ORDER BY no")]
        assert [(each.kind, each.session, each.reason) for each in here.happened[:3]] == [
            (EventKind.SESSION_ENDED, first, "reset"),
            (EventKind.SESSION_RESET, second, "reset"),
            (EventKind.SESSION_STARTED, second, None),
        ]


async def test_a_conversation_that_starts_fresh_on_its_own_is_reported_with_the_end_of_the_one_before(
    tmp_path: Path,
) -> None:
    clock = MovableClock()
    async with running(tmp_path / "p.db", clock=clock, resets=IDLE) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one")
        await chat.hears("one")
        await until(lambda: EventKind.MESSAGE_DELIVERED in {each.kind for each in here.happened})
        await here.settled()
        here.happened.clear()
        clock.later(hours=2)
        await chat.say(alice, "two")
        await chat.hears("two")
        await until(lambda: len(here.happened) >= 3)
        (first, second) = [row[0] for row in await here.rows("SELECT id FROM sessions ORDER BY no")]
        assert [(each.kind, each.session, each.reason) for each in here.happened[:3]] == [
            (EventKind.SESSION_ENDED, first, "idle"),
            (EventKind.SESSION_RESET, second, "idle"),
            (EventKind.SESSION_STARTED, second, None),
        ]
