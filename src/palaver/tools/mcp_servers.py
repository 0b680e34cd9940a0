"""Where MCP servers are: known without the library that speaks with them."""

from collections.abc import Mapping
from dataclasses import field

from palaver.model.value import value

__all__ = [
    "HttpServer",
    "ServerAddress",
    "StdioServer",
]


@value
class ServerAddress:
    limit: float = 60.0
    """How many seconds one call may take."""


@value
class StdioServer(ServerAddress):
    """A server that is a program of this machine. It gets a few harmless variables of ours, and those named here."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@value
class HttpServer(ServerAddress):
    """A server that is reached by streamable HTTP."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
