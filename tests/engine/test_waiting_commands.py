"""No command waits for a person, and none that acts at once waits for a turn: not after a crash or an outage either."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.model.errors import StoreUnavailable
from palaver.model.transcript import ToolCall
from palaver.protocols.agent import ApprovalNeeded, Event, Request
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Scripted, Slow
from tests.engine.gateway import running, until
from tests.engine.trouble import trouble

SLOW, SOON = timedelta(minutes=5), timedelta(seconds=0.3)


@pytest.mark.parametrize(
    ("said", "command", "told"),
    [("!approve it", "/approve", "You said: it"), ("!approve it", "/title It", "It"), ("!hang", "/stop", "Stopping.")],
)
async def test_a_command_is_obeyed_by_the_next_gateway_where_the_first_died_before_it_could(
    store_url: str, monkeypatch: pytest.MonkeyPatch, said: str, command: str, told: str
) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    world = FakePlatform()
    alice = world.person("alice")
    chat = world.dm(alice)
    with monkeypatch.context() as patch:
        patch.setattr("palaver.engine.intake.command_dispatch.CommandDispatcher.run", never)
        async with running(store_url, world) as here:
            await chat.say(alice, said)
            state = "parked" if "approve" in said else "running"
            await until(lambda: _is_true(here.rows("SELECT 1 FROM turns WHERE state = ?", state)))
            await chat.say(alice, command)
            await until(lambda: _is_true(here.rows("SELECT 1 FROM inbox WHERE state = 'waiting'")))
    async with running(store_url, world, worker="w2", lease=SLOW, poll=SLOW) as here:
        await chat.hears(told)
        await here.settled()


async def _is_true(rows: Awaitable[Sequence[object]]) -> bool:
    return bool(await rows)


async def test_a_command_that_the_store_did_not_hear_of_is_obeyed_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "p.db", lease=SOON) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "!approve it")
        await chat.hears("May I")
        away = StoreUnavailable("it is away for a moment")
        happened = trouble(monkeypatch, here.store, "transact", "UPDATE inbox SET state = ?, reason", away)
        await chat.say(alice, "/approve")
        await chat.hears("You said: it")
        assert happened()


async def test_a_command_said_to_a_running_turn_is_obeyed_as_soon_as_that_waits_for_a_person(store_url: str) -> None:
    go = asyncio.Event()

    async def asks(_request: Request) -> AsyncGenerator[Event]:
        await go.wait()
        yield ApprovalNeeded(call=ToolCall(id="c", name="look"), question="May I?")

    agent = Scripted(asks)
    async with running(store_url, agent=agent, lease=SLOW, poll=SLOW) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "/title Holidays")
        await chat.hears("Still answering")
        go.set()
        await chat.hears("Holidays")
        assert await here.rows("SELECT state FROM turns") == [("parked",)]


async def test_what_is_not_urgent_still_waits_for_the_turn_however_often_it_is_looked_at(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent, lease=timedelta(seconds=0.03)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "/title Holidays")
        await until(lambda: not here.world.unacknowledged())
        await asyncio.sleep(0.05)
        assert await here.rows("SELECT title FROM sessions") == [(None,)]
        agent.go.set()
        await chat.hears("Holidays")
