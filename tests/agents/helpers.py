"""Programs and requests for tests of agents of other makers."""

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from palaver.agents.process import ProcessPool
from palaver.model.transcript import Role, ToolCall
from palaver.model.view import Message
from palaver.protocols.agent import Agent, Event, Request
from palaver.protocols.tools import Tool

__all__ = ["Tools", "asked", "events", "program"]

_PRELUDE = """
import json, sys, os, time, signal
def say(**line): print(json.dumps(line), flush=True)
def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(0)
"""


def program(code: str, **options: object) -> ProcessPool:
    """A program in Python; `say(type=…)` and `hear()` are there."""
    command = [sys.executable, "-I", "-S", "-c", _PRELUDE + code]
    return ProcessPool(**{"command": command, "environ": {}, **options})  # pyright: ignore[reportArgumentType]


@dataclass
class Tools:
    tools: Sequence[Tool] = (Tool(name="look", description="", parameters={"type": "object"}),)
    used: list[ToolCall] = field(default_factory=list[ToolCall])

    async def question(self, call: ToolCall) -> str | None:
        return (
            f"May I {call.name}?" if any(tool.needs_approval for tool in self.tools if tool.name == call.name) else None
        )

    async def use(self, call: ToolCall) -> str:
        self.used.append(call)
        return f"{call.name} found {call.arguments}"


def asked(
    *messages: str | Message,
    tools: Tools | None = None,
    approvals: Mapping[str, bool] | None = None,
    turn: int = 7,
) -> Request:
    async def meanwhile() -> tuple[str, ...]:
        return ("and more",)

    return Request(
        session="s",
        turn=turn,
        attempt=1,
        section="## Where you are\n",
        messages=tuple(each if isinstance(each, Message) else Message(Role.USER, each) for each in messages),
        approvals=approvals or {},
        new_messages=meanwhile,
        toolbox=tools or Tools(tools=()),
    )


async def events(agent: Agent, request: Request) -> list[Event]:
    stream: AsyncIterator[Event] = agent.answer(request)
    return [event async for event in stream]
