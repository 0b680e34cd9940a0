"""How to reach an MCP server: as a program of its own, or over HTTP with a login."""

import os
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Self, TextIO

import httpx2
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from palaver.agents.process import home_folder
from palaver.model.redact import redact
from palaver.model.text import one_line
from palaver.model.tools import ALL_TOOLS
from palaver.model.value import value
from palaver.protocols.rest import tls_context
from palaver.tools.mcp_login import stored_login

_CONNECT_TIMEOUT_SECONDS = 20.0
_MAX_STDERR_BYTES = 4_096
_MAX_SHOWN_LENGTH = 300


@value
class ServerLimits:
    limit: float = 60.0
    """How many seconds one call can take."""
    calls: int = 8
    """How many calls run at once, of all turns together."""
    tools: frozenset[str] = ALL_TOOLS
    """The only tools that are used, as patterns of their names without that of the server."""


@value
class StdioServer(ServerLimits):
    """A server that runs as a program on this machine. It gets a few safe variables and those named here."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@value
class HttpServer(ServerLimits):
    """A server over streamable HTTP."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    login: Path | None = None
    """The file with the login for it, if somebody logged in."""


def connect(
    address: StdioServer | HttpServer, stderr: TextIO, on_response: Callable[[httpx2.Response], Awaitable[None]]
) -> AbstractAsyncContextManager[Any]:
    if isinstance(address, HttpServer):
        return _connect_over_http(address, on_response)
    server = StdioServerParameters(
        command=address.command, args=list(address.args), env=dict(address.env), cwd=home_folder()
    )
    return stdio_client(server, errlog=stderr)


@asynccontextmanager
async def _connect_over_http(
    address: HttpServer, on_response: Callable[[httpx2.Response], Awaitable[None]]
) -> AsyncGenerator[Any]:
    client = httpx2.AsyncClient(
        headers=dict(address.headers),
        timeout=httpx2.Timeout(_CONNECT_TIMEOUT_SECONDS, read=None),
        auth=address.login and stored_login(address.login, address.url),
        event_hooks={"response": [on_response]},
        verify=tls_context(),
    )
    async with (
        client,
        streamable_http_client(address.url, http_client=client) as streams,
    ):
        yield streams


@asynccontextmanager
async def watched(connection: AbstractAsyncContextManager[Any], on_end: Callable[[], None]) -> AsyncGenerator[Any]:
    """Tell when the server closes its stream: a server that dies between two calls is restarted for the next."""
    async with connection as (reading, writing):
        yield _WatchedStream(reading, on_end), writing


class _WatchedStream:
    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:  # noqa: ANN401 - of the library
        self._stream, self._on_end = stream, on_end

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.__aexit__(*error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401
        try:
            return await anext(self._stream)
        except StopAsyncIteration:
            self._on_end()
            raise


class Stderr:
    """The end of what a program writes to its standard error: a pipe that is always read, so it never fills up."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop, self._tail, self._is_open = loop, b"", True
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self.file = os.fdopen(writing, "w", encoding="utf-8")
        loop.add_reader(self._reading, self._read)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while self._is_open and (piece := os.read(self._reading, 65_536)):
                self._tail = (self._tail + piece)[-_MAX_STDERR_BYTES:]

    def close(self) -> None:
        self._read()
        self._loop.remove_reader(self._reading)
        self.file.close()
        os.close(self._reading)
        self._is_open = False

    def text(self) -> str:
        """Return the last lines that were written, in one line and without secrets."""
        self._read()
        text = redact(self._tail.decode(errors="replace")).strip()
        return one_line(text[-_MAX_SHOWN_LENGTH:], _MAX_SHOWN_LENGTH)
