"""Every toolset of a gateway. The MCP library is loaded only if a server is configured."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from palaver.agents.plugins import import_extra
from palaver.protocols.tools import ToolProblems, Toolset
from palaver.store.store import Store
from palaver.tools.ask import AskTools
from palaver.tools.jobs import JobTools
from palaver.tools.memory import MemoryTools
from palaver.tools.messages import FileTools, MessageTools
from palaver.tools.search import SearchTools
from palaver.tools.terminal import TerminalTools
from palaver.tools.voice import VoiceTools
from palaver.tools.workspace import WorkspaceTools


class Toolsets:
    """Reports a missing package when it is made, and starts servers when they are first needed."""

    def __init__(self, servers: Mapping[str, Mapping[str, Any]], data_dir: Path | None = None) -> None:
        """`servers` holds the options of each MCP server by its name. Logins for them are in the data directory."""
        self._servers = _make_servers(servers, data_dir) if servers else None

    def toolsets(
        self, store: Store, terminal: TerminalTools | None = None, *, speaks: bool = False
    ) -> Sequence[Toolset]:
        ours: tuple[Toolset, ...] = (
            *(SearchTools(store), MessageTools(), FileTools(), JobTools(store)),
            *(AskTools(), MemoryTools(store)),
        )
        if speaks:
            ours = (*ours, VoiceTools())
        if terminal:
            ours = (*ours, terminal, WorkspaceTools(terminal.backend))
        return (*ours, self._servers) if self._servers else ours

    async def check(self) -> Mapping[str, str]:
        """Start every server; return why those that do not work do not, by name."""
        if self._servers is None:
            return {}
        await self._servers.tools()
        return self._servers.problems()

    async def close(self) -> None:
        if self._servers:
            await self._servers.close()


class _ClosableToolset(Toolset, ToolProblems, Protocol):
    async def close(self) -> None: ...


def _make_servers(servers: Mapping[str, Mapping[str, Any]], data_dir: Path | None) -> _ClosableToolset:
    mcp = import_extra("palaver.tools.mcp", "MCP servers need", "mcp")

    def address(name: str, options: Mapping[str, Any]) -> object:
        if "command" in options:
            return mcp.StdioServer(**options)
        return mcp.HttpServer(**options, login=data_dir and login_file(data_dir, name))

    made = [mcp.McpServer(name, address(name, options)) for name, options in servers.items()]
    toolset: _ClosableToolset = mcp.McpServers(made)
    return toolset


def login_file(data_dir: Path, server: str) -> Path:
    """Return where the login for a server is stored, if somebody logged in."""
    return data_dir / "mcp" / f"{server}.json"
