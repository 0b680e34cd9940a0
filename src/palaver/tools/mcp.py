"""MCP servers: started when first needed, kept, started anew when they die; what they cannot do they say in words."""

import asyncio
import json
import logging
import os
import re
from asyncio import Future
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.session import IncomingMessage
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from palaver.agents.process import home_folder
from palaver.engine.retry import log_error
from palaver.model.attachment import format_size
from palaver.model.text import one_line
from palaver.model.value import value
from palaver.protocols.tools import Tool, ToolFailed, ToolUse
from palaver.tools.mcp import HttpServer, StdioServer

__all__ = [
    "McpServer",
    "McpServers",
]

log = logging.getLogger(__name__)

_START_LIMIT = 20.0
_PING_LIMIT = 5.0
_END_LIMIT = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
_MOST_TOOLS = 200
_MOST_PAGES = 20
_DESCRIPTION = 2_000
_SCHEMA = 20_000
_NAME_LIMIT = 64
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_SEPARATOR = "__"
"""Between the name of a server, which has none in it, and the name of its tool."""
Reached = AbstractAsyncContextManager[Any]


def _reached(place: StdioServer | HttpServer, silent: TextIO) -> Reached:
    if isinstance(place, HttpServer):
        return _over_http(place)
    server = StdioServerParameters(command=place.command, args=list(place.args), env=dict(place.env), cwd=home_folder())
    return stdio_client(server, errlog=silent)


@asynccontextmanager
async def _over_http(place: HttpServer) -> AsyncGenerator[Any]:
    timeout = httpx2.Timeout(_START_LIMIT, read=None)
    async with (
        httpx2.AsyncClient(headers=dict(place.headers), timeout=timeout) as client,
        streamable_http_client(place.url, http_client=client) as streams,
    ):
        yield streams


_BROKEN = (OSError, httpx2.HTTPError, anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError)


class _Connection:
    """A server at work. Its streams are opened and closed by one task of their own, as they have to be."""

    def __init__(self, place: StdioServer | HttpServer, changed: Callable[[], None]) -> None:
        self._place, self._changed = place, changed
        self._over = asyncio.Event()
        self._ready: Future[Client] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._keep(), name="mcp server")

    async def client(self) -> Client:
        return await asyncio.shield(self._ready)

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def end(self) -> None:
        """It closes by itself, in its own time; one that was never ready is not waited for."""
        if not self._ready.done() and not self._over.is_set():  # once: a second time would cut its end short
            self.task.cancel()
        self._over.set()

    async def _keep(self) -> None:
        try:
            with await asyncio.to_thread(Path(os.devnull).open, "w", encoding="utf-8") as silent:
                async with Client(_reached(self._place, silent), mode="legacy", message_handler=self._hear) as client:
                    self._ready.set_result(client)
                    await self._over.wait()
        except Exception as error:  # noqa: BLE001 - whatever a server does is its own affair
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            self._over.set()
            self._ready.cancel()

    async def _hear(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed()


class McpServer:
    """One server: asked when it is needed, left alone for a while after it has failed."""

    def __init__(self, name: str, place: StdioServer | HttpServer) -> None:
        self.name = name
        self._place = place
        self._connection: _Connection | None = None
        self._starting = asyncio.Lock()
        self._at_work: set[asyncio.Task[None]] = set()
        """Also those that were told to end and have not yet."""
        self._pause, self._not_before = 0.0, 0.0
        self._tools: dict[str, tuple[str, Tool]] = {}
        """By the name that the agent calls it by: the name that the server does."""
        self._changes, self._known = 0, -1
        """How often its tools may have become others, and how often they had when they were listed."""
        self._listing: asyncio.Task[None] | None = None

    async def tools(self) -> Sequence[Tool]:
        """As the server said last, also while it does not answer: what the agent is shown stays the same."""
        if self._known != self._changes:
            if self._listing is None or self._listing.done():
                self._listing = asyncio.create_task(self._list(), name="mcp tools")
            # A turn that is stopped takes nothing from those that come after it.
            await asyncio.shield(self._listing)
        return [tool for _, tool in self._tools.values()]

    async def _list(self) -> None:
        with suppress(ToolFailed):
            async with self._lent() as client, asyncio.timeout(_START_LIMIT):
                changes = self._changes
                self._tools = await self._listed(client)
                self._known = changes

    def has(self, name: str) -> bool:
        return name in self._tools

    async def use(self, name: str, arguments: Mapping[str, object]) -> str:
        async with self._lent() as client, asyncio.timeout(self._place.limit):
            result = await client.call_tool(self._tools[name][0], dict(arguments))
        text = _text(result)
        if result.is_error:
            raise ToolFailed(f"The tool reports an error: {text}")
        return text

    async def close(self) -> None:
        if self._listing is not None:
            self._listing.cancel()
        if self._connection is not None:
            self._connection.end()
        if self._at_work:
            await asyncio.wait(self._at_work, timeout=_END_LIMIT)
        for task in self._at_work:
            task.cancel()

    @asynccontextmanager
    async def _lent(self) -> AsyncGenerator[Client]:
        """The server to be asked something. If it breaks meanwhile it is started anew, not before a pause."""
        client = await self._started()
        try:
            yield client
        except MCPError as error:
            if error.code != types.CONNECTION_CLOSED:
                raise ToolFailed(
                    f"The server {self.name} refuses it: {one_line(error.message, _DESCRIPTION)}"
                ) from error
            raise self._failed(error) from error
        except TimeoutError as error:
            if not await _answers(client):
                raise self._failed(error) from error
            raise ToolFailed(f"The server {self.name} took too long; what it did is unknown.") from error
        except _BROKEN as error:
            raise self._failed(error) from error
        except ValueError as error:
            raise ToolFailed(f"The server {self.name} gave an answer that is none.") from error
        else:
            self._pause = 0.0

    async def _started(self) -> Client:
        async with self._starting:
            if self._connection is None or self._connection.is_over:
                self._connection = self._begun()
            try:
                async with asyncio.timeout(_START_LIMIT):
                    return await self._connection.client()
            except Exception as error:
                raise self._failed(error) from error

    def _begun(self) -> _Connection:
        if (wait := self._not_before - _time()) > 0:
            raise ToolFailed(f"The server {self.name} does not work; it is tried again in {wait:.0f} seconds.")
        self._forget()
        connection = _Connection(self._place, self._forget)
        self._at_work.add(connection.task)
        connection.task.add_done_callback(self._at_work.discard)
        return connection

    def _forget(self) -> None:
        self._changes += 1

    def _failed(self, error: Exception) -> ToolFailed:
        log_error(log, f"the server {self.name} failed", error, {"action": "tool.server"})
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
        self._not_before = _time() + self._pause
        if self._connection is not None:
            self._connection.end()
        return ToolFailed(f"The server {self.name} does not work; whether it did something is unknown.")

    async def _listed(self, client: Client) -> dict[str, tuple[str, Tool]]:
        found: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        tools: dict[str, tuple[str, Tool]] = {}
        for each in sorted(found, key=lambda tool: tool.name)[:_MOST_TOOLS]:
            name = _NOT_IN_NAMES.sub("_", f"{self.name}{_SEPARATOR}{each.name}")[:_NAME_LIMIT]
            if name not in tools and len(json.dumps(each.input_schema)) <= _SCHEMA:
                description = (each.description or each.title or each.name)[:_DESCRIPTION]
                tool = Tool(name=name, description=description, parameters=each.input_schema, needs_approval=True)
                tools[name] = each.name, tool
        return tools


@value(kw_only=False)
class McpServers:
    """The tools of all servers of the configuration."""

    servers: Sequence[McpServer]

    async def tools(self) -> Sequence[Tool]:
        listed = await asyncio.gather(*(server.tools() for server in self.servers))
        return [tool for tools in listed for tool in tools]

    async def skips_approval(self, use: ToolUse) -> bool:  # noqa: ARG002
        return False

    async def use(self, use: ToolUse) -> str:
        for server in self.servers:
            if server.has(use.call.name):
                return await server.use(use.call.name, use.arguments)
        raise ToolFailed("The server does not have this tool any more.")

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self.servers))


def _time() -> float:
    return asyncio.get_running_loop().time()


async def _answers(client: Client) -> bool:
    """Whether it is only slow."""
    try:
        async with asyncio.timeout(_PING_LIMIT):
            await client.list_tools(cache_mode="refresh")
    except (MCPError, *_BROKEN):
        return False
    return True


def _text(result: types.CallToolResult) -> str:
    parts = [_described(part) for part in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def _described(part: types.ContentBlock) -> str:
    """Text as it is; of anything else, what it is."""
    match part:
        case types.TextContent(text=text):
            return text
        case types.ImageContent() | types.AudioContent():
            return f"({one_line(part.mime_type, 100)}, {format_size(len(part.data) * 3 // 4)}, not shown)"
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return text
        case _:
            return f"({part.type}, not shown)"
