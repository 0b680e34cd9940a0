"""A connection to a loft: JSON, one object per line."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from palaver.protocols import PlatformDown

__all__ = ["Connection", "ConnectionLost", "connect"]

_MAX_LINE_BYTES = 1 << 20
_TIMEOUT_SECONDS = 10.0


class ConnectionLost(Exception):
    """The loft closed the connection, or its answer is not JSON."""


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, message: Mapping[str, object]) -> None:
        try:
            self._writer.write(json.dumps(message).encode() + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise ConnectionLost from error

    async def receive(self) -> dict[str, Any]:
        try:
            return json.loads(await self._reader.readuntil())
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ConnectionLost from error

    async def request(self, message: Mapping[str, object]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await self.send(message)
                return await self.receive()
        except TimeoutError as error:
            raise ConnectionLost from error


@asynccontextmanager
async def connect(host: str, port: int) -> AsyncGenerator[Connection]:
    """Raise PlatformDown if nobody answers: nothing was sent yet."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, limit=_MAX_LINE_BYTES)
    except (OSError, TimeoutError) as error:
        raise PlatformDown(f"Nobody answers at {host} port {port}. Is the loft open?") from error
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
