"""A line to a loft: JSON, one object in each line."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from palaver.protocols.adapter import PlatformDown

__all__ = ["Line", "Lost", "dialled"]

_LONGEST = 1 << 20
_PATIENCE = 10.0


class Lost(Exception):
    """The loft has hung up, or says nothing that could be understood."""


class Line:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def say(self, words: Mapping[str, object]) -> None:
        try:
            self._writer.write(json.dumps(words).encode() + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise Lost from error

    async def hear(self) -> dict[str, Any]:
        try:
            return json.loads(await self._reader.readuntil())
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise Lost from error

    async def ask(self, words: Mapping[str, object]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.say(words)
                return await self.hear()
        except TimeoutError as error:
            raise Lost from error


@asynccontextmanager
async def dialled(host: str, port: int) -> AsyncGenerator[Line]:
    """Raises PlatformDown where nobody answers: nothing was said to them yet."""
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection(host, port, limit=_LONGEST)
    except (OSError, TimeoutError) as error:
        raise PlatformDown(f"nobody answers at {host} port {port}: is the loft open?") from error
    try:
        yield Line(reader, writer)
    finally:
        writer.close()
