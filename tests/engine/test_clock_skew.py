"""Gateways on one PostgreSQL whose machines have different times: the database's counts."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from palaver.cli import shared_options
from palaver.cli.main import main
from palaver.store.clock import StoreClock
from palaver.store.store import Store
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Slow
from tests.engine.gateway import Bench, running, until
from tests.store.conftest import fresh_store

LEASE, LONG = timedelta(seconds=1), timedelta(seconds=15)


@dataclass
class WrongClock:
    ahead: timedelta = field(default_factory=timedelta)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


def by_the_store(clock: WrongClock) -> Callable[[Store], StoreClock]:
    return lambda store: StoreClock(store.database, clock)


def serves(here: Bench) -> bool:
    return any(health.served_since for health in here.engine.health.values())


async def test_a_worker_whose_clock_is_ahead_takes_no_turn_of_a_living_one(postgres_server: str) -> None:
    """By its own clock every lease has run out; it is less wrong than keeps a gateway from serving."""
    url, world, agent, ahead = await fresh_store(postgres_server), FakePlatform(), Slow(), WrongClock()
    ahead.ahead = timedelta(seconds=20)
    alice = world.person("alice")
    chat, other_chat = world.dm(alice), world.dm(alice)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(
            running(
                url, world, alone=False, concurrent_turns=1, lease=LONG, agent=agent, clock=by_the_store(WrongClock())
            )
        )
        await chat.say(alice, "hello")
        await until(lambda: bool(agent.requests))
        other = Slow()
        other.go.set()
        second = running(url, worker="w2", alone=False, lease=LONG, agent=other, adapters=[], clock=by_the_store(ahead))
        await stack.enter_async_context(second)
        await other_chat.say(alice, "hello")  # answered by the second, after it has looked for turns without a worker
        await other_chat.hears("hello")
        agent.go.set()
        await chat.hears("hello")
    assert {request.attempt for request in (*agent.requests, *other.requests)} == {1}


async def test_one_whose_clock_is_wrong_serves_nothing_until_it_is_right(
    postgres_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="palaver")
    url, world, clock = await fresh_store(postgres_server), FakePlatform(), WrongClock()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(url, world, alone=False, lease=LEASE, clock=by_the_store(clock)) as here:
        await chat.say(alice, "one")
        await chat.hears("You said: one")
        for ahead, side in ((timedelta(minutes=10), "ahead of"), (timedelta(minutes=-10), "behind")):
            clock.ahead = ahead
            await until(lambda: not serves(here))
            problem = f"this machine's clock is 600 seconds {side} the database server's"
            assert here.engine.clock_problem == f"{problem}: compare both, and set the wrong one"
            async with running(url, worker="w2", alone=False, lease=LEASE, world=world) as other:
                await until(lambda: serves(other))
                await chat.say(alice, side)
                await chat.hears(f"You said: {side}")
                assert not serves(here)
            await here.store.transact(here.store.accounts.release("fake", "bot", "w2"))
            clock.ahead = timedelta()
            await until(lambda: serves(here))
            await chat.say(alice, f"again {side}")
            await chat.hears(f"You said: again {side}")
    said = [getattr(record, "action", "") for record in caplog.records]
    assert [action for action in said if action.startswith("clock.")] == ["clock.wrong", "clock.right"] * 2


def test_nobody_is_forgotten_in_the_middle_of_a_turn_from_a_machine_whose_clock_is_ahead(
    postgres_server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = WrongClock(timedelta(hours=1))
    monkeypatch.setattr(shared_options, "now", wrong.now)

    async def forget() -> None:
        url, world, agent = await fresh_store(postgres_server), FakePlatform(), Slow()
        alice = world.person("alice")
        chat = world.dm(alice)
        async with running(url, world, alone=False, agent=agent, clock=by_the_store(WrongClock())) as here:
            await chat.say(alice, "hello")
            await until(lambda: bool(agent.requests))
            command = ["people", "forget", f"fake:{alice.id}", "--yes", "--store", url]
            assert await asyncio.to_thread(main, command) == 1
            assert "in the middle of a turn" in capsys.readouterr().err
            agent.go.set()
            await chat.hears("hello")
            await here.settled()
            states = await here.rows("SELECT state FROM turns")
        assert [state for (state,) in states] == ["done"]
        assert await asyncio.to_thread(main, ["doctor", "--no-test", "--store", url]) == 1
        said = capsys.readouterr().out
        assert "this machine's clock is 3600 seconds ahead of the database server's: compare both" in said

    asyncio.run(forget())
