"""What a client of OpenAI's asks: read, checked, and put as somebody who says something after what was said before."""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import msgspec

from palaver.model.attachment import TooLarge
from palaver.model.errors import BadArgument
from palaver.model.text import one_line
from palaver.model.tools import TOOL_NAME
from palaver.model.turn import ClientTool
from palaver.model.value import value
from palaver.web.message_service import LONGEST_TEXT

__all__ = [
    "MODEL",
    "Asked",
    "Read",
    "Sent",
    "Utterance",
    "bounded",
    "read",
    "request_of",
]

MODEL = "palaver"
_URL = re.compile(r"data:([\w.+/-]*)(?:;[\w=.-]+)*;base64,(.*)", re.DOTALL | re.ASCII)
_LONGEST = 300
_MOST_TOOLS = 128
_LONGEST_REQUEST = 4_000_000
"""Bytes, without its files: what was said before comes along each time."""


class _Function(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    function: _Function | None = None


class _Called(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class _Url(msgspec.Struct, frozen=True, kw_only=True):
    url: str


class _Inline(msgspec.Struct, frozen=True, kw_only=True):
    file_data: str = ""
    filename: str = "file"


class _Audio(msgspec.Struct, frozen=True, kw_only=True):
    data: str
    format: str = "wav"


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    text: str = ""
    refusal: str = ""
    image_url: _Url | None = None
    input_audio: _Audio | None = None
    file: _Inline | None = None


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Part] | None = None
    tool_calls: list[_Called] | None = None
    tool_call_id: str | None = None


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["function"]
    function: _Named


class _StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_usage: bool = False


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What counts of a request. Clients send much more, which is for models, and without effect here."""

    model: str
    messages: list[_Message]
    stream: bool = False
    stream_options: _StreamOptions | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | _Choice | None = None
    response_format: dict[str, Any] | None = None
    n: int | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


@value(kw_only=False)
class Sent:
    """A file in a message."""

    name: str
    media_type: str
    content: bytes


@value(kw_only=False)
class Utterance:
    """What somebody has said at once."""

    by_user: bool
    text: str


@value
class Read:
    """A request as what was said before, and what is said now: words and files, or results of tools."""

    system: str = ""
    before: tuple[Utterance, ...] = ()
    text: str = ""
    files: tuple[Sent, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict[str, str])
    called: frozenset[str] = frozenset()
    """The calls that the agent made last, as the client has heard of them."""
    offers: tuple[ClientTool, ...] = ()


def request_of(content: bytes | bytearray) -> Asked:
    try:
        asked = msgspec.json.decode(content, type=Asked)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refused("This request is not right:", one_line(str(error), _LONGEST)) from error
    files = sum(map(len, _carried(asked.messages)))
    bounded("The request without its files", len(content) - files, _LONGEST_REQUEST, "bytes")
    return asked


def _carried(messages: Sequence[_Message]) -> Iterator[str]:
    """Files as they are written in messages."""
    for part in (part for each in messages if isinstance(each.content, list) for part in each.content):
        if part.image_url:
            yield part.image_url.url
        if part.input_audio:
            yield part.input_audio.data
        if part.file:
            yield part.file.file_data


def bounded(what: str, length: int, most: int = LONGEST_TEXT, unit: str = "characters") -> None:
    """Raises TooLarge, before anything is done with it."""
    if length > most:
        raise TooLarge(f"{what} may have {most:,} {unit}, not {length:,}.")


def _refused(problem: str, found: str, allowed: str = "a model and messages", example: str = "") -> BadArgument:
    usual = '{"model": "palaver", "messages": [{"role": "user", "content": "hello"}]}'
    return BadArgument(problem, found=found, allowed=allowed, example=example or usual)


def read(asked: Asked) -> Read:
    """Raises InvalidInput for what cannot be done here, rather than doing something else."""
    _check(asked)
    system = "\n\n".join(_words(each) for each in asked.messages if each.role in {"system", "developer"})
    said = [each for each in asked.messages if each.role not in {"system", "developer"}]
    end = next((place for place in reversed(range(len(said))) if said[place].role == "assistant"), -1) + 1
    before, now = said[:end], said[end:]
    results = {each.tool_call_id or "": _words(each) for each in now if each.role == "tool"}
    if not now:
        raise _refused(
            "The last message cannot be by", asked.messages[-1].role if asked.messages else "nobody", "user, tool"
        )
    if results and any(each.role == "user" for each in now):
        allowed = "after the words of the assistant either words of yours, or results of its calls"
        raise _refused("The last messages cannot be by", "user and tool", allowed)
    last = before[-1].tool_calls if before else None
    text = "\n\n".join(_words(each) for each in now if each.role == "user")
    bounded("The message", len(text))
    bounded("All instructions together", len(system))
    bounded("All results of tools together", sum(map(len, results.values())))
    return Read(
        system=system,
        before=tuple(_utterances(before)),
        text=text,
        files=tuple(file for each in now if each.role == "user" for file in _files(each)),
        results=results,
        called=frozenset(call.id for call in last or ()),
        offers=_offers(_chosen(asked)),
    )


def _check(asked: Asked) -> None:
    kind = (asked.response_format or {}).get("type", "text")
    choice = "auto" if isinstance(asked.tool_choice, _Choice) else str(asked.tool_choice)
    wrong = (
        ("n cannot be", str(asked.n), "1", asked.n in {None, 1}),
        ("tool_choice cannot be", choice, "auto, none, or a function", choice in {"None", "auto", "none"}),
        ("response_format cannot be", str(kind), "text", kind == "text"),
    )
    for problem, found, allowed, is_right in wrong:
        if not is_right:
            raise _refused(problem, one_line(found, _LONGEST), allowed, allowed.partition(",")[0])


def _chosen(asked: Asked) -> Sequence[_Tool]:
    """One that is named is offered alone; nobody makes the agent use it."""
    tools, choice = asked.tools or (), asked.tool_choice
    if not isinstance(choice, _Choice):
        return () if choice == "none" else tools
    named = {tool.function.name: tool for tool in tools if tool.function}
    if choice.function.name not in named:
        allowed = one_line(", ".join(named), _LONGEST) or "none, where there are no tools"
        raise _refused("tool_choice cannot be", one_line(choice.function.name, _LONGEST), allowed, "auto")
    return [named[choice.function.name]]


def _offers(tools: Sequence[_Tool]) -> tuple[ClientTool, ...]:
    if len(tools) > _MOST_TOOLS:
        raise _refused("There are too many tools:", str(len(tools)), f"at most {_MOST_TOOLS}", "fewer")
    offers = tuple(map(_offer, tools))
    bounded("All tools together", sum(len(each.description) + len(each.parameters) for each in offers))
    return offers


def _offer(tool: _Tool) -> ClientTool:
    if tool.type != "function" or tool.function is None or not TOOL_NAME.fullmatch(tool.function.name):
        found = tool.function.name if tool.function else tool.type
        raise _refused("A tool cannot be", one_line(found, _LONGEST), "a function with a simple name", "get_weather")
    function = tool.function
    return ClientTool(function.name, function.description, json.dumps(function.parameters or {"type": "object"}))


def _utterances(messages: Sequence[_Message]) -> list[Utterance]:
    """Who spoke in turn; what tools gave is left out, since transcripts have it."""
    said = ((each.role == "user", _words(each)) for each in messages if each.role != "tool")
    spoken = ((by_user, text) for by_user, text in said if text.strip())
    return [
        Utterance(by_user, "\n\n".join(text for _, text in run)) for by_user, run in groupby(spoken, key=itemgetter(0))
    ]


def _words(message: _Message) -> str:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return "\n\n".join(text for part in content if (text := part.text or part.refusal))


def _files(message: _Message) -> list[Sent]:
    parts = message.content if isinstance(message.content, list) else ()
    return [_file(part) for part in parts if part.type != "text"]


def _file(part: _Part) -> Sent:
    if part.image_url:
        return _from_url(part.image_url.url, "image")
    if part.file:
        return _from_url(part.file.file_data, part.file.filename)
    if part.input_audio:
        form = part.input_audio.format
        return _decoded(part.input_audio.data, f"audio.{form}", f"audio/{form}")
    raise _refused("A part of a message cannot be", one_line(part.type, _LONGEST), "text, image_url, input_audio, file")


def _from_url(url: str, name: str) -> Sent:
    """What stands in the message itself: nothing is fetched from anywhere."""
    found = _URL.fullmatch(url)
    if found is None:
        raise _refused("A file cannot be at", one_line(url, 80), "data: and base64", "data:image/png;base64,iVBORw0…")
    return _decoded(found[2], name, found[1] or "application/octet-stream")


def _decoded(text: str, name: str, media_type: str) -> Sent:
    try:
        return Sent(name, media_type, base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as error:
        raise _refused("This is no base64:", one_line(text, 80), "base64", "aGVsbG8=") from error
