"""Clients of the fake platform, in its own process or in another one."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from palaver.protocols import MenuCommand, Outbound, PlatformDown, SendUnclear
from palaver.testkit.updates import Update
from palaver.testkit.wire import MAX_LINE_BYTES, Answer, Request, read, write

__all__ = ["PlatformClient", "SocketClient", "SocketStream", "UpdateStream"]


class UpdateStream(Protocol):
    """One connection for updates."""

    async def next(self) -> Update:
        """Raises PlatformDown when the connection is lost."""
        ...

    async def acknowledge(self, number: int) -> None:
        """Raises PlatformDown when the connection is lost; then the update may come again."""
        ...

    async def close(self) -> None: ...


class PlatformClient(Protocol):
    """Implemented by `FakePlatform` and, for other processes, by `SocketClient`. Raises what adapters raise."""

    async def open(self, account: str) -> UpdateStream: ...
    async def send(self, account: str, outbound: Outbound, key: str) -> str: ...
    async def open_thread(self, account: str, outbound: Outbound, key: str) -> str: ...
    async def edit(self, account: str, receipt: str, outbound: Outbound) -> None: ...
    async def typing(self, account: str, outbound: Outbound) -> None: ...
    async def show_menu(self, account: str, commands: Sequence[MenuCommand]) -> None: ...
    async def fetch(self, account: str, handle: str) -> bytes: ...
    async def send_file(self, account: str, outbound: Outbound, content: bytes, key: str) -> str: ...


class SocketClient:
    def __init__(self, path: str | Path) -> None:
        self._path = path

    async def open(self, account: str) -> "SocketStream":
        stream = SocketStream(*await self._connect())
        await stream.write(Request("open", (account,)))
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
            return await asyncio.open_unix_connection(self._path, limit=MAX_LINE_BYTES)
        except OSError as error:
            raise PlatformDown(f"The platform does not respond: {error}") from None

    async def _call(self, do: str, *arguments: object) -> Answer:
        reader, writer = await self._connect()
        try:
            await write(writer, Request(do, arguments))
            answer = await read(reader, Answer)
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
            update = await read(self._reader, Update)
        except OSError as error:
            raise PlatformDown(f"The connection was cut: {error}") from None
        if update is None:
            raise PlatformDown("The connection was cut.")
        return update

    async def acknowledge(self, number: int) -> None:
        await self.write(number)

    async def write(self, value: object) -> None:
        try:
            await write(self._writer, value)
        except OSError as error:
            raise PlatformDown(f"The connection was cut: {error}") from None

    async def close(self) -> None:
        await _close(self._writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
