"""The fake platform over a local socket, for adapters in other processes: server, client and protocol (JSON lines).

A connection carries one call of `PlatformClient` and gets one answer; to leave the sender in doubt, the platform closes
the connection without one:

    → {"do": "send", "arguments": ["bot", {"platform": "fake", "chat_id": "c1", "text": "hi"}, "7.0"]}
    ← {"receipt": "12"}
    → {"do": "fetch", "arguments": ["bot", "c1/3/0"]}
    ← {"content": "aGk="}
    → {"do": "edit", "arguments": ["bot", "12", {…}]}
    ← {"error": "busy", "words": "…", "after": 1.5}

The errors are `down`, `busy` and `away` (both with `after`), `refused`, `gone`, and `moved`, whose `words` are the new
id of the chat. `open` streams updates and takes the numbers of those that are stored:

    → {"do": "open", "arguments": ["bot"]}
    ← {"number": 1, "chat": "c1", "kind": "dm", "title": "alice", "person": {…}, "message": {…}}
    → 1
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from palaver.model.label import read_label, write_label
from palaver.protocols import (
    ChatMoved,
    MenuCommand,
    Outbound,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    SendRefused,
    SendUnclear,
    TargetAway,
    TargetGone,
    request_leaves,
)
from palaver.protocols.background import run_together
from palaver.testkit.adapter import UpdateStream
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import Update

__all__ = ["Answer", "SocketClient", "SocketStream", "serve"]

_MAX_LINE_BYTES = 1 << 24
_T = TypeVar("_T")
_ARGUMENTS: dict[str, Any] = {
    "open": tuple[str],
    "send": tuple[str, Outbound, str],
    "open_thread": tuple[str, Outbound, str],
    "edit": tuple[str, str, Outbound],
    "typing": tuple[str, Outbound],
    "show_menu": tuple[str, tuple[MenuCommand, ...]],
    "fetch": tuple[str, str],
    "send_file": tuple[str, Outbound, bytes, str],
}


class _Request(msgspec.Struct, frozen=True):
    do: str
    """A method of `PlatformClient`."""
    arguments: tuple[Any, ...]

    def decoded(self) -> tuple[Any, ...]:
        return msgspec.convert(self.arguments, _ARGUMENTS[self.do], dec_hook=read_label)


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    receipt: str = ""
    error: str = ""
    words: str = ""
    after: float = 0.0
    content: bytes = b""

    @classmethod
    def of(cls, error: PlatformError) -> "Answer":
        """Encode an error. SendUnclear has no encoding: the connection is closed instead."""
        name = next(name for name, kind in _ERRORS.items() if isinstance(error, kind))
        after = error.after if isinstance(error, PlatformBusy) else 0.0
        return cls(error=name, words=error.new if isinstance(error, ChatMoved) else str(error), after=after)

    def result(self) -> "Answer":
        """Return itself, or raise the encoded error."""
        if not self.error:
            return self
        kind = _ERRORS[self.error]
        raise kind(self.after) if issubclass(kind, PlatformBusy) else kind(self.words)


# Subclasses first.
_ERRORS: dict[str, type[PlatformDown | PlatformBusy | SendRefused]] = {
    "down": PlatformDown,
    "away": TargetAway,
    "busy": PlatformBusy,
    "gone": TargetGone,
    "moved": ChatMoved,
    "refused": SendRefused,
}


async def _write(writer: asyncio.StreamWriter, value: object) -> None:
    # ASCII only: lone surrogates get across, too.
    writer.write(json.dumps(msgspec.to_builtins(value, enc_hook=write_label)).encode() + b"\n")
    await writer.drain()


async def _read(reader: asyncio.StreamReader, kind: type[_T]) -> _T | None:
    """Return the next value, or None if the other side has closed the connection, even in the middle of a line."""
    line = await reader.readline()
    return msgspec.convert(json.loads(line), kind, dec_hook=read_label) if line.endswith(b"\n") else None


# Client


class SocketClient:
    def __init__(self, path: str | Path) -> None:
        self._path = path

    async def open(self, account: str) -> "SocketStream":
        stream = SocketStream(*await self._connect())
        await stream.write(_Request("open", (account,)))
        return stream

    async def send(self, account: str, outbound: Outbound, key: str) -> str:
        return (await self._call("send", account, outbound, key)).receipt

    async def open_thread(self, account: str, outbound: Outbound, key: str) -> str:
        return (await self._call("open_thread", account, outbound, key)).receipt

    async def edit(self, account: str, receipt: str, outbound: Outbound) -> None:
        await self._call("edit", account, receipt, outbound)

    async def typing(self, account: str, outbound: Outbound) -> None:
        await self._call("typing", account, outbound)

    async def show_menu(self, account: str, commands: Sequence[MenuCommand]) -> None:
        await self._call("show_menu", account, commands)

    async def fetch(self, account: str, handle: str) -> bytes:
        try:
            return (await self._call("fetch", account, handle)).content
        except SendUnclear as error:
            raise PlatformDown(str(error)) from None

    async def send_file(self, account: str, outbound: Outbound, content: bytes, key: str) -> str:
        return (await self._call("send_file", account, outbound, content, key)).receipt

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_unix_connection(self._path, limit=_MAX_LINE_BYTES)
        except OSError as error:
            raise PlatformDown(f"The platform does not respond: {error}") from None

    async def _call(self, do: str, *arguments: object) -> Answer:
        reader, writer = await self._connect()
        try:
            await request_leaves()
            await _write(writer, _Request(do, arguments))
            answer = await _read(reader, Answer)
        except OSError as error:
            raise SendUnclear(f"The connection was lost while sending: {error}") from None
        finally:
            await _close(writer)
        if answer is None:
            raise SendUnclear("The connection was lost while sending.")
        return answer.result()


class SocketStream:
    """One connection for updates."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def next(self) -> Update:
        try:
            update = await _read(self._reader, Update)
        except OSError as error:
            raise PlatformDown(f"The connection was cut: {error}") from None
        if update is None:
            raise PlatformDown("The connection was cut.")
        return update

    async def acknowledge(self, number: int) -> None:
        await self.write(number)

    async def write(self, value: object) -> None:
        try:
            await _write(self._writer, value)
        except OSError as error:
            raise PlatformDown(f"The connection was cut: {error}") from None

    async def close(self) -> None:
        await _close(self._writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


# Server


@asynccontextmanager
async def serve(platform: FakePlatform, path: str | Path) -> AsyncGenerator[None]:
    """Serve the platform on a socket at this path until the end of the block."""
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(_handle(platform, reader, writer))
        connections.add(connection)
        connection.add_done_callback(connections.discard)

    server = await asyncio.start_unix_server(accept, path, limit=_MAX_LINE_BYTES)
    try:
        yield
    finally:
        server.close()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _handle(platform: FakePlatform, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        # A client can be killed at any time, and the platform can close a connection without an answer.
        with suppress(OSError, SendUnclear, PlatformDown):
            request = await _read(reader, _Request)
            if request and request.do == "open":
                await _stream_updates(await platform.open(*request.decoded()), reader, writer)
            elif request:
                await _write(writer, await _answer(platform, request))
    finally:
        writer.close()


async def _answer(platform: FakePlatform, request: _Request) -> Answer:
    try:
        result = await getattr(platform, request.do)(*request.decoded())
    except SendUnclear:
        raise
    except PlatformError as error:
        return Answer.of(error)
    return Answer(content=result) if isinstance(result, bytes) else Answer(receipt=result or "")


async def _stream_updates(stream: UpdateStream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send updates and read acknowledgements until one side closes the connection."""
    try:
        await run_together(_send_updates(stream, writer), _read_acknowledgements(stream, reader))
    finally:
        await stream.close()


async def _send_updates(stream: UpdateStream, writer: asyncio.StreamWriter) -> None:
    while True:
        await _write(writer, await stream.next())


async def _read_acknowledgements(stream: UpdateStream, reader: asyncio.StreamReader) -> None:
    while (number := await _read(reader, int)) is not None:
        await stream.acknowledge(number)
