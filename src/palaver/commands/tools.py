"""`/tools`: what the agent may do besides talking, for whoever asks and where they ask."""

from palaver.commands.registry import Performance, say
from palaver.domain.command import Command, Invocation
from palaver.domain.text import one_line
from palaver.ports.commands import Spoken
from palaver.ports.tools import Tool
from palaver.ports.work import Work

__all__ = ["about_tools"]

_TOOLS = Command(
    name="tools",
    help="list what the agent may do for you here besides talking",
    example="/tools",
    group="gateway",
)
_LONGEST = 100


def about_tools() -> list[Performance]:
    async def tools(_invocation: Invocation, spoken: Spoken) -> Work[str]:
        found = await spoken.tools()
        return say("\n".join(map(_line, found)) or "The agent can only talk to you here.")

    return [Performance(_TOOLS, tools)]


def _line(tool: Tool) -> str:
    asks = " (you are asked first)" if tool.asks else ""
    return f"{tool.name}{asks}: {one_line(tool.description, _LONGEST)}"
