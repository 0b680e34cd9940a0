"""Parse and check a chat completion request: its history, its new message, files, tool results and tools."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, TypeVar

import msgspec

from palaver.model.attachment import NewFile, TooLarge
from palaver.model.errors import BadArgument
from palaver.model.text import one_line
from palaver.model.tools import TOOL_NAME
from palaver.model.turn import ANY_FORM, AnswerForm, ClientTool
from palaver.model.value import value
from palaver.web.message_service import MAX_TEXT_LENGTH

Request = TypeVar("Request", bound=msgspec.Struct)

MODEL = "palaver"
_INSTRUCTION_ROLES = frozenset({"system", "developer"})
_DATA_URL = re.compile(r"data:([\w.+/-]*)(?:;[\w=.-]+)*;base64,(.*)", re.DOTALL | re.ASCII)
_MAX_QUOTED = 300
_MAX_TOOLS = 128
_MAX_STOPS = 4
_MAX_REQUEST_BYTES = 4_000_000
"""Without its files: the history comes along each time."""


class Function(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolParam(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    function: Function | None = None


class ImageUrl(msgspec.Struct, frozen=True, kw_only=True):
    url: str


class FilePart(msgspec.Struct, frozen=True, kw_only=True):
    file_data: str = ""
    filename: str = "file"


class Audio(msgspec.Struct, frozen=True, kw_only=True):
    data: str
    format: str = "wav"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    text: str = ""
    refusal: str = ""
    image_url: ImageUrl | None = None
    input_audio: Audio | None = None
    file: FilePart | None = None


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arguments: str = ""


class Called(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    function: CalledFunction | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    tool_call_id: str | None = None
    tool_calls: list[Called] | None = None


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["function"]
    function: Function


class JsonSchema(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "answer"
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class _StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_usage: bool = False


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What we use of a request; the rest is for models and has no effect here."""

    model: str
    messages: list[Message]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    tools: list[ToolParam] | None = None
    tool_choice: str | ToolChoice | None = None
    functions: msgspec.Raw | None = None
    function_call: msgspec.Raw | None = None
    response_format: ResponseFormat | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


@value(kw_only=False)
class ChatMessage:
    """What one side said, or what the client's tools returned."""

    is_user: bool
    text: str
    is_result: bool = False


@value
class ChatInput:
    """The history, and what is new: a message with files, or tool results."""

    system: str = ""
    history: tuple[ChatMessage, ...] = ()
    text: str = ""
    files: tuple[NewFile, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict[str, str])
    returned: str = ""
    """The results, as words for a conversation that does not have the calls."""
    client_tools: tuple[ClientTool, ...] = ()
    form: AnswerForm = ANY_FORM


def parse_request(content: bytes | bytearray) -> CompletionRequest:
    return decode_request(content, CompletionRequest, _encoded_files)


def decode_request(
    content: bytes | bytearray, kind: type[Request], encoded_files: Callable[[Request], Iterable[str]]
) -> Request:
    """Decode a request and check its length without its files."""
    try:
        request = msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid("Invalid request:", one_line(str(error), _MAX_QUOTED)) from error
    files = sum(map(len, encoded_files(request)))
    check_length("The request without its files", len(content) - files, _MAX_REQUEST_BYTES, "bytes")
    return request


def _encoded_files(request: CompletionRequest) -> Iterator[str]:
    """Yield every file, still encoded."""
    for part in (part for message in request.messages if isinstance(message.content, list) for part in message.content):
        if part.image_url:
            yield part.image_url.url
        if part.input_audio:
            yield part.input_audio.data
        if part.file:
            yield part.file.file_data


def check_length(what: str, length: int, most: int = MAX_TEXT_LENGTH, unit: str = "characters") -> None:
    """Raise TooLarge if a part of the request is too long."""
    if length > most:
        raise TooLarge(f"{what} can have at most {most:,} {unit}, not {length:,}.")


def invalid(problem: str, found: str, allowed: str = "a model and messages", example: str = "") -> BadArgument:
    usual = '{"model": "palaver", "messages": [{"role": "user", "content": "hello"}]}'
    return BadArgument(problem, found=found, allowed=allowed, example=example or usual)


def read_chat(request: CompletionRequest) -> ChatInput:
    """Raise InvalidInput for an option we do not support, rather than ignore it."""
    _check_options(request)
    system = "\n\n".join(_text_of(message) for message in request.messages if message.role in _INSTRUCTION_ROLES)
    messages = [message for message in request.messages if message.role not in _INSTRUCTION_ROLES]
    end = next((place for place in reversed(range(len(messages))) if messages[place].role == "assistant"), -1) + 1
    history, new = messages[:end], messages[end:]
    results = {message.tool_call_id or "": _text_of(message) for message in new if message.role == "tool"}
    from_user = [message for message in new if message.role == "user"]
    if not new:
        raise invalid(
            "The last message cannot be from",
            request.messages[-1].role if request.messages else "nobody",
            "user or tool",
        )
    text = "\n\n".join(map(_text_of, from_user))
    check_length("The message", len(text))
    check_length("All instructions together", len(system))
    check_length("All tool results together", sum(map(len, results.values())))
    return ChatInput(
        system=system,
        history=tuple(_said(history)),
        text=text,
        files=tuple(file for message in from_user for file in _files_of(message)),
        results=results,
        returned="\n\n".join(said.text for said in _said(messages)[len(_said(history)) :] if said.is_result),
        client_tools=(tools := _parse_tools(_chosen_tools(request))),
        form=_parse_form(request, tools),
    )


def _check_options(request: CompletionRequest) -> None:
    choice = request.tool_choice if isinstance(request.tool_choice, str) else "auto"
    choices, stops = "auto, none, required, or a function", _stops(request)
    legacy = next((name for name in ("functions", "function_call") if getattr(request, name) is not None), "")
    tools = (
        '"tools": [{"type": "function", "function": {"name": "get_weather"}}], '
        '"tool_choice": {"type": "function", "function": {"name": "get_weather"}}'
    )
    wrong = (
        ("The request cannot have", legacy, "tools and tool_choice", not legacy),
        ("n cannot be", str(request.n), "1", request.n in {None, 1}),
        ("tool_choice cannot be", choice, choices, choice in {"auto", "none", "required"}),
        ("tool_choice cannot be", choice, "auto, since there are no tools", request.tools or choice != "required"),
        ("stop cannot be", str(stops), f"at most {_MAX_STOPS} strings", len(stops) <= _MAX_STOPS and all(stops)),
    )
    for problem, found, allowed, is_right in wrong:
        if not is_right:
            example = tools if legacy else allowed.partition(",")[0]
            raise invalid(problem, one_line(found, _MAX_QUOTED), allowed, example)


def _chosen_tools(request: CompletionRequest) -> Sequence[ToolParam]:
    """Offer a named tool alone."""
    tools, choice = request.tools or (), request.tool_choice
    if not isinstance(choice, ToolChoice):
        return () if choice == "none" else tools
    named = {tool.function.name: tool for tool in tools if tool.function}
    if choice.function.name not in named:
        allowed = one_line(", ".join(named), _MAX_QUOTED) or "none, since there are no tools"
        raise invalid("tool_choice cannot be", one_line(choice.function.name, _MAX_QUOTED), allowed, "auto")
    return [named[choice.function.name]]


def _stops(request: CompletionRequest) -> tuple[str, ...]:
    return (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())


def _parse_form(request: CompletionRequest, tools: Sequence[ClientTool]) -> AnswerForm:
    is_required = request.tool_choice == "required" or isinstance(request.tool_choice, ToolChoice)
    must_call = tuple(tool.name for tool in tools) if is_required else ()
    form, schema = request.response_format, JsonSchema(schema={"type": "object"}, strict=False)
    if form is None or form.type == "text":
        return AnswerForm(stop=_stops(request), must_call=must_call)
    if form.type == "json_schema":
        schema = form.json_schema or JsonSchema()
    if schema.schema is None or not TOOL_NAME.fullmatch(schema.name):
        raise invalid("response_format cannot be", one_line(schema.name, _MAX_QUOTED), "a named JSON schema")
    text = json.dumps(schema.schema)
    check_length("The schema of the answer", len(text))
    return AnswerForm(
        schema=text, schema_name=schema.name, strict=schema.strict, stop=_stops(request), must_call=must_call
    )


def _parse_tools(tools: Sequence[ToolParam]) -> tuple[ClientTool, ...]:
    if len(tools) > _MAX_TOOLS:
        raise invalid("A request cannot have this many tools:", str(len(tools)), f"at most {_MAX_TOOLS}", "64")
    parsed = tuple(map(_parse_tool, tools))
    check_length("All tools together", sum(len(tool.description) + len(tool.parameters) for tool in parsed))
    return parsed


def _parse_tool(tool: ToolParam) -> ClientTool:
    if tool.type != "function" or tool.function is None or not TOOL_NAME.fullmatch(tool.function.name):
        found = tool.function.name if tool.function else tool.type
        raise invalid("A tool cannot be", one_line(found, _MAX_QUOTED), "a function with a simple name", "get_weather")
    function = tool.function
    return ClientTool(function.name, function.description or "", json.dumps(function.parameters or {"type": "object"}))


def merge_turns(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Join consecutive messages of one side."""
    runs = groupby(messages, key=attrgetter("is_user", "is_result"))
    return [
        replace(run[0], text="\n\n".join(message.text for message in run)) for run in (list(run) for _, run in runs)
    ]


def _said(messages: Sequence[Message]) -> list[ChatMessage]:
    """Return what each side said in its turn, and what tools returned to the calls that the assistant made."""
    called = {call.id: call.function for message in messages for call in message.tool_calls or () if call.function}
    said: list[ChatMessage] = []
    for message in messages:
        text, is_result = _text_of(message).strip(), message.role == "tool"
        if is_result:
            call = called.get(message.tool_call_id or "")
            text = f"{f'{call.name}({call.arguments})' if call else 'A tool'} returned: {text}"
        if text:
            said.append(ChatMessage(message.role == "user", text, is_result))
    return merge_turns(said)


def _text_of(message: Message) -> str:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return "\n\n".join(text for part in content if (text := part.text or part.refusal))


def _files_of(message: Message) -> list[NewFile]:
    parts = message.content if isinstance(message.content, list) else ()
    return [_parse_part(part) for part in parts if part.type != "text"]


def _parse_part(part: Part) -> NewFile:
    if part.image_url:
        return _parse_data_url(part.image_url.url, "image")
    if part.file:
        return _parse_data_url(part.file.file_data, part.file.filename)
    if part.input_audio:
        form = part.input_audio.format
        return _decode(part.input_audio.data, f"audio.{form}", f"audio/{form}")
    raise invalid(
        "A part of a message cannot be", one_line(part.type, _MAX_QUOTED), "text, image_url, input_audio, file"
    )


def _parse_data_url(url: str, name: str) -> NewFile:
    """Decode a file inside the message; nothing is fetched from elsewhere."""
    found = _DATA_URL.fullmatch(url)
    if found is None:
        raise invalid("A file cannot be at", one_line(url, 80), "a data URL", "data:image/png;base64,iVBORw0…")
    return _decode(found[2], name, found[1] or "application/octet-stream")


def _decode(text: str, name: str, media_type: str) -> NewFile:
    try:
        return NewFile(name, base64.b64decode(text, validate=True), media_type)
    except (binascii.Error, ValueError) as error:
        raise invalid("This is not base64:", one_line(text, 80), "base64", "aGVsbG8=") from error
