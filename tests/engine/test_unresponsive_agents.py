"""An agent that does not stop, or does not clean up, holds nobody up; what it has answered counts."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.engine import texts
from palaver.model.transcript import ToolCall
from palaver.protocols.adapter import Limits
from palaver.protocols.agent import Event, Final, Request, TextDelta, ToolCalled
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import heard
from tests.engine.gateway import Bench, running

SHORT = timedelta(seconds=0.1)
_CANCELS = 4
"""More than the gateway sends, so few that the test itself ends."""


@dataclass
class Stubborn:
    """Does not heed being cancelled until it is let go; then it goes on as if nothing had happened."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    said: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        if heard(request) == "hang":
            yield TextDelta("well")
            for _ in range(_CANCELS):
                with suppress(asyncio.CancelledError):
                    await self.go.wait()
                    break
            self.said.set()
            yield TextDelta("too late")
            yield ToolCalled(calls=(ToolCall(id="c1", name="look"),))
        yield Final(text=f"answer to: {heard(request)}")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.engine.turns.running.CANCEL_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr("palaver.engine.turns.agent.CLOSE_TIMEOUT_SECONDS", 0.1)


async def _let_go(agent: Stubborn, here: Bench) -> None:
    agent.go.set()
    await agent.said.wait()
    await asyncio.sleep(0.1)
    assert not here.serving.done()


@pytest.mark.parametrize("quiet_limit", [SHORT, timedelta(minutes=1)])
async def test_a_turn_ends_in_time_though_its_agent_does_not(
    tmp_path: Path, quiet_limit: timedelta, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Stubborn()
    async with running(
        tmp_path / "p.db",
        agent=agent,
        acknowledges=False,
        limits=Limits(draft_interval=0.0),
        turn_limit=3 * SHORT,
        quiet_limit=quiet_limit,
    ) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hang")
        await chat.hears(texts.TOO_LONG)
        await chat.say(alice, "next")
        await chat.hears("next")
        await _let_go(agent, here)
        assert [message.text for message in chat.shown] == [texts.TOO_LONG, "answer to: hang\n\nnext"]
        assert await here.rows("SELECT state, attempt FROM turns ORDER BY no") == [("failed", 1), ("done", 1)]
    assert "the agent does not stop" in caplog.text


async def test_stop_ends_the_turn_of_an_agent_that_does_not_stop(tmp_path: Path) -> None:
    agent = Stubborn()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hang")
        await chat.hears("well")
        await chat.say(alice, "/stop")
        await chat.say(alice, "next")
        await chat.hears("next")
        await _let_go(agent, here)


async def test_draining_does_not_wait_for_ever(tmp_path: Path) -> None:
    world, agent = FakePlatform(), Stubborn()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, agent=agent, drain_limit=SHORT) as here:
        await chat.say(alice, "hang")
        await chat.hears("well")
        async with asyncio.timeout(60):
            await here.engine.drain()
        assert await here.rows("SELECT state FROM turns") == [("interrupted",)]
        await _let_go(agent, here)


@dataclass
class Direct:
    """Its answer is the generator itself."""

    script: Callable[[Request], AsyncGenerator[Event]]

    def answer(self, request: Request) -> AsyncGenerator[Event]:
        return self.script(request)


async def _hangs_behind(request: Request) -> AsyncGenerator[Event]:
    try:
        yield Final(text=f"answer to: {heard(request)}")
    finally:
        await asyncio.sleep(3600)


async def _breaks_behind(request: Request) -> AsyncGenerator[Event]:
    try:
        yield Final(text=f"answer to: {heard(request)}")
    finally:
        raise ConnectionResetError(heard(request))


@pytest.mark.parametrize("script", [_hangs_behind, _breaks_behind])
async def test_an_answer_counts_however_the_agent_cleans_up(
    tmp_path: Path, script: Callable[[Request], AsyncGenerator[Event]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(tmp_path / "p.db", agent=Direct(script), turn_limit=timedelta(seconds=2)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("answer to: hello")
        await here.settled()
        assert len(chat.shown) == 1
    assert "the agent did not close" in caplog.text
    assert "hello" not in caplog.text
