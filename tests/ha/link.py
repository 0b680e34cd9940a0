"""A network between two programs of this machine, that can be cut."""

import asyncio
from contextlib import suppress

from tests.ports import free_port

__all__ = ["Link"]


class Link:
    """A port of its own that leads to another one."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._passes = asyncio.Event()
        self._passes.set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    def stop(self) -> None:
        """Break all connections, as a proxy does that is killed."""
        if self._server:
            self._server.close()
        for writer in self._open:
            writer.transport.abort()

    @property
    def is_cut(self) -> bool:
        return not self._passes.is_set()

    def cut(self) -> None:
        """Pass nothing on and say nothing, as a network does that is cut."""
        self._passes.clear()

    def mend(self) -> None:
        self._passes.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._passes.wait()
            from_target, to_target = await asyncio.open_connection("127.0.0.1", self._target)
            self._open.add(to_target)
            ways = [asyncio.create_task(self._pass_on(*each)) for each in ((reader, to_target), (from_target, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            to_target.transport.abort()
            self._open.discard(to_target)
        except OSError:  # nobody listens
            pass
        finally:
            writer.transport.abort()
            self._open.discard(writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._passes.wait()
                writer.write(data)
                await writer.drain()
            await self._passes.wait()
