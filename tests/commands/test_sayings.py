"""Messages of which their sender says what becomes of them while an answer is being worked on."""

from pathlib import Path

import pytest

from palaver.model.key import ScopedSetting
from palaver.model.turn import BusyMode
from tests.engine.agents import Slow
from tests.engine.gateway import Bench, running, until

MODES = [ScopedSetting(default=mode) for mode in BusyMode]


@pytest.mark.parametrize("busy", MODES, ids=str)
async def test_what_is_queued_neither_stops_nor_steers_the_answer(
    tmp_path: Path, busy: ScopedSetting[BusyMode]
) -> None:
    agent = Slow(tool=True)
    async with running(tmp_path / "p.db", agent=agent, busy=busy) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "/queue /second")
        await chat.hears("is queued")
        agent.go.set()
        await chat.hears("answer to: /second")
        assert [message.text for message in chat.shown if "answer" in message.text][-2:] == [
            "answer to: first",
            "answer to: /second",
        ]
        assert agent.meanwhile == []


@pytest.mark.parametrize("busy", MODES, ids=str)
async def test_what_is_to_steer_is_heard_after_the_next_step(tmp_path: Path, busy: ScopedSetting[BusyMode]) -> None:
    agent = Slow(tool=True)
    async with running(tmp_path / "p.db", agent=agent, busy=busy) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "/queue later")
        await chat.say(alice, "/steer only trains")
        await until(lambda: _waiting(here, 2))
        agent.go.set()
        await chat.hears("answer to: later")
        await here.settled()
        assert [text.rpartition("⟧ ")[2] for text in agent.meanwhile] == ["only trains"]
        assert [message.text for message in chat.shown if message.text.startswith("answer")] == [
            "answer to: first",
            "answer to: later",
        ]


async def _waiting(here: Bench, count: int) -> bool:
    return await here.store.read(here.store.inbox.count_waiting()) == count


@pytest.mark.parametrize("text", ["/steer hello", "/queue hello"])
async def test_where_nothing_is_worked_on_it_is_an_ordinary_message(tmp_path: Path, text: str) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, text)
        await chat.hears("You said: hello")
        assert "hello" in await here.texts()


async def test_there_is_something_to_say(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/queue")
        await chat.hears("/queue needs <text>")
