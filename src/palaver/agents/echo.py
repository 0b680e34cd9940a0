"""The echo agent: works offline, says back what it heard, and can be told to be slow, to fail, to use a tool."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import field
from typing import NamedTuple

from palaver.model.prompt_markers import CLOSE, OPEN, marker
from palaver.model.session import ModelOverride
from palaver.model.text import one_line
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import Usage
from palaver.model.value import value
from palaver.model.view import Message, open_calls
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

__all__ = [
    "EchoAgent",
]

_QUIET, _LOUD = ModelOverride(model="echo"), ModelOverride(model="loud")
_CHARACTERS_PER_TOKEN = 4
_GLIMPSE = 40
_SUMMARY = 400
_SUMMARY_END = marker("end of summary")
_COUNTED_ORDER = re.compile(r"(!slow|!busy)(?:\s+([0-9]{1,6}))?(?:\s+(.*))?", re.DOTALL)
_ORDER = re.compile(r"(!tool|!use|!approve|!hang|!overflow|!fail)(?:\s+(.*))?", re.DOTALL)
_NOTE = re.compile(f"{OPEN}note: [^{CLOSE}]*{CLOSE}")
_NOT_SAID_TO_ME = re.compile(
    f"{OPEN}overheard[^{CLOSE}]*{CLOSE}.*?{OPEN}end of overheard{CLOSE}"
    f"|{OPEN}summary of[^{CLOSE}]*{CLOSE}.*?{_SUMMARY_END}"
    f"|{OPEN}[^{CLOSE}]*{CLOSE}",
    re.DOTALL,
)


@value
class EchoAgent:
    """Leaves nothing to chance. The first word of a message may be an order.

    `!tool words`       uses a tool that gives the words back
    `!approve words`    asks for permission to do the same
    `!use name {json}`  uses a tool of the gateway and answers with what came of it
    `!slow N words`     takes N seconds; N is 1 where it is left out
    `!hang`             never answers
    `!busy N words`     fails N times in a way that may pass
    `!overflow words`   finds the conversation too long until there is a summary in it
    `!fail words`       fails for good
    """

    delay: float = 0.0
    """Seconds before the answer; when streaming, before each word; with a tool, also while it works."""
    streams: bool = False
    _failed: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]], init=False, compare=False)
    """How often a turn was told that the agent is busy; a turn does not count that itself."""

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        heard = _heard(request.messages)
        text = f"You said: {heard.words}" if heard.words else "I am listening."
        text = text.upper() if request.override == _LOUD else text
        if heard.order:
            async for event in self._obey(heard, request):
                yield event
                if isinstance(event, Failure | ApprovalNeeded):
                    return
                if isinstance(event, ToolReturned):
                    text = f"{heard.words.partition(' ')[0]}: {event.text}" if heard.order == "!use" else text
                    for words in filter(None, map(_spoken, await request.new_messages())):
                        text += f"\nMeanwhile you said: {words}"
        if self.streams:
            async for event in self._speak(text):
                yield event
        elif self.delay:
            await asyncio.sleep(self.delay)
        yield UsageReport(Usage(model="echo", input_tokens=_tokens(heard.words), output_tokens=_tokens(text)))
        yield Final(text=text)

    def models(self) -> Sequence[ModelOverride]:
        return (_QUIET, _LOUD)

    def context_window(self, override: ModelOverride | None) -> int | None:  # noqa: ARG002
        """It remembers nothing, so nothing is too long for it."""
        return None

    async def summarise(self, passage: Excerpt) -> GeneratedText:
        """What each message begins with, as far as there is room, those about the focus in front."""
        await asyncio.sleep(self.delay)
        said = [one_line(_NOT_SAID_TO_ME.sub("", message.text), _GLIMPSE) for message in passage.messages]
        said.sort(key=lambda words: passage.focus.casefold() not in words.casefold())
        text = f"{len(said)} messages: {'; '.join(filter(None, said))[:_SUMMARY]}"
        return GeneratedText(text=text, usage=_usage(passage.messages, text))

    async def title(self, passage: Excerpt) -> GeneratedText:
        """What was said last begins with it."""
        await asyncio.sleep(self.delay)
        text = one_line(_heard(passage.messages).words, _GLIMPSE)
        return GeneratedText(text=text, usage=_usage(passage.messages, text))

    async def _obey(self, heard: "_Heard", request: Request) -> AsyncGenerator[Event]:
        match heard.order:
            case "!tool" | "!approve" | "!use":
                async for event in self._call(heard, request):
                    yield event
            case "!slow":
                await asyncio.sleep(heard.times)
            case "!hang":
                await asyncio.Event().wait()
            case "!busy" if self._failed[request.session, request.turn] < heard.times:
                self._failed[request.session, request.turn] += 1
                yield Failure(kind=FailureKind.TRANSIENT, detail="asked to be busy")
            case "!overflow" if not any(_SUMMARY_END in message.text for message in request.messages):
                yield Failure(kind=FailureKind.OVERFLOW, detail="asked to find the conversation too long")
            case "!fail":
                yield Failure(kind=FailureKind.FATAL, detail="asked to fail")
            case _:
                pass

    async def _call(self, heard: "_Heard", request: Request) -> AsyncGenerator[Event]:
        """Once in a turn: where it was cut off, what is known of the call is all that there is."""
        call = _called(heard, request.turn)
        done = [message for message in request.messages if message.answers == call.id]
        if done and heard.order == "!use":
            yield ToolReturned(call=call.id, text=done[-1].text)
            return
        if call.id not in {each.id for each in open_calls(request.messages)}:
            yield ToolCalled(calls=(call,))
        question = await self._question(heard, call, request)
        if question and call.id not in request.approvals:
            yield ApprovalNeeded(call=call, question=question)
        elif not request.approvals.get(call.id, True):
            yield ToolReturned(call=call.id, text="not allowed")
        elif heard.order == "!use":
            yield ToolReturned(call=call.id, text=await request.toolbox.use(call))
        else:
            await asyncio.sleep(self.delay)
            yield ToolReturned(call=call.id, text=heard.words)

    async def _question(self, heard: "_Heard", call: ToolCall, request: Request) -> str | None:
        if heard.order == "!use":
            return await request.toolbox.question(call)
        return f"May I use the echo tool for: {heard.words}" if heard.order == "!approve" else None

    async def _speak(self, text: str) -> AsyncGenerator[Event]:
        """The words one by one; together they are the text."""
        for word in re.findall(r"\S+\s*", text):
            await asyncio.sleep(self.delay)
            yield TextDelta(word)


class _Heard(NamedTuple):
    words: str
    order: str = ""
    times: int = 1


def _heard(messages: Sequence[Message]) -> _Heard:
    """What a person said last, without the words of the gateway in it."""
    said = (words for message in reversed(messages) if message.role is Role.USER if (words := _spoken(message.text)))
    text = next(said, "")
    # What nobody has answered yet stands before it; an order counts only where it was said last.
    last = text.rpartition("\n\n")[2]
    if found := _COUNTED_ORDER.fullmatch(last):
        return _Heard(found[3] or "", found[1], int(found[2] or 1))
    if found := _ORDER.fullmatch(last):
        return _Heard(found[2] or "", found[1])
    return _Heard(text)


def _called(heard: _Heard, turn: int) -> ToolCall:
    """The same id in every attempt, so that what a person said to the call is found again."""
    if heard.order != "!use":
        return ToolCall(id=f"echo_{turn}", name="echo")
    name, _, arguments = heard.words.partition(" ")
    return ToolCall(id=f"echo_{turn}", name=name or "nothing", arguments=arguments.strip() or "{}")


def _spoken(text: str) -> str:
    """What follows the last note of the gateway, or else came before it."""
    if OPEN not in text:
        return text.strip()
    parts = (_NOT_SAID_TO_ME.sub("", part).strip() for part in reversed(_NOTE.split(text)))
    return next((part for part in parts if part), "")


def _usage(messages: Sequence[Message], text: str) -> Usage:
    return Usage(model="echo", input_tokens=sum(_tokens(each.text) for each in messages), output_tokens=_tokens(text))


def _tokens(text: str) -> int:
    return len(text) // _CHARACTERS_PER_TOKEN
