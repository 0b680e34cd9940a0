"""Tools: what an agent can do besides talking, in one turn, for the person it answers."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from palaver.model.access import AccessRole
from palaver.model.attachment import NewFile
from palaver.model.errors import PalaverError
from palaver.model.source import DM, Source
from palaver.model.transcript import ToolCall
from palaver.model.turn import Received, Turn
from palaver.model.value import value

__all__ = [
    "NO_TOOLS",
    "Tool",
    "ToolContext",
    "ToolFailed",
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
    """Whether a person must allow each use of it."""


class Toolbox(Protocol):
    """The tools of one turn. Those that its person may not use, or not here, are not in it."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    async def question(self, call: ToolCall) -> str | None:
        """What a person has to be asked before the call is used, in words for them; None where nobody is."""
        ...

    async def use(self, call: ToolCall) -> str:
        """What came of it, in words for the agent; also what went wrong. Cancelled, it stops at once.

        A call that nobody has allowed, though somebody must, is refused.
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
    """It could not be done; why, in words for the agent."""


class ToolServices(Protocol):
    """What the engine does for tools in one turn. What it writes it writes under the turn's fence."""

    async def places(self, targets: str) -> Sequence[Source]:
        """Where that is, each place once. Raises InvalidInput where it is nowhere."""
        ...

    async def send(self, places: Sequence[Source], text: str, files: Sequence[NewFile] = (), *, once: str) -> bool:
        """Owed from here on. False where it was owed under that name in this turn before.

        Raises ToolFailed where there is nothing to send.
        """
        ...

    async def read_file(self, name: str) -> bytes:
        """The content of a file that is shown in the conversation. Raises NotFound for any other."""
        ...


@value
class ToolContext:
    """A turn in which tools may be used: for whom and where."""

    turn: Turn
    last: Received
    """What it answers."""
    role: AccessRole
    """As what everybody it answers was let in: the least of them."""
    services: ToolServices

    @property
    def source(self) -> Source:
        return self.last.inbound.source

    @property
    def is_overheard(self) -> bool:
        """Others read the answer who need not have said anything."""
        return self.source.chat_kind != DM


@value
class ToolUse:
    """A call, its arguments read, on its occasion."""

    call: ToolCall
    arguments: Mapping[str, object]
    context: ToolContext

    def text(self, name: str) -> str:
        """An argument that has to be there. Raises ToolFailed, saying so."""
        found = self.arguments.get(name)
        if not isinstance(found, str) or not found.strip():
            raise ToolFailed(f"The argument {name} has to be a text.")
        return found


class Toolset(Protocol):
    """Tools that belong together. Whatever it raises ends the call, never the turn."""

    async def tools(self) -> Sequence[Tool]:
        """What it has, always in the same order. Who may use it where is for others to say."""
        ...

    async def skips_approval(self, use: ToolUse) -> bool:
        """Whether this use needs nobody's permission, though the tool asks for it."""
        ...

    async def use(self, use: ToolUse) -> str:
        """Raises ToolFailed, InvalidInput or NotFound, in words for the agent, where it cannot be done."""
        ...
