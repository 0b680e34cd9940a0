"""A thousand streams over real connections to a real window."""

import asyncio
import resource

from tests.web.conftest import Opened
from tests.web.test_api import program, say

STREAMS = 1000


class Stream:
    """One open EventSource, as little of it as can be."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int, authorization: str) -> "Stream":
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines = ("GET /events HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: {authorization}", "", "")
        writer.write("\r\n".join(lines).encode())
        await reader.readuntil(b"event: ready")
        return cls(reader, writer)

    async def entries(self) -> bytes:
        """The next news of a transcript, up to its end."""
        await self._reader.readuntil(b"event: entries")
        return await self._reader.readuntil(b"\n\n")


async def test_a_thousand_streams_of_one_window_hear_what_is_said(window: Opened) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * STREAMS)), hard))
    async with program(window) as owner, asyncio.timeout(120):
        port = window.config.web.port
        streams = [await Stream.open(port, owner.headers["authorization"]) for _ in range(STREAMS)]
        hearing = asyncio.gather(*(stream.entries() for stream in streams))
        await say(owner, "hello", conversation="plans")
        heard = await hearing
        assert len(set(heard)) == 1
        for stream in streams:
            stream.writer.close()
