"""Tools: what an agent can do besides talking, in one turn, for the person it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from palaver.domain.transcript import ToolCall

__all__ = ["NO_TOOLS", "Tool", "Toolbox"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    name: str
    description: str
    parameters: Mapping[str, object]
    """The JSON schema of its arguments: an object."""
    asks: bool = False
    """Whether a person must allow each use of it."""


class Toolbox(Protocol):
    """The tools of one turn. Those that its person may not use, or not here, are not in it."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    async def use(self, call: ToolCall) -> str:
        """What came of it, in words for the agent; also what went wrong. Cancelled, it stops at once."""
        ...


class _NoTools:
    tools: Sequence[Tool] = ()

    async def use(self, call: ToolCall) -> str:
        return f"There is no tool called {call.name}."


NO_TOOLS: Toolbox = _NoTools()
