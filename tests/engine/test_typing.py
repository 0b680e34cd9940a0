"""While a turn runs its chat sees that somebody is writing, where the platform can show it."""

import asyncio
from pathlib import Path

import pytest

from palaver.commands.registry import Registry, reply
from palaver.db.transaction import Transaction
from palaver.engine.commands import CommandContext
from palaver.model.command import Invocation
from palaver.model.turn import Outbound
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import BOT, FakePlatform
from tests.engine.agents import Slow
from tests.engine.gateway import running, until


@pytest.fixture(autouse=True)
def lively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.engine.turns.running.TYPING_DELAY_SECONDS", 0.0)
    monkeypatch.setattr("palaver.engine.turns.running.TYPING_INTERVAL_SECONDS", 0.05)


async def test_typing_is_shown_again_and_again_until_the_answer_is_there(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await until(lambda: len(chat.typing) >= 3)
        agent.go.set()
        await chat.hears("answer to: hello")
        await here.settled()
        assert set(chat.typing) == {(BOT, None)}
        seen = len(chat.typing)
        await asyncio.sleep(0.2)
        assert len(chat.typing) == seen


async def test_typing_is_shown_while_a_command_waits_for_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = asyncio.Event()

    async def perform(self: Registry, invocation: Invocation, context: CommandContext) -> Transaction[str]:  # noqa: ARG001
        await go.wait()
        return reply("It works.")

    monkeypatch.setattr(Registry, "perform", perform)
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/connect")
        await until(lambda: bool(chat.typing))
        go.set()
        await chat.hears("It works.")


class Shy(FakeAdapter):
    tried = 0

    async def typing(self, outbound: Outbound) -> None:
        self.tried += 1
        raise ValueError(outbound)


async def test_where_it_fails_it_is_left_and_the_answer_comes(tmp_path: Path) -> None:
    agent, world = Slow(), FakePlatform()
    adapter = Shy(world)
    async with running(tmp_path / "p.db", world, agent=agent, adapters=[adapter]):
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "hello")
        await until(lambda: adapter.tried == 1)
        agent.go.set()
        await chat.hears("answer to: hello")
        assert adapter.tried == 1
