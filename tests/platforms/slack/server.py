"""Slack on the loopback: its Web API, its files, and Socket Mode with envelopes that come again unless acknowledged."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from aiohttp import WSMsgType, web

from tests.platforms.slack.world import BOT_TOKEN, Json, No, World

__all__ = ["Server", "serving"]


class Server:
    """It answers for a world; connections to it can be cut."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.url = ""
        self.loses: bool | None = None
        """During the next send the connection is lost, after (True) or before it is shown."""
        self.hides_files = False
        """The app may not read files: their addresses lead to a login page."""
        self.links = 0
        """How many socket connections were made so far."""
        self.acknowledged: list[Json] = []
        self._tickets: set[str] = set()
        self._numbers = count(1)
        self._transports: set[asyncio.Transport] = set()
        self._sockets: list[web.WebSocketResponse] = []

    def cut(self) -> None:
        for transport in list(self._transports):
            transport.abort()

    async def say(self, frame: Any) -> None:
        """Send a frame on every open connection."""
        for socket in self._sockets:
            await socket.send_str(frame if isinstance(frame, str) else json.dumps(frame))

    # The Web API

    async def answer(self, request: web.Request) -> web.StreamResponse:
        transport = _transport(request)
        self._transports.add(transport)
        try:
            return await self._answer(request, transport)
        finally:
            self._transports.discard(transport)

    async def _answer(self, request: web.Request, transport: asyncio.Transport) -> web.StreamResponse:
        method, token = request.match_info["method"], request.headers.get("authorization", "").removeprefix("Bearer ")
        asked = await _arguments(request)
        is_send = method in {"chat.postMessage", "files.completeUploadExternal"}
        loses, self.loses = (self.loses, None) if is_send else (None, self.loses)
        if loses is False:
            await _lose(transport)
        try:
            answer = self.world.answer(method, token, asked)
        except No as no:
            headers = {"Retry-After": str(no.retry_after)} if no.retry_after is not None else {}
            if not no.code:
                return web.Response(status=no.status, text="<html>Sorry!</html>", content_type="text/html")
            return web.json_response({"ok": False, "error": no.code, **no.more}, status=no.status, headers=headers)
        if loses:
            await _lose(transport)
        return web.json_response({"ok": True, **answer, **(self.open() if method == "apps.connections.open" else {})})

    def open(self) -> Json:
        ticket = f"t{next(self._numbers)}"
        self._tickets.add(ticket)
        return {"url": f"{self.url.replace('http', 'ws')}/link?ticket={ticket}"}

    async def upload(self, request: web.Request) -> web.Response:
        self.world.contents[request.match_info["id"]] = await request.read()
        return web.Response(text="OK - 1")

    async def file(self, request: web.Request) -> web.Response:
        if self.hides_files or request.headers.get("authorization") != f"Bearer {BOT_TOKEN}":
            raise web.HTTPFound("/login")
        content = self.world.contents.get(request.match_info["id"])
        return web.Response(status=404) if content is None else web.Response(body=content)

    # Socket Mode

    async def link(self, request: web.Request) -> web.StreamResponse:
        """A ticket opens one connection."""
        if request.query["ticket"] not in self._tickets:
            return web.Response(status=401)
        self._tickets.discard(request.query["ticket"])
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.links += 1
        transport = _transport(request)
        self._transports.add(transport)
        self._sockets.append(socket)
        sending = asyncio.create_task(self._deliver(socket))
        try:
            await self._hear(socket)
        finally:
            sending.cancel()
            self._sockets.remove(socket)
            self._transports.discard(transport)
        return socket

    async def _deliver(self, socket: web.WebSocketResponse) -> None:
        about = {"host": "applink-1", "started": "2026-01-01 00:00:00.000", "build_number": 1}
        info = {"app_id": "A0APP"}
        await socket.send_json({"type": "hello", "num_connections": 1, "connection_info": info, "debug_info": about})
        delivered: dict[int, Json] = {}
        while True:
            self.world.news.clear()
            for envelope in list(self.world.envelopes):
                if id(envelope) in delivered:
                    continue
                delivered[id(envelope)] = envelope
                if "envelope_id" in envelope:
                    again = int(envelope.get("retry_attempt", 0)) + 1
                    envelope |= {"retry_attempt": again, "retry_reason": "timeout"}
                envelope["envelope_id"] = f"e-{next(self._numbers)}"
                await socket.send_json(envelope)
            await self.world.news.wait()

    async def _hear(self, socket: web.WebSocketResponse) -> None:
        async for frame in socket:
            if frame.type is WSMsgType.TEXT:
                said = json.loads(frame.data)
                self.acknowledged.append(said)
                kept = [each for each in self.world.envelopes if each.get("envelope_id") != said.get("envelope_id")]
                self.world.envelopes[:] = kept


async def _lose(transport: asyncio.Transport) -> None:
    transport.abort()
    await asyncio.Event().wait()


def _transport(request: web.Request) -> asyncio.Transport:
    transport = request.transport
    assert isinstance(transport, asyncio.Transport)
    return transport


async def _arguments(request: web.Request) -> Json:
    if request.content_type == "application/json":
        return await request.json()
    form = {**request.query, **{name: str(value) for name, value in (await request.post()).items()}}
    return {name: json.loads(value) if name in {"files", "blocks"} else value for name, value in form.items()}


@asynccontextmanager
async def serving(world: World) -> AsyncGenerator[Server]:
    server = Server(world)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/api/{method}", server.answer)
    app.router.add_post("/upload/{id}", server.upload)
    app.router.add_get("/files/{id}", server.file)
    app.router.add_get("/link", server.link)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = world.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        server.cut()
        await runner.cleanup()
