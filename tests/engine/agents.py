"""Agents for tests: they do what the test says, and show what they were given."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from palaver.model.label import CLOSE, OPEN
from palaver.model.session import ModelOverride
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import Usage
from palaver.protocols.agent import (
    Event,
    Excerpt,
    Failure,
    FailureKind,
    Final,
    GeneratedText,
    Request,
    TextDelta,
    ToolCalled,
    ToolReturned,
    UsageReport,
)

__all__ = ["Condensing", "Scripted", "Slow", "heard", "noted"]


def heard(request: Request) -> str:
    """What people have said that was not answered yet, without the words of the gateway in it."""
    last = request.messages[-1]
    return _MARKED.sub("", last.text).strip() if last.role is Role.USER else ""


_MARKED = re.compile(f"{OPEN}[^{CLOSE}]*{CLOSE}\\s*")


def noted(request: Request) -> str:
    """Everything the agent is shown, in one text."""
    return "\n".join(message.text for message in request.messages)


@dataclass
class Scripted:
    """Answers as the test has written it down."""

    script: Callable[[Request], AsyncGenerator[Event]]
    requests: list[Request] = field(default_factory=list[Request])

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        self.requests.append(request)
        async for event in self.script(request):
            yield event


@dataclass
class Slow:
    """Says a word or uses a tool, then waits until it may go on."""

    first_word: str = ""
    tool: bool = False
    go: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[Request] = field(default_factory=list[Request])
    meanwhile: list[str] = field(default_factory=list[str])
    at_once: int = 0
    most_at_once: int = 0

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        self.requests.append(request)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            async for event in self._answer(request):
                yield event
        finally:
            self.at_once -= 1

    async def _answer(self, request: Request) -> AsyncGenerator[Event]:
        if self.first_word:
            yield TextDelta(self.first_word)
        if self.tool:
            yield ToolCalled(calls=(ToolCall(id=f"c{request.turn}", name="look"),))
        await self.go.wait()
        if self.tool:
            yield ToolReturned(call=f"c{request.turn}", text="seen")
            self.meanwhile += await request.new_messages()
        yield Final(text=f"answer to: {heard(request)}")


@dataclass
class Condensing:
    """Answers everything, and can say it in fewer words: as the test has written it down, once it may go on."""

    gist: Callable[[Excerpt], str] = lambda passage: f"SUMMARY of {len(passage.messages)}"
    window: int | None = None
    too_long: bool = False
    """It finds every conversation too long to be answered."""
    prompt_tokens: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[Request] = field(default_factory=list[Request])
    passages: list[Excerpt] = field(default_factory=list[Excerpt])

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        self.requests.append(request)
        if self.too_long:
            yield Failure(kind=FailureKind.OVERFLOW, detail="too long")
        else:
            yield UsageReport(Usage(input_tokens=1, output_tokens=1, prompt_tokens=self.prompt_tokens))
            last = heard(request).rpartition("\n\n")[2]  # a summary stands before it
            yield Final(text=f"answer to: {last}")

    def context_window(self, override: ModelOverride | None) -> int | None:  # noqa: ARG002
        return self.window

    async def summarise(self, passage: Excerpt) -> GeneratedText:
        self.passages.append(passage)
        await self.go.wait()
        return GeneratedText(text=self.gist(passage), usage=Usage(model="m", input_tokens=1000, output_tokens=100))
