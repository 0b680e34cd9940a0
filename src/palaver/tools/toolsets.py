"""Offering: every toolset of a gateway. What speaks with MCP servers is loaded only where one is named."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from palaver.model.errors import InvalidInput
from palaver.protocols.tools import Toolset
from palaver.store.store import Store
from palaver.tools.attachments import Attaching
from palaver.tools.mcp_servers import Program, Remote
from palaver.tools.search import Searching
from palaver.tools.send_message import Sending

__all__ = [
    "Offering",
]


class Offering:
    """Made before anything starts: whatever is missing is said at once. Servers start when they are first needed."""

    def __init__(self, servers: Mapping[str, Mapping[str, Any]]) -> None:
        """Given what is known of each server, by its name."""
        self._servers = _servers(servers) if servers else None

    def toolsets(self, store: Store) -> Sequence[Toolset]:
        ours: tuple[Toolset, ...] = (Searching(store), Sending(), Attaching())
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
    places = {name: Program(**facts) if "command" in facts else Remote(**facts) for name, facts in servers.items()}
    found: _Servers = mcp.Servers([mcp.Server(name, place) for name, place in places.items()])
    return found
