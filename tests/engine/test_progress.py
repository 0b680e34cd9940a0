"""The chat shows which tools run, in one message that the answer takes the place of."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.engine import texts
from palaver.engine.turns import progress
from palaver.engine.turns.progress import describe_tools
from palaver.model.key import ScopedSetting
from palaver.model.transcript import ToolCall
from palaver.model.turn import Outbound
from palaver.protocols.adapter import Limits
from palaver.protocols.agent import (
    ApprovalNeeded,
    Event,
    Failure,
    FailureKind,
    Final,
    Request,
    TextDelta,
    ToolCalled,
    ToolReturned,
)
from palaver.store.status.invariants import violations
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from tests.engine.gateway import running, until

QUICK = Limits(draft_interval=0.0)
CALL = ToolCall(id="c", name="look")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0.01)


@dataclass
class Working:
    """Uses a tool until it may go on, and ends as the test says."""

    end: Event
    before: str = ""
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        if self.before:
            yield TextDelta(self.before)
        if not any(message.calls for message in request.messages):
            yield ToolCalled(calls=(CALL,), text=self.before)
        await self.go.wait()
        if not isinstance(self.end, ApprovalNeeded):
            yield ToolReturned(call="c", text="looked")
        yield self.end


async def test_the_answer_or_what_comes_instead_takes_its_place(store_url: str) -> None:
    ends = {
        "answer": (Final(text="It rains."), "It rains."),
        "nothing": (Final(text=""), texts.NO_ANSWER),
        "failure": (Failure(kind=FailureKind.FATAL, detail="broke"), texts.SORRY),
        "question": (ApprovalNeeded(call=CALL, question="May I?"), "May I?\nReply /approve or /deny."),
        "stop": (Final(text="never"), texts.STOPPED),
    }
    world = FakePlatform()
    for name, (end, shown) in ends.items():
        agent = Working(end)
        alice = world.person(name)
        chat = world.dm(alice)
        async with running(store_url, world, agent=agent, limits=QUICK) as here:
            await chat.say(alice, "weather?")
            await chat.hears("Using `look` (0 s)")
            if name == "stop":
                await chat.say(alice, "/stop")
            else:
                agent.go.set()
            await chat.hears(shown)
            await here.settled()
            assert [message.text for message in chat.shown if message.text != "Stopping."] == [shown]
            kept = [*await here.texts(), *(row[0] for row in await here.rows("SELECT body FROM outbox"))]
            assert not any("Using" in str(each) for each in kept)
            assert await here.store.read(violations()) == []


async def test_it_stands_below_what_was_said_and_the_answer_grows_in_the_same_message(tmp_path: Path) -> None:
    agent = Working(Final(text="It rains."), before="Let me look.")
    async with running(tmp_path / "p.db", agent=agent, limits=QUICK) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "weather?")
        await chat.hears("Let me look.\n\nUsing `look`")
        agent.go.set()
        await chat.hears("It rains.")
        await here.settled()
        (only,) = chat.shown
        assert only.text == "It rains."


async def test_a_tool_that_was_approved_is_shown_when_it_runs(tmp_path: Path) -> None:
    go = asyncio.Event()

    class Asking:
        async def answer(self, request: Request) -> AsyncGenerator[Event]:
            if not request.approvals:
                yield ToolCalled(calls=(CALL,))
                yield ApprovalNeeded(call=CALL, question="May I?")
                return
            await go.wait()
            yield ToolReturned(call="c", text="looked")
            yield Final(text="It rains.")

    async with running(tmp_path / "p.db", agent=Asking(), limits=QUICK) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "weather?")
        await chat.hears("May I?")
        await chat.say(alice, "/approve")
        await chat.hears("Using `look` (0 s)")
        go.set()
        await chat.hears("It rains.")
        await here.settled()
        assert not any("Using" in message.text for message in chat.shown)


async def test_a_crash_leaves_nothing_behind(tmp_path: Path) -> None:
    """Whether the turn goes on or is given up."""
    world = FakePlatform()
    for name, fresh, shown in (("resumed", timedelta(hours=1), "It rains."), ("stale", timedelta(), texts.STALE)):
        agent = Working(Final(text="It rains."))
        alice = world.person(name)
        chat = world.dm(alice)
        path = tmp_path / f"{name}.db"
        async with running(path, world, agent=agent, limits=QUICK) as here:
            await chat.say(alice, "weather?")
            await chat.hears("Using `look`")
            async with asyncio.timeout(60):
                while not await here.rows("SELECT 1 FROM turns WHERE draft IS NOT NULL"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        agent.go.set()
        async with running(path, world, agent=agent, limits=QUICK, worker="w2", fresh_for=fresh) as here:
            await chat.hears(shown)
            await here.settled()
            assert [message.text for message in chat.shown] == [shown]


async def test_nothing_is_shown_where_it_is_off_or_cannot_be_edited(tmp_path: Path) -> None:
    class Plain:
        """The fake platform without edits."""

        def __init__(self, world: FakePlatform) -> None:
            self._adapter = FakeAdapter(world)
            self.platform, self.account, self.limits = self._adapter.platform, self._adapter.account, QUICK
            self.run, self.send = self._adapter.run, self._adapter.send

    class Worded(FakeAdapter):
        said: list[str]

        async def typing(self, outbound: Outbound) -> None:
            self.said.append(outbound.text)

    world = FakePlatform()
    worded = Worded(world, limits=Limits(typing_has_words=True))
    worded.said = []
    plain, editing = Plain(world), FakeAdapter(world, limits=QUICK)
    for number, adapter in enumerate((plain, editing, worded)):
        agent = Working(Final(text="It rains."))
        alice = world.person(f"alice{number}")
        chat = world.dm(alice)
        async with running(
            tmp_path / f"{number}.db",
            world,
            agent=agent,
            adapters=[adapter],
            progress=ScopedSetting(default=adapter is not editing),
        ) as here:
            await chat.say(alice, "weather?")
            if adapter is worded:
                await until(lambda: any("Using `look`" in text for text in worded.said))
            else:
                await asyncio.sleep(0.1)
            agent.go.set()
            await chat.hears("It rains.")
            await here.settled()
            assert [(message.text, message.earlier) for message in chat.shown] == [("It rains.", ())]


def test_it_names_a_few_tools_and_counts_the_rest() -> None:
    assert describe_tools(["a", "b", "a"], 3.9) == "Using `a`, `b` (3 s)"
    assert describe_tools(["a"], 3, "page 3 of 9") == "Using `a` (3 s): `page 3 of 9`"
    assert describe_tools(["a", "b", "c", "d"], 65) == "Using `a`, `b`, `c` and 1 more (1 min 5 s)"
