"""Offering: every toolset of a gateway. What speaks with MCP servers is loaded only where one is named."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from palaver.model.errors import InvalidInput
from palaver.protocols.tools import Toolset
from palaver.store.store import Store
from palaver.tools.attachments import FileTools
from palaver.tools.mcp import HttpServer, StdioServer
from palaver.tools.search import SearchTools
from palaver.tools.send_message import MessageTools

__all__ = [
    "Toolsets",
]


class Toolsets:
    """Made before anything starts: whatever is missing is said at once. Servers start when they are first needed."""

    def __init__(self, servers: Mapping[str, Mapping[str, Any]]) -> None:
        """Given what is known of each server, by its name."""
        self._servers = _servers(servers) if servers else None

    def toolsets(self, store: Store) -> Sequence[Toolset]:
        ours: tuple[Toolset, ...] = (SearchTools(store), MessageTools(), FileTools())
        return (*ours, self._servers) if self._servers else ours

    async def close(self) -> None:
        if self._servers:
            await self._servers.close()


class _Servers(Toolset, Protocol):
    async def close(self) -> None: ...


def _servers(servers: Mapping[str, Mapping[str, Any]]) -> _Servers:
    try:
        mcp = import_module("palaver.tools.mcp")
    except ModuleNotFoundError as missing:
        raise InvalidInput(
            "MCP servers need a package that is not installed:",
            found=missing.name or str(missing),
            allowed="what palaver's extra mcp brings",
            example="pip install 'palaver[mcp]'",
        ) from missing
    places = {
        name: StdioServer(**facts) if "command" in facts else HttpServer(**facts) for name, facts in servers.items()
    }
    found: _Servers = mcp.McpServers([mcp.McpServer(name, place) for name, place in places.items()])
    return found
