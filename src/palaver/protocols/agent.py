"""The agent: answers a turn with a stream of events."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from palaver.model.attachment import NewFile
from palaver.model.errors import NotFound
from palaver.model.session import ModelOverride
from palaver.model.transcript import ToolCall
from palaver.model.turn import Usage
from palaver.model.value import value
from palaver.model.view import Message
from palaver.protocols.tools import NO_TOOLS, Toolbox

__all__ = [
    "Agent",
    "Agents",
    "ApprovalNeeded",
    "Choosing",
    "Closable",
    "Event",
    "Excerpt",
    "Failure",
    "FailureKind",
    "Final",
    "GeneratedText",
    "Request",
    "Retiring",
    "Summarising",
    "TextDelta",
    "Titling",
    "ToolCalled",
    "ToolReturned",
    "UsageReport",
    "no_file",
    "no_new_messages",
]


async def no_new_messages() -> tuple[str, ...]:
    return ()


async def no_file(name: str) -> bytes:
    raise NotFound("file", name)


@value
class Request:
    """Everything an agent is given to answer one turn. There is no other way for it to learn about the turn."""

    session: str
    turn: int
    attempt: int
    section: str
    """The context section of the system prompt: the same bytes while the facts are the same."""
    messages: tuple[Message, ...]
    """Where a turn goes on after a person was asked, calls of the last step stand open at the end: `open_calls`."""
    override: ModelOverride | None = None
    approvals: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """What a person said to calls that are open, by the id of the call."""
    new_messages: Callable[[], Awaitable[tuple[str, ...]]] = no_new_messages
    """To be asked after tools have run: what was said to the agent since, as it is shown. It is written down then."""
    read_file: Callable[[str], Awaitable[bytes]] = no_file
    """The content of a file by the id that it is described with. Raises NotFound for any other."""
    toolbox: Toolbox = NO_TOOLS
    """What the gateway offers to do for the agent in this turn."""


@value(kw_only=False)
class TextDelta:
    """A little more of the answer, to be shown while it grows."""

    text: str


@value
class ToolCalled:
    """The agent is about to use tools. It is written down before they run."""

    calls: tuple[ToolCall, ...]
    text: str = ""
    reasoning: str = ""
    blob: bytes = b""


@value
class ToolReturned:
    call: str
    text: str


@value(kw_only=False)
class UsageReport:
    """What was used since the last report."""

    usage: Usage


@value
class ApprovalNeeded:
    """The turn cannot go on until a person allows the call. Ends the stream; the turn is parked.

    The call was told of by ToolCalled, or is open since the turn was parked before; another one is written down alone.
    """

    call: ToolCall
    question: str


@value
class Final:
    """The whole answer. The last event of a turn that went well."""

    text: str
    reasoning: str = ""
    blob: bytes = b""
    files: tuple[NewFile, ...] = ()
    """To be sent after the text."""


class FailureKind(StrEnum):
    TRANSIENT = "transient"
    """Trying again may help."""
    OVERFLOW = "overflow"
    """The conversation is too long for the model."""
    STUCK = "stuck"
    """It said nothing for too long."""
    FATAL = "fatal"


@value
class Failure:
    """The turn went wrong. The detail is for the log, never for the chat."""

    kind: FailureKind
    detail: str
    after: float | None = None
    """How many seconds to wait before the next try, where somebody said so."""


Event = TextDelta | ToolCalled | ToolReturned | UsageReport | ApprovalNeeded | Final | Failure


class Agent(Protocol):
    def answer(self, request: Request) -> AsyncIterator[Event]:
        """Stream events; the last is Final, Failure or ApprovalNeeded. Cancelled, it stops at once."""
        ...


@runtime_checkable
class Choosing(Protocol):
    """Agents that can answer with one of several models."""

    def models(self) -> Sequence[ModelOverride]:
        """Those that a conversation may ask for."""
        ...


@runtime_checkable
class Retiring(Protocol):
    """Agents that hold something for the next turn: processes, a model in memory."""

    def retire(self) -> None:
        """Another one has taken its place: let go as soon as no turn runs. A turn that still comes is answered."""
        ...


@runtime_checkable
class Closable(Protocol):
    async def close(self) -> None:
        """The gateway ends, and no turn runs: let go of everything."""
        ...


@value(kw_only=False)
class Agents:
    """Who answers: in a profile that has an agent of its own that one, everywhere else the usual one."""

    usual: Agent
    profiles: Mapping[str, Agent] = field(default_factory=dict[str, Agent])

    def of(self, profile: str) -> Agent:
        return self.profiles.get(profile, self.usual)


@value
class Excerpt:
    """A part of a conversation, as the agent is shown it, and what of it matters most."""

    session: str
    messages: tuple[Message, ...]
    override: ModelOverride | None = None
    focus: str = ""


@value
class GeneratedText:
    text: str
    usage: Usage = field(default_factory=Usage)


@runtime_checkable
class Summarising(Protocol):
    """Agents that can say in fewer words what was said. Whatever they raise, the conversation stays as it was."""

    def context_window(self, override: ModelOverride | None) -> int | None:
        """How many tokens the model takes; None where that is not known."""
        ...

    async def summarise(self, passage: Excerpt) -> GeneratedText:
        """What stands for the passage from now on. Cancelled, it stops at once.

        The passage may be more than the model takes: then it is for the agent to read it piece by piece.
        """
        ...


@runtime_checkable
class Titling(Protocol):
    """Agents that can say what a conversation is about."""

    async def title(self, passage: Excerpt) -> GeneratedText:
        """A few words on one line, or nothing."""
        ...
