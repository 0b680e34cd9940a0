"""How to reach an MCP server: as a program of its own, or over HTTP with a login."""

import asyncio
import os
import re
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Self, TextIO, cast

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from palaver.agents.process import Process, home_folder
from palaver.agents.wire import ProtocolError
from palaver.model.attachment import format_size
from palaver.model.redact import redact
from palaver.model.text import one_line
from palaver.model.tools import ALL_TOOLS
from palaver.model.value import value
from palaver.protocols.rest import tls_context
from palaver.tools.mcp_login import stored_login

_CONNECT_TIMEOUT_SECONDS = 20.0
_MAX_STDERR_BYTES = 4_096
_MAX_SHOWN_LENGTH = 300
MAX_MESSAGE_BYTES = 16_000_000
"""A message is read as a whole, and everybody waits while that takes long."""
_TOO_LONG = f"It sent a message of more than {format_size(MAX_MESSAGE_BYTES)}."
_MAX_PARTS = 1_000
"""How many parts a result can have: the library checks each of them."""
_MAX_VALUES = 50_000
"""How many values a message can have: the parser makes an object of each, and everybody waits, even for a thread."""
_TOO_MANY = f"a message of more than {_MAX_VALUES:,} values"
_PARSED_IN_A_THREAD_BYTES = 1 << 16
_FIRST_ID = re.compile(rb'\s*\{[^{\[]*?"id"\s*:\s*(\d{1,15})')
_LAST_ID = re.compile(rb'"id"\s*:\s*(\d{1,15})[^{}\[\]]*\}\s*$')
_ID_WITHIN_BYTES = 200


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


_END_OF_EVENT = re.compile(rb"\r?\n\r?\n")
_LONGEST_END = 4


class AnswerRefused(httpx2.TransportError):
    """We do not read what the server sends. The text says why, for the owner."""


def connect(
    address: StdioServer | HttpServer,
    stderr: TextIO,
    on_response: Callable[[httpx2.Response], Awaitable[None]],
    on_problem: Callable[[Exception], None],
) -> AbstractAsyncContextManager[Any]:
    if isinstance(address, HttpServer):
        return _connect_over_http(address, on_response, on_problem)
    return _connect_over_pipes(address, stderr, on_problem)


@asynccontextmanager
async def _connect_over_pipes(
    address: StdioServer, stderr: TextIO, on_problem: Callable[[Exception], None]
) -> AsyncGenerator[Any]:
    """Run the program. The library's own transport reads a line that never ends for ever, and slower and slower."""
    command, environ = (address.command, *address.args), {**get_default_environment(), **address.env}
    process = await Process.spawn(command, environ, home_folder(), stderr=stderr, limit=MAX_MESSAGE_BYTES)
    to_us, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writing, from_us = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read_lines(process, to_us, on_problem)),
        asyncio.create_task(_write_lines(process, from_us)),
    ]
    try:
        yield reading, writing
    finally:
        for task in tasks:
            task.cancel()
        for stream in (to_us, reading, writing, from_us):
            stream.close()
        await process.end()


async def _read_lines(
    process: Process,
    to_us: MemoryObjectSendStream[SessionMessage | Exception],
    on_problem: Callable[[Exception], None],
) -> None:
    """Pass on what the program says. Closing the stream tells that it has ended."""
    with to_us, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        try:
            while (line := await process.line()) is not None:
                is_long = len(line) > _PARSED_IN_A_THREAD_BYTES
                await to_us.send(await asyncio.to_thread(_parse, line) if is_long else _parse(line))
        except ProtocolError:
            on_problem(AnswerRefused(_TOO_LONG))


class ValueCounter:
    """Counts the values of JSON text that comes in pieces, without parsing it."""

    def __init__(self) -> None:
        self.count = 0
        self._rest, self._is_in_string = b"", False

    def add(self, piece: bytes) -> int:
        text = self._rest + piece
        end = len(text.rstrip(b"\\"))
        # What a backslash escapes can come with the next piece.
        text, self._rest = text[:end], b"\\" * ((len(text) - end) % 2)
        parts = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[self._is_in_string :: 2])
        self._is_in_string ^= len(parts) % 2 == 0
        self.count += sum(outside.count(sign) for sign in (b",", b"[", b"{"))
        return self.count


def _parse(line: bytes) -> SessionMessage | Exception:
    if len(line) > _MAX_VALUES and ValueCounter().add(line) > _MAX_VALUES:
        return _refuse(line)
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError as error:
        return error
    if isinstance(message, types.JSONRPCResponse) and len(message.result.get("content") or ()) > _MAX_PARTS:
        error = types.ErrorData(code=types.INVALID_REQUEST, message=f"its result has more than {_MAX_PARTS} parts")
        message = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
    return SessionMessage(message)


def _refuse(line: bytes) -> SessionMessage | Exception:
    """Fail the call that a message answers, if it says which at its begin or end."""
    found = _FIRST_ID.match(line[:_ID_WITHIN_BYTES]) or _LAST_ID.search(line[-_ID_WITHIN_BYTES:])
    if not found:
        return AnswerRefused(f"It sent {_TOO_MANY}.")
    error = types.ErrorData(code=types.INVALID_REQUEST, message=f"it sent {_TOO_MANY}")
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error))


async def _write_lines(process: Process, from_us: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async for each in from_us:
        process.write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")


@asynccontextmanager
async def _connect_over_http(
    address: HttpServer,
    on_response: Callable[[httpx2.Response], Awaitable[None]],
    on_problem: Callable[[Exception], None],
) -> AsyncGenerator[Any]:
    client = httpx2.AsyncClient(
        # A packed answer could be of any size.
        headers={"accept-encoding": "identity", **address.headers},
        timeout=httpx2.Timeout(_CONNECT_TIMEOUT_SECONDS, read=None),
        auth=address.login and stored_login(address.login, address.url),
        event_hooks={"response": [on_response, partial(_limit_size, on_problem)]},
        verify=tls_context(),
    )
    async with (
        client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


async def _limit_size(on_problem: Callable[[Exception], None], response: httpx2.Response) -> None:
    """Refuse a message that is too long or has too many values. The library itself limits the length of events."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise AnswerRefused("It compresses its answers; it must send them uncompressed.")
    is_events = response.headers.get("content-type", "").startswith("text/event-stream")
    response.stream = LimitedStream(response.stream, on_problem, is_events=is_events)


class LimitedStream(httpx2.AsyncByteStream):
    def __init__(
        self,
        stream: Any,  # noqa: ANN401 - of the library
        on_problem: Callable[[Exception], None],
        *,
        is_events: bool,
    ) -> None:
        self._stream, self._on_problem, self._is_events = stream, on_problem, is_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, values, held = 0, ValueCounter(), b""
        async for piece in self._stream:
            size += len(piece)
            if size > MAX_MESSAGE_BYTES and not self._is_events:
                raise self._refused(_TOO_LONG)
            # No string has a line end, so an empty line is the end of an event.
            text = held + piece
            shown = text.rstrip(b"\r\n")
            held = text[len(shown) :][-_LONGEST_END:]  # The rest of it can come with the next piece.
            first, *others = _END_OF_EVENT.split(shown) if self._is_events else [piece]
            too_many = values.add(first) > _MAX_VALUES
            for event in others:
                values = ValueCounter()
                too_many |= values.add(event) > _MAX_VALUES
            if too_many:
                raise self._refused(f"It sent {_TOO_MANY}.")
            yield piece

    def _refused(self, why: str) -> AnswerRefused:
        """Say why: a stream of events just ends for the library."""
        error = AnswerRefused(why)
        self._on_problem(error)
        return error

    async def aclose(self) -> None:
        await self._stream.aclose()


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
            return _without_output_schemas(await anext(self._stream))
        except StopAsyncIteration:
            self._on_end()
            raise


def _without_output_schemas(message: SessionMessage | Exception) -> SessionMessage | Exception:
    """Leave out how listed tools describe their results: the library would check each of them, which can take long."""
    if isinstance(message, SessionMessage) and isinstance(message.message, types.JSONRPCResponse):
        tools: Any = message.message.result.get("tools")
        for tool in cast("list[object]", tools) if isinstance(tools, list) else ():
            if isinstance(tool, dict):
                cast("dict[str, Any]", tool).pop("outputSchema", None)
    return message


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
