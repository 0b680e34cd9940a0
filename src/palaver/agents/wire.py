"""The wire protocol of external agents: one JSON object per line, over a pipe or HTTP.

The gateway sends a request. The agent reports what happens, and can ask back before it is done:

    → {"type": "answer", "protocol": 1, "id": "1", "session": "s", "turn": 7, "messages": […], …}
    ← {"type": "use", "id": "1", "call": {"id": "a", "name": "search", "arguments": "{}"}}
    → {"type": "result", "id": "1", "call": "a", "text": "Nothing was found."}
    ← {"type": "delta", "id": "1", "text": "Hel"}
    ← {"type": "final", "id": "1", "text": "Hello."}
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, cast

import msgspec

from palaver.model.prompt import TurnFacts
from palaver.model.text import whole_characters
from palaver.model.turn import ANY_FORM, AnswerForm
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


class _Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    id: str = ""
    """The turn it belongs to."""


# From the agent


class Hello(_Line, frozen=True, tag="hello"):
    """What the agent can do. An agent that only answers, one turn at a time, needs none."""

    protocol: int = PROTOCOL
    at_once: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1
    """How many turns one process takes at a time."""
    models: tuple[WireModel, ...] = ()
    context_window: Annotated[int, msgspec.Meta(ge=1)] | None = None
    summarises: bool = False
    titles: bool = False


class WireDelta(_Line, frozen=True, tag="delta"):
    text: str


class WireToolCalled(_Line, frozen=True, tag="tool_called"):
    calls: Annotated[tuple[WireCall, ...], msgspec.Meta(min_length=1)]
    text: str = ""
    reasoning: str = ""
    blob: bytes = b""


class WireToolReturned(_Line, frozen=True, tag="tool_returned"):
    call: _CallId
    text: str


class WireUsage(_Line, frozen=True, tag="usage"):
    model: str | None = None
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    cached_tokens: _Count = 0
    cost_micros: _Count | None = None
    """None if the price is unknown."""
    prompt_tokens: _Count = 0
    """The size of the last prompt with its answer."""


class WireApprovalNeeded(_Line, frozen=True, tag="approval_needed"):
    call: WireCall
    question: str


class WireAsk(_Line, frozen=True, tag="ask"):
    """Ask the person in words. The answer is the result of a call of `ask_user` in the next request."""

    question: str
    choices: tuple[str, ...] = ()


class WireFinal(_Line, frozen=True, tag="final"):
    text: str
    reasoning: str = ""
    blob: bytes = b""
    files: tuple[WireFile, ...] = ()
    cut: bool = False


class WireFailure(_Line, frozen=True, tag="failure"):
    kind: FailureKind
    detail: str = ""
    after: Annotated[float, msgspec.Meta(ge=0)] | None = None


class UseTool(_Line, frozen=True, tag="use"):
    """Run a tool of the gateway; a Result comes back."""

    call: WireCall


class AskNewMessages(_Line, frozen=True, tag="meanwhile"):
    """Ask what people said since."""


class ReadFile(_Line, frozen=True, tag="read_file"):
    file: str


FromAgent = (
    Hello
    | WireDelta
    | WireToolCalled
    | WireToolReturned
    | WireUsage
    | WireApprovalNeeded
    | WireAsk
    | WireFinal
    | WireFailure
    | UseTool
    | AskNewMessages
    | ReadFile
)

# To the agent


class Result(_Line, frozen=True, tag="result"):
    call: str
    text: str


class NewMessages(_Line, frozen=True, tag="meanwhile"):
    texts: tuple[str, ...]


class FileContent(_Line, frozen=True, tag="file"):
    file: str
    content: bytes | None = None
    problem: str = ""


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


class WireParticipant(msgspec.Struct, frozen=True):
    id: str | None
    name: str | None


class WireSituation(msgspec.Struct, frozen=True):
    """Where the conversation is, who takes part and when. Names come from strangers."""

    key: str
    source: Mapping[str, str]
    labels: Mapping[str, str]
    shared: bool
    started: str
    at: str
    zone: str
    participants: tuple[WireParticipant, ...]


class _Request(_Line, frozen=True, kw_only=True):
    protocol: int = PROTOCOL
    session: str
    messages: tuple[WireMessage, ...]
    override: WireModel | None


class Answer(_Request, frozen=True, kw_only=True, tag="answer"):
    turn: int
    attempt: int
    section: str
    situation: WireSituation | None
    approvals: Mapping[str, bool]
    tools: tuple[WireTool, ...]
    form: Mapping[str, Any] | None = None
    """What a client demands of the answer, if anything."""
    replies: tuple[Reply, ...] = ()
    """Over HTTP: the replies so far in this turn, because nothing can be sent while an answer streams."""


class Summarise(_Request, frozen=True, kw_only=True, tag="summarise"):
    focus: str


class Title(_Request, frozen=True, kw_only=True, tag="title"): ...


class Cancel(_Line, frozen=True, tag="cancel"):
    """Stop: nobody waits for the answer."""


AgentRequest = Answer | Summarise | Title


def encode_line(value: AgentRequest | Cancel | Reply) -> bytes:
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
    """Accept half a character at the end of a piece of text: the next piece can have the other half."""
    try:
        said = json.loads(line)
        if isinstance(said, dict) and cast("dict[str, object]", said).get("type") == "delta":
            return msgspec.convert(said, WireDelta)
        return _DECODER.decode(whole_characters(json.dumps(said, ensure_ascii=False)).encode())
    except msgspec.ValidationError as error:
        raise ProtocolError(f"a line of {len(line)} bytes violates the protocol: {_location(error)}") from error
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a line of {len(line)} bytes is not a JSON object") from error


def _location(error: msgspec.ValidationError) -> str:
    """Return only the field name, such as `$.text`: the rest of the error can quote a value."""
    _, found, place = str(error).rpartition(" - at `")
    return f"{place.rstrip('`')} is not valid" if found else "a field is missing"


def answer_request(request: Request) -> Answer:
    tools = (
        WireTool(tool.name, tool.description, tool.parameters, tool.needs_approval) for tool in request.toolbox.tools
    )
    return Answer(
        **_common(request),
        turn=request.turn,
        attempt=request.attempt,
        section=request.section,
        situation=_situation(request.facts()),
        approvals=request.approvals,
        tools=tuple(tools),
        form=None if request.form == ANY_FORM else _form(request.form),
    )


def _form(form: AnswerForm) -> dict[str, Any]:
    schema = None if form.schema is None else json.loads(form.schema)
    return {"schema": schema, "stop": form.stop, "must_call": form.must_call}


def _situation(facts: TurnFacts | None) -> WireSituation | None:
    return facts and WireSituation(
        key=facts.key,
        source=facts.source,
        labels=facts.labels,
        shared=facts.shared,
        started=facts.started.isoformat(timespec="seconds"),
        at=facts.at.isoformat(timespec="seconds"),
        zone=facts.zone,
        participants=tuple(WireParticipant(*each) for each in facts.participants),
    )


def summarise_request(passage: Excerpt) -> Summarise:
    return Summarise(**_common(passage), focus=passage.focus)


def title_request(passage: Excerpt) -> Title:
    return Title(**_common(passage))


def _common(request: Request | Excerpt) -> dict[str, Any]:
    chosen = request.override
    return {
        "session": request.session,
        "messages": tuple(map(_message, request.messages)),
        "override": chosen and WireModel(chosen.model, chosen.provider),
    }


def _message(message: Message) -> WireMessage:
    role, text, calls, answers, reasoning, blobs = message
    return WireMessage(role, text, tuple(WireCall(*call) for call in calls), answers, reasoning, blobs)
