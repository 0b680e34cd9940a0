"""What the model agent adds to a call of its provider: messages out of a conversation, events out of an answer."""

import asyncio
from collections.abc import Iterator

from openai import AsyncOpenAI

from bench.measure import Bare, Figure, ratio_at_most, set_aside, side_by_side
from palaver.agents.model.agent import ModelAgent
from palaver.agents.model.options import ModelOptions
from palaver.model.transcript import Role, ToolCall
from palaver.model.view import Message
from palaver.protocols.agent import Final, Request
from tests.agents.fake_provider import Says, providing

__all__ = ["overhead"]

_ROUNDS = 101
_EXCHANGES = 25
_ANSWER = "A sentence of some length that comes in pieces. " * 10


def overhead() -> Iterator[Figure]:
    ours, bare = asyncio.run(_measured())
    yield Figure(
        name="agent.overhead",
        value=ours,
        bare=Bare(name="the bare openai client", value=bare),
        limit=ratio_at_most(1.5, goal=1.25),
        note=f"{(ours - bare) * 1e3:.1f} ms added to an answer in {len(_ANSWER) // 5} pieces",
    )


async def _measured() -> tuple[float, float]:
    async with providing() as provider:
        agent = ModelAgent.of(ModelOptions(model="openai:scripted", key="sk-bench", base_url=provider.openai))
        client = AsyncOpenAI(api_key="sk-bench", base_url=provider.openai, max_retries=0)
        request = Request(session="s", turn=1, attempt=1, section="You are here.", messages=_conversation())

        async def ours(_number: int) -> None:
            provider.then(Says(text=_ANSWER))
            async for event in agent.answer(request):
                assert not isinstance(event, Final) or event.text == _ANSWER  # noqa: S101

        async def bare(_number: int) -> None:
            provider.then(Says(text=_ANSWER))
            stream = await client.chat.completions.create(model="scripted", messages=sent, stream=True)
            async for _ in stream:
                pass

        await ours(0)
        sent = provider.requests[0]["messages"]
        set_aside()
        sides = await side_by_side(ours, bare, rounds=_ROUNDS)
        await agent.close()
        await client.close()
        return sides.ours, sides.other


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
