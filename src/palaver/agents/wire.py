"""The wire protocol of external agents: one JSON object per line, over a pipe or HTTP.

The gateway sends a request. The agent reports what happens, and can ask back before it is done:

    → {"type": "answer", "protocol": 1, "id": "1", "session": "s", "turn": 7, "messages": […], …}
    ← {"type": "use", "id": "1", "call": {"id": "a", "name": "search", "arguments": "{}"}}
    → {"type": "result", "id": "1", "call": "a", "text": "Nothing was found."}
    ← {"type": "delta", "id": "1", "text": "Hel"}
    ← {"type": "final", "id": "1", "text": "Hello."}
"""

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec

from palaver.model.view import Message
from palaver.protocols.agent import Excerpt, FailureKind, Request

PROTOCOL: Final = 1
MAX_LINE_BYTES = 1 << 26
"""Twice the size of the largest file that the gateway accepts by default."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
_CallId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,40}$")]
_ModelName = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,200}$")]
_ToolName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class ProtocolError(ValueError):
    """A line violates the protocol. The message never quotes the line."""


class WireCall(msgspec.Struct, frozen=True):
    id: _CallId
    name: _ToolName
    arguments: str = "{}"


class WireModel(msgspec.Struct, frozen=True):
    model: _ModelName
    provider: _ModelName | None = None


class WireFile(msgspec.Struct, frozen=True):
    name: str
    content: bytes
    media_type: str = "application/octet-stream"


# From the agent


class Hello(msgspec.Struct, frozen=True, tag_field="type", tag="hello"):
    """What the agent can do. An agent that only answers, one turn at a time, needs none."""

    id: str = ""
    protocol: int = PROTOCOL
    at_once: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1
    """How many turns one process takes at a time."""
    models: tuple[WireModel, ...] = ()
    context_window: Annotated[int, msgspec.Meta(ge=1)] | None = None
    summarises: bool = False
    titles: bool = False


class WireDelta(msgspec.Struct, frozen=True, tag_field="type", tag="delta"):
    text: str
    id: str = ""


class WireToolCalled(msgspec.Struct, frozen=True, tag_field="type", tag="tool_called"):
    calls: Annotated[tuple[WireCall, ...], msgspec.Meta(min_length=1)]
    id: str = ""
    text: str = ""
    reasoning: str = ""
    blob: bytes = b""


class WireToolReturned(msgspec.Struct, frozen=True, tag_field="type", tag="tool_returned"):
    call: _CallId
    text: str
    id: str = ""


class WireUsage(msgspec.Struct, frozen=True, tag_field="type", tag="usage"):
    id: str = ""
    model: str | None = None
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    cost_micros: _Count = 0


class WireApprovalNeeded(msgspec.Struct, frozen=True, tag_field="type", tag="approval_needed"):
    call: WireCall
    question: str
    id: str = ""


class WireFinal(msgspec.Struct, frozen=True, tag_field="type", tag="final"):
    text: str
    id: str = ""
    reasoning: str = ""
    blob: bytes = b""
    files: tuple[WireFile, ...] = ()


class WireFailure(msgspec.Struct, frozen=True, tag_field="type", tag="failure"):
    kind: FailureKind
    id: str = ""
    detail: str = ""
    after: Annotated[float, msgspec.Meta(ge=0)] | None = None


class UseTool(msgspec.Struct, frozen=True, tag_field="type", tag="use"):
    """Run a tool of the gateway; a Result comes back."""

    call: WireCall
    id: str = ""


class AskNewMessages(msgspec.Struct, frozen=True, tag_field="type", tag="meanwhile"):
    """Ask what people said since."""

    id: str = ""


class ReadFile(msgspec.Struct, frozen=True, tag_field="type", tag="read_file"):
    file: str
    id: str = ""


AgentQuestion = UseTool | AskNewMessages | ReadFile
FromAgent = (
    Hello
    | WireDelta
    | WireToolCalled
    | WireToolReturned
    | WireUsage
    | WireApprovalNeeded
    | WireFinal
    | WireFailure
    | AgentQuestion
)

# To the agent


class Result(msgspec.Struct, frozen=True, tag_field="type", tag="result"):
    call: str
    text: str
    id: str = ""


class NewMessages(msgspec.Struct, frozen=True, tag_field="type", tag="meanwhile"):
    texts: tuple[str, ...]
    id: str = ""


class FileContent(msgspec.Struct, frozen=True, tag_field="type", tag="file"):
    file: str
    content: bytes | None = None
    problem: str = ""
    id: str = ""


Reply = Result | NewMessages | FileContent


class WireMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    role: str
    text: str = ""
    calls: tuple[WireCall, ...] = ()
    answers: str = ""
    reasoning: str = ""
    blobs: tuple[bytes, ...] = ()


class WireTool(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: Mapping[str, Any]
    asks: bool


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="answer"):
    protocol: int = PROTOCOL
    id: str = ""
    session: str
    turn: int
    attempt: int
    section: str
    messages: tuple[WireMessage, ...]
    override: WireModel | None
    approvals: Mapping[str, bool]
    tools: tuple[WireTool, ...]
    replies: tuple[Reply, ...] = ()
    """Over HTTP: the replies so far in this turn, because nothing can be sent while an answer streams."""


class Summarise(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="summarise"):
    protocol: int = PROTOCOL
    id: str = ""
    session: str
    messages: tuple[WireMessage, ...]
    override: WireModel | None
    focus: str


class Title(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="title"):
    protocol: int = PROTOCOL
    id: str = ""
    session: str
    messages: tuple[WireMessage, ...]
    override: WireModel | None


class Cancel(msgspec.Struct, frozen=True, tag_field="type", tag="cancel"):
    """Stop: nobody waits for the answer."""

    id: str


ToAgent = Answer | Summarise | Title | Cancel | Reply


def encode_line(value: ToAgent) -> bytes:
    """Encode as ASCII JSON, so that no text contains a line end and lone surrogates survive."""
    return json.dumps(msgspec.to_builtins(value)).encode() + b"\n"


def parse_line(line: bytes) -> FromAgent:
    """Parse a line from an agent. Raises ProtocolError."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parse_leniently(line)


_DECODER: msgspec.json.Decoder[FromAgent] = msgspec.json.Decoder(FromAgent)


def _parse_leniently(line: bytes) -> FromAgent:
    """Accept half a character at the end of a piece of text."""
    try:
        return _DECODER.decode(json.dumps(json.loads(line), ensure_ascii=False).encode(errors="replace"))
    except msgspec.ValidationError as error:
        raise ProtocolError(f"a line of {len(line)} bytes violates the protocol: {_location(error)}") from error
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a line of {len(line)} bytes is not a JSON object") from error


def _location(error: msgspec.ValidationError) -> str:
    """Return only the field name, such as `$.text`: the rest of the error can quote a value."""
    _, found, place = str(error).rpartition(" - at `")
    return f"{place.rstrip('`')} is not valid" if found else "a field is missing"


def answer_request(request: Request, replies: tuple[Reply, ...] = ()) -> Answer:
    tools = (
        WireTool(tool.name, tool.description, tool.parameters, tool.needs_approval) for tool in request.toolbox.tools
    )
    return Answer(
        session=request.session,
        turn=request.turn,
        attempt=request.attempt,
        section=request.section,
        messages=_messages(request.messages),
        override=_model(request),
        approvals=request.approvals,
        tools=tuple(tools),
        replies=replies,
    )


def excerpt_request(kind: type[Summarise | Title], passage: Excerpt) -> Summarise | Title:
    facts: dict[str, Any] = {"focus": passage.focus} if kind is Summarise else {}
    return kind(
        session=passage.session,
        messages=_messages(passage.messages),
        override=_model(passage),
        **facts,
    )


def _model(asked: Request | Excerpt) -> WireModel | None:
    return WireModel(asked.override.model, asked.override.provider) if asked.override else None


def _messages(messages: Iterable[Message]) -> tuple[WireMessage, ...]:
    return tuple(
        WireMessage(
            role=message.role,
            text=message.text,
            calls=tuple(WireCall(*call) for call in message.calls),
            answers=message.answers,
            reasoning=message.reasoning,
            blobs=message.blobs,
        )
        for message in messages
    )
