"""A stream of the window over a real connection, as little of a browser as can be."""

import asyncio
from typing import Self

__all__ = ["Stream"]


class Stream:
    """One open EventSource."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int, authorization: str) -> Self:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines = ("GET /events HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: {authorization}", "", "")
        writer.write("\r\n".join(lines).encode())
        await reader.readuntil(b"event: ready")
        return cls(reader, writer)

    async def entries(self) -> bytes:
        """The next news of a transcript, up to its end."""
        await self._reader.readuntil(b"event: entries")
        return await self._reader.readuntil(b"\n\n")

    def close(self) -> None:
        self._writer.close()
