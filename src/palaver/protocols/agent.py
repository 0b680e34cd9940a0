"""The agent protocol: an agent answers a turn with a stream of events."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from palaver.model.attachment import NewFile
from palaver.model.errors import NotFound
from palaver.model.prompt import TurnFacts
from palaver.model.session import ModelOverride
from palaver.model.tools import ask_call
from palaver.model.transcript import ToolCall
from palaver.model.turn import ANY_FORM, AnswerForm, Usage
from palaver.model.value import value
from palaver.model.view import Message
from palaver.protocols.tools import NO_TOOLS, Toolbox

__all__ = [
    "Agent",
    "ApprovalNeeded",
    "Choosing",
    "Closable",
    "Event",
    "Excerpt",
    "Failure",
    "FailureKind",
    "FallingBack",
    "Final",
    "GeneratedText",
    "Priced",
    "Request",
    "Retiring",
    "Suggesting",
    "Summarising",
    "TextDelta",
    "Titling",
    "ToolCalled",
    "ToolReturned",
    "UsageReport",
    "no_facts",
    "no_file",
    "no_new_messages",
    "question_to_person",
]


async def no_new_messages() -> tuple[str, ...]:
    return ()


async def no_file(name: str) -> bytes:
    raise NotFound("file", name)


def no_facts() -> TurnFacts | None:
    return None


@value
class Request:
    """Everything an agent gets to answer one turn. It learns about the turn in no other way."""

    session: str
    turn: int
    attempt: int
    section: str
    """The context section of the system prompt: the same bytes as long as the facts stay the same."""
    messages: tuple[Message, ...]
    """If a turn resumes after an approval, its last calls can be open at the end: see `open_calls`."""
    override: ModelOverride | None = None
    approvals: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """A person's decision on open calls, by call id."""
    new_messages: Callable[[], Awaitable[tuple[str, ...]]] = no_new_messages
    """Call it after tools have run: it returns, and stores, what people said to the agent since."""
    read_file: Callable[[str], Awaitable[bytes]] = no_file
    """Return the content of a file by the id in its marker. Raises NotFound for any other id."""
    facts: Callable[[], TurnFacts | None] = no_facts
    """Return where the conversation is, who takes part and when, for an agent that wants it as structure."""
    toolbox: Toolbox = NO_TOOLS
    """The gateway's tools for this turn."""
    form: AnswerForm = ANY_FORM
    """What the client demands. The gateway itself cuts the answer at a stop."""


@value(kw_only=False)
class TextDelta:
    """More text of the answer, to show while it grows."""

    text: str


@value
class ToolCalled:
    """The agent is about to use tools. The gateway stores the calls before they run."""

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
    """The usage since the last report."""

    usage: Usage


@value
class ApprovalNeeded:
    """The turn needs a person's approval of a call. Ends the stream; the gateway parks the turn.

    The call was in a ToolCalled event, or is open because the turn was parked before. Any other call is stored first.
    A call of `ask_user`, as `question_to_person` makes it, asks the person in words instead.
    """

    call: ToolCall
    question: str


def question_to_person(id_: str, question: str, choices: Sequence[str] = ()) -> ApprovalNeeded:
    """Ask a person in words, with choices if there are some. The next request has the answer as the call's result."""
    return ApprovalNeeded(call=ask_call(id_, question, choices), question=question)


@value
class Final:
    """The whole answer: the last event of a successful turn."""

    text: str
    reasoning: str = ""
    blob: bytes = b""
    files: tuple[NewFile, ...] = ()
    """Files to send after the text."""
    cut: bool = False
    """The model reached its limit of tokens, so the text ends in the middle. The gateway says so to the person."""


class FailureKind(StrEnum):
    TRANSIENT = "transient"
    """A retry can help."""
    RATE_LIMITED = "rate_limited"
    """The provider takes no more requests for now; a retry can help later."""
    REJECTED = "rejected"
    """The model does not take this request; the same request again fails again."""
    OVERFLOW = "overflow"
    """The conversation is too long for the model."""
    STUCK = "stuck"
    """The agent said nothing for too long."""
    UNREACHABLE = "unreachable"
    """No connection to the provider; a retry can help."""
    UNAUTHORIZED = "unauthorized"
    """The provider rejects the key."""
    NO_CREDIT = "no_credit"
    """The account at the provider has no credit or quota left."""
    UNKNOWN_MODEL = "unknown_model"
    """The provider does not have the model."""
    EMPTY = "empty"
    """The agent has nothing to say to a person who waits for an answer."""
    FATAL = "fatal"


@value
class Failure:
    """The turn failed. The detail goes into the log, never into the chat."""

    kind: FailureKind
    detail: str
    after: float | None = None
    """Seconds to wait before the next attempt, if the provider said so."""
    model: str | None = None
    """The model that failed, if the agent has several in order."""
    instead: str | None = None
    """The model that answers instead: the gateway asks again at once, with what has happened since."""


Event = TextDelta | ToolCalled | ToolReturned | UsageReport | ApprovalNeeded | Final | Failure


class Agent(Protocol):
    def answer(self, request: Request) -> AsyncIterator[Event]:
        """Stream events; the last is Final, Failure or ApprovalNeeded. Stop at once when cancelled."""
        ...


@runtime_checkable
class Choosing(Protocol):
    """An agent that can answer with one of several models."""

    def models(self) -> Sequence[ModelOverride]:
        """Return the models that a conversation can choose."""
        ...


@runtime_checkable
class FallingBack(Protocol):
    """An agent that answers with another model while the preferred one fails."""

    def is_falling_back(self) -> bool:
        """Return whether the preferred model failed when it was asked last."""
        ...

    def answers_instead(self) -> str | None:
        """Return the name of the model that answers while the preferred one rests; None while it does not."""
        ...


@runtime_checkable
class Retiring(Protocol):
    """An agent that holds resources between turns: processes, a model in memory."""

    def retire(self) -> None:
        """Release resources as soon as no turn runs: another agent has taken over. Still answer a late turn."""
        ...


@runtime_checkable
class Closable(Protocol):
    async def close(self) -> None:
        """Release everything: the gateway stops, and no turn runs."""
        ...


@runtime_checkable
class Suggesting(Protocol):
    """An agent that knows what people can say to it, to show on an empty chat."""

    def suggestions(self, tools: Collection[str]) -> Sequence[str]:
        """Return messages to try, the best first, for somebody who has these tools of the gateway."""
        ...


@runtime_checkable
class Priced(Protocol):
    """An agent that knows what its models cost."""

    def unpriced_models(self) -> Sequence[str]:
        """Return the models whose price is unknown."""
        ...


@value
class Excerpt:
    """A part of a conversation to summarise or title, as the agent sees it, and what matters most in it."""

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
    """An agent that can summarise. If it raises, the conversation stays unchanged."""

    def context_window(self, override: ModelOverride | None) -> int | None:
        """Return how many tokens the model takes; None if unknown."""
        ...

    async def summarise(self, passage: Excerpt) -> GeneratedText:
        """Return a summary that replaces the excerpt. Stop at once when cancelled.

        The excerpt can exceed the context window; the agent then reads it piece by piece.
        """
        ...


@runtime_checkable
class Titling(Protocol):
    """An agent that can title a conversation."""

    async def title(self, passage: Excerpt) -> GeneratedText:
        """Return a few words on one line, or nothing."""
        ...
