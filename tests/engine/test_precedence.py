"""What was begun already goes on before anything new begins, however much of that waits."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

from palaver.model.transcript import ToolCall
from palaver.protocols.agent import ApprovalNeeded, Event, Excerpt, Final, GeneratedText, Request
from palaver.testkit.chat import Chat
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Condensing, Scripted, heard, noted
from tests.engine.gateway import Bench, running, until

SLOW = timedelta(minutes=5)


async def say(here: Bench, *texts: str) -> list[Chat]:
    """Each by somebody else, in their own chat."""
    chats: list[Chat] = []
    for text in texts:
        person = here.world.person(text)
        chats.append(here.world.dm(person))
        await chats[-1].say(person, text)
        await until(lambda: not here.world.unacknowledged())
    return chats


class Gated:
    """Asks once for what needs permission; answers one after the other, as they are let through."""

    def __init__(self) -> None:
        self.gate = asyncio.Semaphore(0)
        self.begun: list[str] = []

    async def __call__(self, request: Request) -> AsyncGenerator[Event]:
        said = next(text for text in ("ask", "one", "two", "three", "four") if text in noted(request))
        if said == "ask" and not request.approvals:
            yield ApprovalNeeded(call=ToolCall(id="c", name="look"), question="May I?")
            return
        self.begun.append(said)
        await self.gate.acquire()
        yield Final(text=f"answer to: {said}")


async def test_a_turn_that_was_allowed_goes_on_before_messages_that_wait(store_url: str) -> None:
    gated = Gated()
    async with running(store_url, agent=Scripted(gated), concurrent_turns=1, lease=SLOW, poll=SLOW) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "ask")
        await chat.hears("May I?")
        others = await say(here, "one", "two", "three")
        await until(lambda: gated.begun == ["one"])
        await chat.say(alice, "/approve")
        await chat.hears("Approved.")
        for _ in range(4):
            gated.gate.release()
        for other in others:
            await other.hears("answer to")
        await chat.hears("answer to: ask")
        assert gated.begun == ["one", "ask", "two", "three"]


async def test_a_summary_that_was_asked_for_is_made_before_messages_that_wait(tmp_path: Path) -> None:
    begun: list[str] = []
    gate = asyncio.Event()

    class Noting(Condensing):
        async def answer(self, request: Request) -> AsyncGenerator[Event]:
            begun.append(heard(request).split()[0])
            if begun[-1] == "one":
                await gate.wait()
            async for event in super().answer(request):
                yield event

        async def summarise(self, passage: Excerpt) -> GeneratedText:  # noqa: ARG002
            begun.append("summary")
            return GeneratedText(text="SUMMARY")

    async with running(tmp_path / "p.db", agent=Noting(), concurrent_turns=1, lease=SLOW, poll=SLOW) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for number in range(4):
            await chat.say(alice, f"{number} " + "some words " * 20)
            await chat.hears(f"answer to: {number}")
        begun.clear()
        await say(here, "one")
        await until(lambda: begun == ["one"])
        await chat.say(alice, "/compress")
        others = await say(here, "two", "three", "four")
        gate.set()
        for other in others:
            await other.hears("answer to")
        assert begun == ["one", "summary", "two", "three", "four"]


async def test_all_that_was_cut_off_is_taken_up_before_messages_that_wait(tmp_path: Path) -> None:
    world, gated = FakePlatform(), Gated()
    async with running(tmp_path / "p.db", world, agent=Scripted(gated), concurrent_turns=2) as here:
        await say(here, "one", "two")
        await until(lambda: len(gated.begun) == 2)
        waiting = await say(here, "three", "four")
    gated.begun.clear()
    async with running(tmp_path / "p.db", world, agent=Scripted(gated), worker="w2", concurrent_turns=1, poll=SLOW):
        for _ in range(4):
            gated.gate.release()
        for chat in waiting:
            await chat.hears("answer to")
        assert gated.begun == ["one", "two", "three", "four"]
