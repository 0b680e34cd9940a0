"""The tool protocol: what an agent can do in one turn, on behalf of the person it answers."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable
from zoneinfo import ZoneInfo

from palaver.model.access import AccessRole
from palaver.model.attachment import Attachment, NewFile
from palaver.model.errors import PalaverError
from palaver.model.job import Job, JobRequest
from palaver.model.memory import MemoryLimits
from palaver.model.source import DM, Source
from palaver.model.transcript import ToolCall
from palaver.model.turn import Received, Turn
from palaver.model.value import value

__all__ = [
    "NO_TOOLS",
    "ApprovalSkips",
    "CallApproval",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "ToolProblems",
    "ToolServices",
    "ToolUse",
    "Toolbox",
    "Toolset",
]


@value
class Tool:
    name: str
    description: str
    parameters: Mapping[str, object]
    """The JSON schema of its arguments: an object."""
    needs_approval: bool = False
    """Whether a person must approve each call."""
    asks_unless: str = ""
    """When it needs no approval all the same, in words for agents and people: `it sends to this chat`."""
    summary: str = ""
    """What it does, for people; without it they read the description."""
    for_jobs: bool = True
    """Whether the agent also has it when a job runs."""


class Toolbox(Protocol):
    """The tools of one turn, without those that the person cannot use, or not here."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    async def question(self, call: ToolCall) -> str | None:
        """Return the question that a person must approve before the call runs; None if no approval is needed."""
        ...

    async def use(self, call: ToolCall) -> str:
        """Run the call and return its result, or what went wrong, in words for the agent. Stop at once when cancelled.

        Refuses a call that needs an approval and has none.
        """
        ...


class _NoTools:
    tools: Sequence[Tool] = ()

    async def question(self, call: ToolCall) -> str | None:  # noqa: ARG002
        return None

    async def use(self, call: ToolCall) -> str:
        return f"There is no tool called {call.name}."


NO_TOOLS: Toolbox = _NoTools()


class ToolFailed(PalaverError):
    """The tool failed. The message tells the agent why."""


class ToolServices(Protocol):
    """What the engine does for tools in one turn. Every write is checked against the turn's fence."""

    async def places(self, targets: str) -> Sequence[Source]:
        """Return the places that the targets name, each once. Raises InvalidInput for an unknown target."""
        ...

    async def send(self, places: Sequence[Source], text: str, files: Sequence[NewFile] = (), *, once: str) -> bool:
        """Queue a message. Return False if this turn already queued one with the same `once`.

        Raises ToolFailed if there is nothing to send.
        """
        ...

    async def keep(self, files: Sequence[NewFile]) -> Sequence[Attachment]:
        """Keep files with the result of the call: the agent sees those that it can, and can read and send them.

        A file that cannot be kept has a `problem`, which the agent reads. There is a limit to how many are kept.
        """
        ...

    def report(self, progress: str) -> None:
        """Say how far the call is, in a few words for people: `3 of 10 pages`."""
        ...

    async def say(self, text: str, *, once: str) -> bool:
        """Queue a voice message to this chat, as `send` does. Raises ToolFailed if it cannot be spoken."""
        ...

    async def read_file(self, name: str) -> NewFile:
        """Return a file of the conversation. Raises NotFound for any other."""
        ...

    async def wait_for_message(self) -> None:
        """Return when a person has written to the conversation and waits for an answer."""
        ...

    @property
    def resumes(self) -> bool:
        """Whether a turn that is cancelled goes on later, because the gateway stops or another one has taken it."""
        ...

    def hides_ids(self, platform: str) -> bool:
        """Return whether the agent must not learn the ids of people of a platform."""
        ...

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of the chat."""
        ...

    @property
    def now(self) -> datetime: ...

    @property
    def memory_limits(self) -> MemoryLimits:
        """How many notes one person or one chat can have."""
        ...

    @property
    def tool_limit(self) -> timedelta:
        """A call that takes longer is stopped."""
        ...

    async def schedule(self, request: JobRequest) -> Job:
        """Make a job on behalf of the person. Raises InvalidInput, and ToolFailed if they cannot make it."""
        ...


@value
class ToolContext:
    """The turn in which a tool runs: for whom and where."""

    turn: Turn
    last: Received
    """The last message that the turn answers."""
    role: AccessRole
    """The lowest role of the people that the turn answers."""
    services: ToolServices

    @property
    def source(self) -> Source:
        return self.last.inbound.source

    @property
    def is_overheard(self) -> bool:
        """Whether people who said nothing can read the answer."""
        places = [to.place for to in self.last.inbound.destinations] or [self.source]
        return any(place.chat_kind != DM for place in places)


@value
class ToolUse:
    """A call with its parsed arguments and the turn it runs in."""

    call: ToolCall
    arguments: Mapping[str, object]
    context: ToolContext

    def text(self, name: str) -> str:
        """Return a required text argument. Raises ToolFailed if it is missing."""
        argument = self.arguments.get(name)
        if not isinstance(argument, str) or not argument.strip():
            raise ToolFailed(f"The argument {name} must be non-empty text.")
        return argument


class Toolset(Protocol):
    """Tools that belong together. An error it raises ends the call, never the turn."""

    async def tools(self) -> Sequence[Tool]:
        """Return its tools, always in the same order. The gateway decides who can use them where."""
        ...

    async def use(self, use: ToolUse) -> str:
        """Run the call. Raises ToolFailed, InvalidInput or NotFound with a message for the agent."""
        ...


@runtime_checkable
class CallApproval(Protocol):
    """A toolset that decides for each call whether a person must approve it, besides the rules for the tool."""

    async def needs_approval(self, use: ToolUse) -> bool:
        """Return whether a person must approve the call. Raises ToolFailed if nobody can."""
        ...


@runtime_checkable
class ApprovalSkips(Protocol):
    """A toolset with calls that need no approval although their tool does."""

    async def skips_approval(self, use: ToolUse) -> bool:
        """Return whether this call needs no approval."""
        ...


@runtime_checkable
class ToolProblems(Protocol):
    """A toolset that knows why some of its tools are missing."""

    def problems(self) -> Mapping[str, str]:
        """Return what is wrong, in words for the owner, by the name of the part that does not work."""
        ...
