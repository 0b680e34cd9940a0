"""What the model agent adds to its provider's client in one turn: notes in the prompt, a tool call, and drafts.

The store is not in it: `turn.*` measures that.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from openai import AsyncOpenAI, AsyncStream

from bench.measure import Bare, Figure, ratio_at_most, set_aside, side_by_side
from palaver.agents.model.agent import ModelAgent
from palaver.agents.model.options import ModelOptions
from palaver.engine.delivery.drafts import Draft
from palaver.engine.delivery.sender import SendBudget
from palaver.engine.retry import Timeouts
from palaver.engine.turns.agent import AgentRun
from palaver.engine.turns.progress import ToolProgress
from palaver.model.memory import MemoryScope, Note, notes_section
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.turn import Outbound
from palaver.model.view import Message
from palaver.protocols.agent import Final, Request
from palaver.protocols.tools import Tool
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from palaver.tools.schemas import object_schema, text_schema
from tests.agents.fake_provider import Call, Says, providing

__all__ = ["overhead"]

_ROUNDS = 101
_EXCHANGES = 25
_TOOLS = 12
_NOTES = 20
_ANSWER = "A sentence of some length that comes in pieces. " * 10
_SCRIPT = Says(calls=(Call("look", '{"at": "the sky"}', "call_now"),)), Says(text=_ANSWER)
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def overhead() -> Iterator[Figure]:
    ours, bare = asyncio.run(_measured())
    yield Figure(
        name="agent.overhead",
        value=ours,
        bare=Bare(name="the bare openai client", value=bare),
        limit=ratio_at_most(1.25),
        note=f"{(ours - bare) * 1e3:+.1f} ms in a turn with a tool call and an answer in {len(_ANSWER) // 5} pieces",
    )


async def _measured() -> tuple[float, float]:
    async with providing() as provider:
        agent = ModelAgent.of(ModelOptions(model="openai:scripted", key="sk-bench", base_url=provider.openai))
        client = AsyncOpenAI(api_key="sk-bench", base_url=provider.openai, max_retries=0)
        request = _request()

        async def ours(_number: int) -> None:
            provider.then(*_SCRIPT)
            run, progress, draft = _shown_run(agent)
            outcome = await run.ask(request)
            assert isinstance(outcome, Final)  # noqa: S101
            assert outcome.text == _ANSWER  # noqa: S101
            progress.end()
            await draft.finish()

        async def bare(_number: int) -> None:
            provider.then(*_SCRIPT)
            for body in bodies:
                async with cast("AsyncStream[object]", await client.chat.completions.create(**body)) as chunks:
                    async for _ in chunks:
                        pass

        await ours(0)
        bodies: list[Any] = list(provider.requests)
        await bare(0)
        assert provider.bodies[2:] == provider.bodies[:2]  # noqa: S101
        set_aside()
        sides = await side_by_side(ours, bare, rounds=_ROUNDS)
        await agent.close()
        await client.close()
        return sides.ours, sides.other


@dataclass
class _Tools:
    tools: Sequence[Tool] = tuple(
        Tool(
            name=name,
            description="Look at something, and say what there is to be seen. " * 4,
            parameters=object_schema("at", at=text_schema("What to look at."), closely={"type": "boolean"}),
        )
        for name in ("look", *(f"tool_{number}" for number in range(1, _TOOLS)))
    )

    async def question(self, call: ToolCall) -> None: ...

    async def use(self, call: ToolCall) -> str:
        return f"{call.name}: a cloud"


def _shown_run(agent: ModelAgent) -> tuple[AgentRun, ToolProgress, Draft]:
    """Answer in a chat that shows tools and text while they come."""

    async def write(_entry: Entry) -> None: ...

    async def store_receipt(_receipt: str | None) -> None: ...

    async def begin() -> bool:
        return True

    draft = Draft(
        FakeAdapter(FakePlatform(), "bot"),
        Outbound(platform="fake", account="bot", chat_id="7", text="…"),
        SendBudget(),
        store_receipt=store_receipt,
        begin=begin,
        receipt=None,
        is_unclear=False,
        idempotency_key="draft",
        timeout=10.0,
        is_group=False,
    )
    progress = ToolProgress(draft.show_progress, {})

    def show(text: str) -> None:
        progress.end()
        draft.show(text)

    run = AgentRun(
        agent=agent,
        write=write,
        show=show,
        work=progress.update,
        now=lambda: _NOW,
        timeouts=Timeouts(),
        quiet_limit=timedelta(minutes=1),
    )
    return run, progress, draft


def _request() -> Request:
    scope = MemoryScope(profile="default", identity="fake:alice")
    notes = [
        Note(profile="default", identity="fake:alice", number=number, text=f"Likes cloud {number}.", created=_NOW)
        for number in range(_NOTES)
    ]
    return Request(
        session="s",
        turn=1,
        attempt=1,
        section="You are here.\n\n" + notes_section(notes, scope),
        messages=_conversation(),
        toolbox=_Tools(),
    )


def _conversation() -> tuple[Message, ...]:
    words = "some words that were said in the course of a conversation " * 4
    messages: list[Message] = []
    for number in range(_EXCHANGES):
        call = ToolCall(f"call_{number}", "look", '{"at":"the sky"}')
        messages += [
            Message(Role.USER, f"{number} {words}"),
            Message(Role.ASSISTANT, "", (call,)),
            Message(Role.TOOL, words, (), call.id),
            Message(Role.ASSISTANT, words),
        ]
    return (*messages, Message(Role.USER, "and now?"))
