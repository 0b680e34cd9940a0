"""The echo agent: works offline, repeats what people say, and follows orders to be slow, to fail or to use a tool."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import field
from typing import NamedTuple

from palaver.model.session import ModelOverride
from palaver.model.text import one_line
from palaver.model.transcript import ToolCall
from palaver.model.turn import Usage
from palaver.model.value import value
from palaver.model.view import SUMMARY_END, Message, brief_summary, last_said, open_calls, spoken_text
from palaver.protocols.agent import (
    ApprovalNeeded,
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

_QUIET, _LOUD = ModelOverride(model="echo"), ModelOverride(model="loud")
_CHARACTERS_PER_TOKEN = 4
_COUNTED_ORDER = re.compile(r"(!slow|!busy)(?:\s+([0-9]{1,6}))?(?:\s+(.*))?", re.DOTALL)
_ORDER = re.compile(r"(!tool|!use|!approve|!hang|!overflow|!fail)(?:\s+(.*))?", re.DOTALL)


@value
class EchoAgent:
    """A deterministic agent. The first word of a message can be an order.

    `!tool words`       uses a tool that returns the words
    `!approve words`    asks for approval to do the same
    `!use name {json}`  uses a tool of the gateway and answers with its result
    `!slow N words`     takes N seconds, by default 1
    `!hang`             never answers
    `!busy N words`     fails N times with a transient failure
    `!overflow words`   reports a context overflow until the conversation has a summary
    `!fail words`       fails permanently
    """

    delay: float = 0.0
    """Seconds before the answer, before each word when streaming, and while a tool runs."""
    streams: bool = False
    _failed: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]], init=False, compare=False)
    """How often each turn got a transient failure."""

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        order = _parse_order(request.messages)
        stored = _stored_result(order, request)
        text = stored or _plain_answer(order, request)
        if order.name and not stored:
            async for event in self._follow(order, request):
                yield event
                if isinstance(event, Failure | ApprovalNeeded):
                    return
                if isinstance(event, ToolReturned):
                    text = f"{order.text.partition(' ')[0]}: {event.text}" if order.name == "!use" else text
                    for message in filter(None, map(spoken_text, await request.new_messages())):
                        text += f"\nMeanwhile you said: {message}"
        if self.streams:
            async for event in self._stream(text):
                yield event
        elif self.delay:
            await asyncio.sleep(self.delay)
        yield UsageReport(Usage(model="echo", input_tokens=_tokens(order.text), output_tokens=_tokens(text)))
        yield Final(text=text)

    def models(self) -> Sequence[ModelOverride]:
        return (_QUIET, _LOUD)

    def unpriced_models(self) -> Sequence[str]:
        """Return nothing: it is free."""
        return ()

    def context_window(self, override: ModelOverride | None) -> int | None:  # noqa: ARG002
        """Return None: nothing is too long for it."""
        return None

    async def summarise(self, passage: Excerpt) -> GeneratedText:
        await asyncio.sleep(self.delay)
        text = brief_summary(passage.messages, passage.focus)
        return GeneratedText(text=text, usage=_usage(passage.messages, text))

    async def title(self, passage: Excerpt) -> GeneratedText:
        """Return the beginning of the last message."""
        await asyncio.sleep(self.delay)
        text = one_line(_parse_order(passage.messages).text, 40)
        return GeneratedText(text=text, usage=_usage(passage.messages, text))

    async def _follow(self, order: "_Order", request: Request) -> AsyncGenerator[Event]:
        match order.name:
            case "!tool" | "!approve" | "!use":
                async for event in self._call(order, request):
                    yield event
            case "!slow":
                await asyncio.sleep(order.number)
            case "!hang":
                await asyncio.Event().wait()
            case "!busy" if self._failed[request.session, request.turn] < order.number:
                self._failed[request.session, request.turn] += 1
                yield Failure(kind=FailureKind.TRANSIENT, detail="asked to be busy")
            case "!overflow" if not any(SUMMARY_END in message.text for message in request.messages):
                yield Failure(kind=FailureKind.OVERFLOW, detail="asked to find the conversation too long")
            case "!fail":
                yield Failure(kind=FailureKind.FATAL, detail="asked to fail")
            case _:
                pass

    async def _call(self, order: "_Order", request: Request) -> AsyncGenerator[Event]:
        """Use a tool once per turn: a turn that was interrupted continues with the stored call."""
        call = _tool_call(order, request.turn)
        if call.id not in {known.id for known in open_calls(request.messages)}:
            yield ToolCalled(calls=(call,))
        question = await self._question(order, call, request)
        if question and call.id not in request.approvals:
            yield ApprovalNeeded(call=call, question=question)
        elif not request.approvals.get(call.id, True):
            yield ToolReturned(call=call.id, text="not allowed")
        elif order.name == "!use":
            yield ToolReturned(call=call.id, text=await request.toolbox.use(call))
        else:
            await asyncio.sleep(self.delay)
            yield ToolReturned(call=call.id, text=order.text)

    async def _question(self, order: "_Order", call: ToolCall, request: Request) -> str | None:
        if order.name == "!use":
            return await request.toolbox.question(call)
        return f"May I use the echo tool for: {order.text}" if order.name == "!approve" else None

    async def _stream(self, text: str) -> AsyncGenerator[Event]:
        for word in re.findall(r"\S+\s*", text):
            await asyncio.sleep(self.delay)
            yield TextDelta(word)


def _plain_answer(order: "_Order", request: Request) -> str:
    text = f"You said: {order.text}" if order.text else "I am listening."
    return text.upper() if request.override == _LOUD else text


def _stored_result(order: "_Order", request: Request) -> str:
    """Return the answer with the result that a tool of the gateway gave before, or a person instead of it."""
    if order.name != "!use":
        return ""
    call = _tool_call(order, request.turn)
    results = (message.text for message in reversed(request.messages) if message.answers == call.id)
    return next((f"{call.name}: {result}" for result in results), "")


class _Order(NamedTuple):
    """What a person said last, and the order in it."""

    text: str
    name: str = ""
    number: int = 1


def _parse_order(messages: Sequence[Message]) -> _Order:
    text, by_process, _ = last_said(messages)
    if by_process:
        return _Order(text)
    # Unanswered messages are joined before it; only the last one can be an order.
    last = text.rpartition("\n\n")[2]
    if not last.startswith("!"):
        return _Order(text)
    if found := _COUNTED_ORDER.fullmatch(last):
        return _Order(found[3] or "", found[1], int(found[2] or 1))
    if found := _ORDER.fullmatch(last):
        return _Order(found[2] or "", found[1])
    return _Order(text)


def _tool_call(order: _Order, turn: int) -> ToolCall:
    """Return the call, with the same id in every attempt, so that its approval is found again."""
    if order.name != "!use":
        return ToolCall(id=f"echo_{turn}", name="echo")
    name, _, arguments = order.text.partition(" ")
    return ToolCall(id=f"echo_{turn}", name=name or "nothing", arguments=arguments.strip() or "{}")


def _usage(messages: Sequence[Message], text: str) -> Usage:
    return Usage(
        model="echo", input_tokens=sum(_tokens(message.text) for message in messages), output_tokens=_tokens(text)
    )


def _tokens(text: str) -> int:
    return len(text) // _CHARACTERS_PER_TOKEN
