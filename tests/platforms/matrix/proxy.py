"""A line to the homeserver that can be cut at any point of a request."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

__all__ = ["Proxy", "proxied"]

_PIECE = 1 << 16
_UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
_SEND = re.compile(rb"^PUT (\S+/send/\S+) ")


class Proxy:
    """What goes through it is looked at only for the path of each request."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lines: set[asyncio.StreamWriter] = set()
        self._loses: bool | None = None
        self._lost: bytes | None = None
        self._changed = asyncio.Event()
        self.refused: str | None = None
        """What is in the path of requests that get no further than this: as with a server that is being started."""
        self.asked: list[str] = []
        """The paths of the requests that were answered."""

    def cut(self) -> None:
        for line in self._lines:
            line.transport.abort()

    def lose_send(self, *, shown: bool) -> None:
        """The next message gets through, or not; its answer does not. That holds for clients that repeat it."""
        self._loses, self._lost = shown, None

    async def answered(self, path: str) -> None:
        async with asyncio.timeout(60):
            while not any(path in asked for asked in self.asked):
                self._changed.clear()
                await self._changed.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._lines |= {writer, back}
        asking: list[bytes] = []
        returning = asyncio.create_task(self._return(there, writer, asking))
        try:
            while piece := await reader.read(_PIECE):
                if request := re.match(rb"^(?:GET|PUT|POST|DELETE) (\S+) ", piece):
                    asking.append(request[1])
                if self._is_lost(piece) and not self._loses:
                    writer.transport.abort()
                    break
                if request and self.refused and self.refused in request[1].decode():
                    await _read_on(reader, piece)
                    writer.write(_UNAVAILABLE)
                    continue
                back.write(piece)
        except OSError:
            pass
        finally:
            returning.cancel()
            await asyncio.gather(returning, return_exceptions=True)
            self._lines -= {writer, back}
            writer.close()
            back.close()

    def _is_lost(self, piece: bytes) -> bool:
        found = _SEND.match(piece)
        if found and self._loses is not None and self._lost in {None, found[1]}:
            self._lost = found[1]
            return True
        return False

    async def _return(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, asking: list[bytes]) -> None:
        with suppress(OSError):
            while piece := await there.read(_PIECE):
                if asking and asking[-1] == self._lost:
                    writer.transport.abort()
                    return
                writer.write(piece)
                if asking:
                    self.asked.append(asking[-1].decode())
                    self._changed.set()
        writer.close()


async def _read_on(reader: asyncio.StreamReader, piece: bytes) -> None:
    """To the end of the request that begins with this."""
    head, _, body = piece.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    await reader.readexactly(int(length[1]) - len(body) if length else 0)


@asynccontextmanager
async def proxied(port: int) -> AsyncGenerator[tuple[Proxy, str]]:
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield proxy, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        proxy.cut()
