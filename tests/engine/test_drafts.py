"""Answers that grow in the chat while they are written."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palaver.agents.echo import EchoAgent
from palaver.db.transaction import Statements, transaction
from palaver.model.split import Unit
from palaver.model.transcript import ToolCall
from palaver.model.turn import Outbound
from palaver.protocols.adapter import Limits
from palaver.protocols.agent import ApprovalNeeded, Event, Final, Request, TextDelta, ToolCalled, ToolReturned
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Scripted, Slow
from tests.engine.gateway import running


class Noting(FakeAdapter):
    def __init__(self, world: FakePlatform, draft_interval: float = 0.0) -> None:
        super().__init__(world, limits=Limits(draft_interval=draft_interval, repeats_safely=True))
        self.keys: list[str] = []
        self.sent = asyncio.Event()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        self.keys.append(idempotency_key)
        self.sent.set()
        return await super().send(outbound, idempotency_key=idempotency_key)


async def test_every_answer_grows_in_a_message_of_its_own(tmp_path: Path) -> None:
    """Also where the platform knows a message again by its key, so the keys of drafts name their turns."""
    world, agent = FakePlatform(repeats_safely=True), Slow(first_word="well")
    adapter = Noting(world)
    async with running(tmp_path / "p.db", world, agent=agent, adapters=[adapter], acknowledges=False) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for number in range(3):
            agent.go.clear()
            await chat.say(alice, f"number {number}")
            await chat.hears("well")
            agent.go.set()
            await chat.hears(f"answer to: number {number}")
    assert [message.text for message in chat.shown] == [f"answer to: number {number}" for number in range(3)]
    assert [key.split(":")[:2] for key in adapter.keys] == [["draft", f"{turn}-0"] for turn in (1, 2, 3)]


async def test_a_turn_that_is_taken_up_again_goes_on_in_the_same_message(tmp_path: Path) -> None:
    """Also if nobody wrote down which it was: the platform knows it by the name of the turn."""
    world, agent = FakePlatform(repeats_safely=True), Slow(first_word="well")
    adapter = Noting(world)
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, agent=agent, adapters=[adapter]) as here:
        await chat.say(alice, "hello")
        await chat.hears("well")
        await here.store.transact(_forget_draft())
    agent.go.set()
    async with running(tmp_path / "p.db", world, agent=agent, adapters=[adapter], worker="w2") as here:
        await chat.hears("answer to")
        await here.settled()
        assert len({key for key in adapter.keys if key.startswith("draft")}) == 1


@pytest.mark.parametrize("streams", [True, False])
async def test_a_fresh_database_has_no_names_of_an_earlier_one(tmp_path: Path, streams: bool) -> None:
    """Numbers begin anew in it; of a key that is known already the platform shows nothing."""
    world = FakePlatform(repeats_safely=True)
    alice = world.person("alice")
    chat = world.dm(alice)
    agent = EchoAgent(streams=streams)
    for name in ("first", "second"):
        adapter = Noting(world)
        async with running(tmp_path / f"{name}.db", world, agent=agent, adapters=[adapter], acknowledges=False):
            await chat.say(alice, name)
            await chat.hears(f"You said: {name}")
    assert [message.text for message in chat.shown] == ["You said: first", "You said: second"]


async def test_an_answer_does_not_take_the_place_of_the_question_it_was_allowed_by(tmp_path: Path) -> None:
    world, call = FakePlatform(repeats_safely=True), ToolCall(id="c1", name="weather")
    adapter = Noting(world)

    async def asks(request: Request) -> AsyncGenerator[Event]:
        adapter.sent.clear()
        yield TextDelta(text="it is sunny" if request.approvals else "let me look")
        while not adapter.sent.is_set():  # while something else is owed to the chat, no draft begins there
            await asyncio.sleep(0.01)
            yield TextDelta(text=" ")
        if request.approvals:
            yield ToolReturned(call=call.id, text="sunny")
            yield Final(text="it is sunny")
        else:
            yield ToolCalled(calls=(call,))
            yield ApprovalNeeded(call=call, question="May I use weather?")

    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, agent=Scripted(asks), adapters=[adapter]) as here:
        await chat.say(alice, "hello")
        await chat.hears("May I use weather?")
        await chat.say(alice, "/approve")
        await chat.hears("it is sunny")
        await here.settled()
    assert [message.text.splitlines()[0] for message in chat.shown][-1] == "it is sunny"
    assert any("May I use weather?" in message.text for message in chat.shown)


class Showing(FakeAdapter):
    def __init__(self, world: FakePlatform, limits: Limits) -> None:
        super().__init__(world, limits=limits)
        self.shown: list[str] = []

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        self.shown.append(outbound.text)
        return await super().send(outbound, idempotency_key=idempotency_key)


async def test_a_draft_shows_what_one_message_holds_with_its_code_closed(tmp_path: Path) -> None:
    world = FakePlatform(max_text=100, unit=Unit.UTF16)
    adapter = Showing(world, Limits(text=100, unit=Unit.UTF16, repeats_safely=True))
    agent = Slow(first_word="so\n```\n" + "\U0001f600\n" * 60)
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, agent=agent, adapters=[adapter]):
        await chat.say(alice, "hello")
        await chat.hears("\U0001f600")
    (draft,) = adapter.shown
    assert draft.endswith("\U0001f600\n```")
    assert 90 < Unit.UTF16.measure(draft) <= 100


async def test_answers_that_grow_in_one_chat_share_its_pace(tmp_path: Path) -> None:
    world = FakePlatform(repeats_safely=True)
    adapter, told = Noting(world, draft_interval=1000.0), asyncio.Semaphore(0)
    go = asyncio.Event()

    async def grows(request: Request) -> AsyncGenerator[Event]:
        yield TextDelta(text="well")
        told.release()
        await go.wait()
        yield Final(text=f"{request.turn} is done")

    alice, bob = world.person("alice"), world.person("bob")
    group = world.group("both", alice, bob)
    async with running(tmp_path / "p.db", world, agent=Scripted(grows), adapters=[adapter]) as here:
        for person in (alice, bob):
            await group.say(person, "hello", mentions=("bot",))
            await told.acquire()
        go.set()
        await here.settled()
    assert len([key for key in adapter.keys if key.startswith("draft")]) == 1


@transaction
def _forget_draft() -> Statements[None]:
    yield "UPDATE turns SET draft = NULL", ()
