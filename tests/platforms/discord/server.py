"""A server of Discord's API and gateway on the loopback. Answers have exactly the content type that Discord sends."""

import asyncio
import json
import re
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import BodyPartReader, WSMsgType, web

from tests.platforms.discord.world import TOKEN, No, Session, World

__all__ = ["Server", "serving"]

Json = dict[str, Any]
_INTENTS = 1 << 0 | 1 << 9 | 1 << 10 | 1 << 12 | 1 << 13 | 1 << 15
"""Servers, messages there, direct messages, and their content."""
_CLEAN = {1000, 1001}


class Server:
    """It answers for a world; connections to it can be cut."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.url = ""
        self.loses: bool | None = None
        """During the next send the connection is lost, after (True) or before it is shown."""
        self.refuses_gateway: int | None = None
        """The code with which it closes new connections."""
        self.heartbeat_ms = 41_250
        self.frames: list[Json] = []
        """What the bot has sent to the gateway."""
        self.closed: list[int | None] = []
        """The codes with which connections to the gateway were closed."""
        self.lines: list[_Line] = []
        self._transports: set[asyncio.Transport] = set()

    def cut(self) -> None:
        for transport in list(self._transports):
            transport.abort()

    async def tell(self, op: int, data: object = None) -> None:
        """Say something to the bot besides events: 7 to reconnect, 9 that the session is invalid."""
        for line in list(self.lines):
            await line.send({"op": op, "d": data})

    def ops(self) -> list[int]:
        return [frame["op"] for frame in self.frames]

    @asynccontextmanager
    async def _held(self, request: web.Request) -> AsyncGenerator[asyncio.Transport]:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._transports.add(transport)
        try:
            yield transport
        finally:
            self._transports.discard(transport)

    async def api(self, request: web.Request) -> web.StreamResponse:
        path = f"/{request.match_info['path']}"
        asked, files = await _content(request)
        async with self._held(request) as transport:
            if request.headers.get("Authorization") != f"Bot {TOKEN}":
                return _answer(401, {"message": "401: Unauthorized", "code": 0})
            is_send = request.method == "POST" and path.endswith("/messages")
            loses, self.loses = (self.loses, None) if is_send else (None, self.loses)
            if loses is False:
                await _lose(transport)
            try:
                result = self.world.answer(request.method, path, asked, dict(request.query), files)
            except No as no:
                return _answer(no.status, no.body, request.method, path)
            if loses:
                await _lose(transport)
            return web.Response(status=204) if result is None else _answer(200, result, request.method, path)

    async def file(self, request: web.Request) -> web.Response:
        content = self.world.files.get(request.match_info["number"])
        return web.Response(status=404) if content is None else web.Response(body=content)

    async def gateway(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async with self._held(request):
            line = _Line(self, socket, is_compressed=request.query.get("compress") == "zlib-stream")
            self.lines.append(line)
            try:
                await line.serve()
            finally:
                self.lines.remove(line)
                self.closed.append(socket.close_code)
                if line.session and socket.close_code in _CLEAN:
                    self.world.sessions.pop(line.session.id, None)
        return socket


class _Line:
    """A connection to the gateway."""

    def __init__(self, server: Server, socket: web.WebSocketResponse, *, is_compressed: bool) -> None:
        self.session: Session | None = None
        self._server = server
        self._socket = socket
        self._pack = zlib.compressobj() if is_compressed else None
        self._writing: asyncio.Task[None] | None = None

    async def send(self, frame: Json) -> None:
        text = json.dumps({"t": None, "s": None, "d": None, **frame})
        if self._pack is None:
            await self._socket.send_str(text)
        else:
            await self._socket.send_bytes(self._pack.compress(text.encode()) + self._pack.flush(zlib.Z_SYNC_FLUSH))

    async def serve(self) -> None:
        await self.send({"op": 10, "d": {"heartbeat_interval": self._server.heartbeat_ms}})
        try:
            async for message in self._socket:
                if message.type is WSMsgType.TEXT:
                    await self._take(json.loads(message.data))
        finally:
            if self._writing:
                self._writing.cancel()
                await asyncio.wait({self._writing})

    async def _take(self, frame: Json) -> None:
        self._server.frames.append(frame)
        match frame["op"]:
            case 1:
                await self.send({"op": 11})
            case 2:
                await self._identify(frame["d"])
            case 6:
                await self._resume(frame["d"])
            case _:
                await self._socket.close(code=4001)

    async def _identify(self, asked: Json) -> None:
        code = self._server.refuses_gateway or (4004 if asked["token"] != TOKEN else None)
        if code or asked["intents"] != _INTENTS:
            await self._socket.close(code=code or 4013)
            return
        self.session = self._server.world.begin()
        self._writing = asyncio.create_task(self._write(0))

    async def _resume(self, asked: Json) -> None:
        self.session = self._server.world.sessions.get(asked["session_id"])
        if self.session is None or asked["seq"] > len(self.session.events):
            await self.send({"op": 9, "d": False})
            return
        missed = self.session.events[asked["seq"] :]
        for event in missed:
            await self.send(event)
        self.session.add("RESUMED", {"_trace": []})
        self._writing = asyncio.create_task(self._write(asked["seq"] + len(missed)))

    async def _write(self, done: int) -> None:
        assert self.session
        while True:
            self.session.news.clear()
            for event in self.session.events[done:]:
                await self.send(event)
                done += 1
            await self.session.news.wait()


async def _lose(transport: asyncio.Transport) -> None:
    """The handler of a connection that is gone is cancelled."""
    transport.abort()
    await asyncio.Event().wait()


async def _content(request: web.Request) -> tuple[Any, list[tuple[str, bytes]]]:
    if not request.content_type.startswith("multipart/"):
        return (await request.json() if request.can_read_body else {}), []
    asked: Json = {}
    files: list[tuple[str, bytes]] = []
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        content = bytes(await part.read())
        if part.name == "payload_json":
            asked = json.loads(content)
        else:
            files.append((part.filename or "", content))
    return asked, files


def _answer(status: int, body: Any, method: str = "", path: str = "") -> web.Response:
    headers = {"Content-Type": "application/json", "Via": "1.1 google"}
    if status == 429:
        headers["Retry-After"] = str(body["retry_after"])
    else:
        headers |= {"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "4", "X-RateLimit-Reset-After": "0.1"}
        headers["X-RateLimit-Bucket"] = re.sub(r"\d+", "id", f"{method} {path}")
    return web.Response(status=status, body=json.dumps(body).encode(), headers=headers)


@asynccontextmanager
async def serving(world: World) -> AsyncGenerator[Server]:
    server = Server(world)
    app = web.Application(client_max_size=60_000_000)
    app.router.add_route("*", "/api/v10/{path:.*}", server.api)
    app.router.add_get("/gateway", server.gateway)
    app.router.add_get("/cdn/{number}", server.file)
    runner = web.AppRunner(app, shutdown_timeout=0.0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = world.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
