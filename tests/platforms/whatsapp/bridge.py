"""A bridge on the loopback that speaks the documented frames, without a WhatsApp behind it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import WSMsgType, web

__all__ = ["OWN_LID", "OWN_NUMBER", "SECRET", "Bridge", "bridging"]

SECRET = "a secret of the bridge"  # noqa: S105
OWN_NUMBER = "4930123456"
OWN_LID = "987654321@lid"
Json = dict[str, Any]


@dataclass
class Bridge:
    url: str = ""
    state: Json = field(
        default_factory=lambda: {
            "state": "open",
            "ids": [f"{OWN_NUMBER}:7@s.whatsapp.net", f"{OWN_LID}"],
            "name": "Helper",
        }
    )
    unacked: dict[int, Json] = field(default_factory=dict[int, Json])
    """What was not acknowledged is sent again on the next connection."""
    sent: list[Json] = field(default_factory=list[Json])
    by_key: dict[str, str] = field(default_factory=dict[str, str])
    """Ids of what was sent: under one key, one message is shown."""
    frames: list[Json] = field(default_factory=list[Json])
    """What else the gateway said: reads, typing."""
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict[str, tuple[str, bytes]])
    log: list[Json] = field(default_factory=list[Json])
    """What was said and sent, in order."""
    errors: list[Json] = field(default_factory=list[Json])
    """What the next sends are answered with."""
    gone: set[str] = field(default_factory=set[str])
    loses: bool | None = None
    """During the next send the connection is lost, after (True) or before it is shown."""
    seqs: "count[int]" = field(default_factory=lambda: count(1))
    sockets: dict[web.WebSocketResponse, asyncio.Transport] = field(
        default_factory=dict[web.WebSocketResponse, asyncio.Transport]
    )

    # People

    async def say(self, frame: Json) -> None:
        seq = next(self.seqs)
        self.unacked[seq] = {"seq": seq, **frame}
        self.log.append(frame)
        await self.tell(self.unacked[seq])

    async def tell(self, frame: Json) -> None:
        for socket in list(self.sockets):
            with suppress(ConnectionError):  # cut, and not noticed yet
                await socket.send_json(frame)

    def cut(self) -> None:
        for transport in self.sockets.values():
            transport.abort()

    # The gateway

    @staticmethod
    def _refuse(request: web.Request) -> None:
        if request.headers.get("authorization") != f"Bearer {SECRET}":
            raise web.HTTPUnauthorized

    async def status(self, request: web.Request) -> web.Response:
        self._refuse(request)
        return web.json_response(self.state)

    async def file(self, request: web.Request) -> web.Response:
        self._refuse(request)
        found = self.files.get(request.match_info["handle"])
        return web.Response(status=404) if found is None else web.Response(body=found[1])

    async def upload(self, request: web.Request) -> web.Response:
        self._refuse(request)
        handle = f"up/{len(self.files)}"
        self.files[handle] = (request.content_type, await request.read())
        return web.json_response({"handle": handle})

    async def frames_of(self, request: web.Request) -> web.WebSocketResponse:
        self._refuse(request)
        socket = web.WebSocketResponse(max_msg_size=1 << 20)
        await socket.prepare(request)
        assert isinstance(request.transport, asyncio.Transport)
        self.sockets[socket] = request.transport
        try:
            await self._talk(socket)
        except ConnectionError:
            pass  # cut, and not noticed before a write
        finally:
            del self.sockets[socket]
        return socket

    async def _talk(self, socket: web.WebSocketResponse) -> None:
        await socket.send_json({"type": "state", **self.state})
        for frame in list(self.unacked.values()):
            await socket.send_json(frame)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await self._take(message.json(), socket)

    async def _take(self, frame: Json, socket: web.WebSocketResponse) -> None:
        match frame["type"]:
            case "ack":
                self.unacked.pop(frame["seq"], None)
            case "send":
                await self._send(frame, socket)
            case _:
                self.frames.append(frame)

    async def _send(self, frame: Json, socket: web.WebSocketResponse) -> None:
        loses, self.loses = self.loses, None
        if loses is False:
            self.sockets[socket].abort()
            return
        result: Json = {"type": "result", "ref": frame["ref"]}
        if self.errors:
            await socket.send_json({**result, **self.errors.pop(0)})
        elif frame["to"] in self.gone:
            await socket.send_json({**result, "error": "gone", "words": "not-authorized"})
        else:
            if frame["key"] not in self.by_key:
                self.by_key[frame["key"]] = f"3EB0{len(self.by_key)}"
                self.sent.append({**frame, "id": self.by_key[frame["key"]]})
                self.log.append(self.sent[-1])
            if loses:
                self.sockets[socket].abort()
                return
            await socket.send_json({**result, "id": self.by_key[frame["key"]]})


@asynccontextmanager
async def bridging() -> AsyncGenerator[Bridge]:
    bridge = Bridge()
    app = web.Application(client_max_size=60_000_000)
    app.router.add_get("/status", bridge.status)
    app.router.add_get("/files/{handle:.*}", bridge.file)
    app.router.add_post("/files", bridge.upload)
    app.router.add_get("/v1", bridge.frames_of)
    runner = web.AppRunner(app, shutdown_timeout=0.0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    bridge.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield bridge
    finally:
        bridge.cut()
        await runner.cleanup()
