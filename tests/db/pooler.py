"""A connection pooler before PostgreSQL, like PgBouncer: it lends a server per transaction or per session."""

import asyncio
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

__all__ = ["pooling"]

_ENCRYPTION = (80877103, 80877104)
_ASKS_AND_WAITS, _GOES = (b"Q", b"S"), b"X"
Server = tuple[StreamReader, StreamWriter]


async def _message(reader: StreamReader) -> tuple[bytes, bytes]:
    kind, size = struct.unpack("!cI", await reader.readexactly(5))
    return kind, kind + struct.pack("!I", size) + await reader.readexactly(size - 4)


async def _greeting(reader: StreamReader, writer: StreamWriter) -> bytes:
    while True:
        size, code = struct.unpack("!II", await reader.readexactly(8))
        rest = await reader.readexactly(size - 8)
        if code not in _ENCRYPTION:
            return struct.pack("!II", size, code) + rest
        writer.write(b"N")


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    while piece := await reader.read(65_536):
        writer.write(piece)
    writer.close()


class _Pooler:
    def __init__(self, socket: str, *, per_transaction: bool) -> None:
        self._socket, self._per_transaction = socket, per_transaction
        self._idle: list[Server] = []
        self._all: list[StreamWriter] = []

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._all.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            greeting = await _greeting(reader, writer)
            server = await self._connect(greeting, writer)
            if self._per_transaction:
                self._idle.append(server)
                await self._lend(reader, writer, greeting)
            else:
                await asyncio.gather(_copy(reader, server[1]), _copy(server[0], writer))
        writer.close()

    async def _lend(self, reader: StreamReader, writer: StreamWriter, greeting: bytes) -> None:
        """Serve a client with another server connection for each of its transactions."""
        server: Server | None = None
        answer: asyncio.Task[bool] | None = None
        while True:
            kind, message = await _message(reader)
            if kind == _GOES:
                return
            server = server or (self._idle.pop() if self._idle else await self._connect(greeting, None))
            server[1].write(message)
            answer = answer or asyncio.create_task(self._forward(server, writer))
            if kind in _ASKS_AND_WAITS:
                if await answer:
                    self._idle.append(server)
                    server = None
                answer = None

    def close(self) -> None:
        for each in self._all:
            each.close()

    async def _connect(self, greeting: bytes, client: StreamWriter | None) -> Server:
        server = await asyncio.open_unix_connection(self._socket)
        self._all.append(server[1])
        server[1].write(greeting)
        await self._forward(server, client)
        return server

    async def _forward(self, server: Server, client: StreamWriter | None) -> bool:
        """Pass on an answer, but for the server's process id; say whether no transaction is open after it."""
        while True:
            kind, message = await _message(server[0])
            if kind == b"K":
                message = kind + struct.pack("!III", 12, 1, 2)
            if client:
                client.write(message)
            if kind == b"Z":
                return message.endswith(b"I")


@asynccontextmanager
async def pooling(url: str, *, per_transaction: bool) -> AsyncGenerator[str]:
    """A pooler before the server; yields its own address."""
    parts = urlsplit(url)
    folder = parse_qs(parts.query)["host"][0]
    pooler = _Pooler(f"{folder}/.s.PGSQL.5432", per_transaction=per_transaction)
    listening = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}"
    finally:
        listening.close()
        pooler.close()
