"""A connection to the server that can be cut, at any time or in the middle of a send."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

__all__ = ["Proxy", "proxy"]


class Proxy:
    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._lose: bool | None = None
        self.sent = b""
        """What the client has sent so far."""

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def lose(self, *, shown: bool) -> None:
        """Cut at the next message from the client, once or before the server has it."""
        self._lose = shown

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        out = asyncio.create_task(self._send(reader, writer, far_writer))
        with suppress(OSError):
            while data := await far_reader.read(65_536):
                writer.write(data)
        writer.close()
        out.cancel()
        await asyncio.gather(out, return_exceptions=True)
        far_writer.close()
        self._writers -= {writer, far_writer}

    async def _send(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                self.sent += data
                if self._lose is not None and b"<body" in data:
                    shown, self._lose = self._lose, None
                    near.transport.abort()
                    if shown:
                        far.write(data)
                    break
                far.write(data)
        with suppress(OSError):
            far.write_eof()
        await asyncio.sleep(3600)


@asynccontextmanager
async def proxy(target: int) -> AsyncGenerator[Proxy]:
    between = Proxy(target)
    server = await asyncio.start_server(between.serve, "127.0.0.1", 0)
    between.port = server.sockets[0].getsockname()[1]
    try:
        yield between
    finally:
        server.close()
        between.cut()
