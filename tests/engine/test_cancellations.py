"""What is cancelled in foreign code, and let out by it, breaks that alone: nothing of ours ends for it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.db.transaction import Transaction
from palaver.engine import retry, texts
from palaver.model.access import AccessRole, Grant
from palaver.model.key import ScopedSetting
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.transcript import ToolCall
from palaver.model.turn import Outbound
from palaver.protocols.adapter import Receiver
from palaver.protocols.agent import Agent, Event, Excerpt, Final, GeneratedText, Request, TextDelta
from palaver.protocols.hooks import EventKind, GatewayEvent
from palaver.protocols.tools import Tool, ToolUse
from palaver.store.store import Store
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Condensing, Scripted
from tests.engine.gateway import MovableClock, NoPauses, running, until
from tests.engine.mouth import Mouth

OFTEN = timedelta(seconds=0.02)
IDLE = ScopedSetting(default=ResetPolicy(mode=ResetMode.IDLE, idle_minutes=60))


async def _await_what_is_given_up() -> None:
    """As a library does whose own task is cancelled while somebody waits for it."""
    task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()
    await task


class BreaksOff:
    async def answer(self, request: Request) -> AsyncGenerator[Event]:  # noqa: ARG002
        yield TextDelta("half an answer")
        await _await_what_is_given_up()


class BreaksOffWhenClosed:
    async def answer(self, request: Request) -> AsyncGenerator[Event]:  # noqa: ARG002
        try:
            yield Final(text="a whole answer")
        finally:
            await _await_what_is_given_up()


@pytest.mark.parametrize(("agent", "answer"), [(BreaksOff(), texts.SORRY), (BreaksOffWhenClosed(), "a whole answer")])
async def test_an_agent_gets_no_further_than_its_turn(tmp_path: Path, agent: Agent, answer: str) -> None:
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears(answer)
        await here.settled()
        assert [message.text for message in chat.shown] == [answer]


async def test_a_summary_that_breaks_off_is_reported(tmp_path: Path) -> None:
    class Forgetful(Condensing):
        async def summarise(self, passage: Excerpt) -> GeneratedText:
            await _await_what_is_given_up()
            return await super().summarise(passage)

    async with running(tmp_path / "p.db", agent=Forgetful()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for number in range(4):
            await chat.say(alice, f"no. {number}")
            await chat.hears(f"answer to: no. {number}")
        await chat.say(alice, "/compress")
        await chat.hears("the agent could not do it")


async def test_a_hook_does_not_end_the_sweeper(tmp_path: Path) -> None:
    clock, tries = MovableClock(), list[str | None]()

    async def breaks_off_twice(happening: GatewayEvent) -> None:
        if happening.kind is EventKind.SESSION_FINALISED:
            tries.append(happening.session)
            if len(tries) < 3:
                await _await_what_is_given_up()

    hooks = (breaks_off_twice,)
    async with running(tmp_path / "p.db", clock=clock, resets=IDLE, sweep_every=OFTEN, hooks=hooks) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("hello")
        await here.settled()
        clock.later(hours=2)
        await until(lambda: len(tries) == 3)


class Rusty:
    """Tools that break off, each in its own way."""

    def __init__(self, *, lists: bool) -> None:
        self._lists = lists

    async def tools(self) -> Sequence[Tool]:
        if not self._lists:
            await _await_what_is_given_up()
        return [
            Tool(name=name, description="", parameters={}, needs_approval=name == "asks") for name in ("breaks", "asks")
        ]

    async def skips_approval(self, use: ToolUse) -> bool:  # noqa: ARG002
        await _await_what_is_given_up()
        return True

    async def use(self, use: ToolUse) -> str:  # noqa: ARG002
        await _await_what_is_given_up()
        return "done"


@pytest.mark.parametrize(
    ("toolset", "tool", "told"),
    [
        (Rusty(lists=False), "breaks", "There is no tool called breaks."),
        (Rusty(lists=True), "breaks", "The tool failed. Its effect is unknown."),
        (Rusty(lists=True), "asks", "A person has to approve this call first."),
    ],
)
async def test_a_tool_breaks_and_the_agent_learns_of_it(tmp_path: Path, toolset: Rusty, tool: str, told: str) -> None:
    async def uses(request: Request) -> AsyncGenerator[Event]:
        yield Final(text=await request.toolbox.use(ToolCall(id="c", name=tool)))

    grants = (Grant(role=AccessRole.OWNER),)
    async with running(tmp_path / "p.db", agent=Scripted(uses), toolsets=lambda _: (toolset,), grants=grants) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "do it")
        await chat.hears(told)


async def test_an_adapter_is_started_again(tmp_path: Path) -> None:
    class Falters(Mouth):
        tries = 0

        async def run(self, receiver: Receiver) -> None:
            self.tries += 1
            if self.tries == 1:
                await _await_what_is_given_up()
            await super().run(receiver)

    world, clock = FakePlatform(), MovableClock()
    adapter = Falters(world, clock)
    async with running(tmp_path / "p.db", world, adapters=[adapter], clock=clock, chance=NoPauses()) as here:
        chat = world.dm(world.person("alice"))
        await adapter.say(chat, "hello")
        await chat.hears("You said: hello")
        (health,) = here.engine.health.values()
        assert "the adapter broke" in (health.last_error or "")


async def test_a_send_that_breaks_off_may_have_arrived_and_is_repeated(tmp_path: Path) -> None:
    class Loses(FakeAdapter):
        tries = 0

        async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
            self.tries += 1
            if self.tries == 1:
                await _await_what_is_given_up()
            return await super().send(outbound, idempotency_key=idempotency_key)

    world, at_once = FakePlatform(), timedelta()
    adapters = [Loses(world)]
    async with running(tmp_path / "p.db", world, adapters=adapters, chance=NoPauses(), repeat_after=at_once):
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears(texts.MAY_BE_DUPLICATE)


@pytest.mark.drops_transactions
@pytest.mark.parametrize("how", ["read", "transact"])
async def test_a_step_that_breaks_off_in_a_loop_or_in_a_lane_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(retry, "RESTART_PAUSE_SECONDS", 0.01)
    async with running(tmp_path / "p.db", poll=OFTEN, lease=3 * OFTEN, chance=NoPauses()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "before")
        await chat.hears("You said: before")
        await here.settled()
        tries = 0

        async def break_off(_store: Store, _work: Transaction[object]) -> None:
            nonlocal tries
            tries += 1
            await _await_what_is_given_up()

        monkeypatch.setattr(Store, how, break_off)
        await chat.say(alice, "meanwhile")
        await until(lambda: tries > 20)
        monkeypatch.undo()
        await chat.hears("You said: meanwhile")
        assert not here.serving.done()
