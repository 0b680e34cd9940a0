"""A model agent before a scripted provider, and what it is asked."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from palaver.agents.model.agent import ModelAgent
from palaver.agents.model.options import ModelOptions
from palaver.model.transcript import Role, ToolCall
from palaver.model.view import Message
from palaver.protocols.agent import Agent, Event, Request, TextDelta, UsageReport
from palaver.protocols.tools import Tool
from tests.agents.fake_provider import Provider, Step, providing

__all__ = ["KEY", "MODEL", "Box", "asked", "events", "kinds", "request"]

KEY = "sk-very-secret-key-0123456789"
MODEL = "openai:scripted"


@dataclass
class Box:
    """Two tools: one that can be used, one that somebody must allow."""

    used: list[ToolCall] = field(default_factory=list[ToolCall])
    does: Callable[[ToolCall], Awaitable[str]] | None = None
    tools: Sequence[Tool] = (
        Tool(name="look", description="Look it up.", parameters={"type": "object", "properties": {}}),
        Tool(name="send", description="Send it.", parameters={"type": "object", "properties": {}}, needs_approval=True),
    )

    async def question(self, call: ToolCall) -> str | None:
        return f"May I use {call.name}?" if call.name == "send" else None

    async def use(self, call: ToolCall) -> str:
        self.used.append(call)
        return await self.does(call) if self.does else f"{call.name} {call.arguments}"


def request(text: str = "hi", *before: Message, **changed: Any) -> Request:
    messages = (*before, Message(Role.USER, text))
    plain = Request(session="s", turn=1, attempt=1, section="You are here.", messages=messages)
    return replace(plain, **changed)


@asynccontextmanager
async def asked(*script: Step, **wanted: Any) -> AsyncGenerator[tuple[ModelAgent, Provider]]:
    async with providing(*script) as provider:
        agent = ModelAgent.of(replace(ModelOptions(model=MODEL, key=KEY, base_url=provider.openai), **wanted))
        try:
            yield agent, provider
        finally:
            await agent.close()


async def events(agent: Agent, asked_for: Request) -> list[Event]:
    return [event async for event in agent.answer(asked_for)]


def kinds(happened: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in happened if not isinstance(event, TextDelta | UsageReport)]
