"""A server of the Bot API on the loopback, as https://core.telegram.org/bots/api documents it."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import BodyPartReader, web

from palaver.protocols.capabilities import HttpRequest, HttpResponse
from tests.platforms.telegram.world import TOKEN, No, World

__all__ = ["Server", "serving"]

_AGAIN = 0.01
"""Seconds until a call that was not answered well is made again."""
_SENDS = frozenset({"sendmessage", "senddocument", "sendphoto"})


class Server:
    """It answers for a world; connections to it can be cut."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.url = ""
        self.loses: bool | None = None
        """During the next send the connection is lost, after (True) or before it is shown."""
        self.goes_on = asyncio.Event()
        """While it is not set, sends are taken but not answered."""
        self.goes_on.set()
        self.calls_us: Callable[[HttpRequest], Awaitable[HttpResponse]] | None = None
        """Who is reached at the address of the webhook."""
        self.methods: list[str] = []
        """As they were called, in order."""
        self.waits = True
        """Whether a poll waits for news."""
        self.sends = 0
        """How many were begun."""
        self._transports: set[asyncio.Transport] = set()
        self._poll: asyncio.Event | None = None

    def cut(self) -> None:
        for transport in list(self._transports):
            transport.abort()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._transports.add(transport)
        try:
            return await self._answer(request, transport)
        finally:
            self._transports.discard(transport)

    async def _answer(self, request: web.Request, transport: asyncio.Transport) -> web.StreamResponse:
        method, asked = request.match_info["method"].lower(), await _parameters(request)
        self.methods.append(request.match_info["method"])
        if request.match_info["token"] != TOKEN:
            return _no(No(401, "Unauthorized"))
        try:
            if method == "getupdates":
                return _yes(await self._updates(asked))
            loses, self.loses = (self.loses, None) if method in _SENDS else (None, self.loses)
            if method in _SENDS:
                self.sends += 1
                await self.goes_on.wait()
            if loses is False:
                await _lost(transport)
            result = self.world.answer(method, asked)
            if loses:
                await _lost(transport)
            return _yes(result)
        except No as no:
            return _no(no)

    async def _updates(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """One reader at a time: a new one ends the wait of the one before it."""
        if self.world.webhook["url"]:
            raise No(
                409,
                "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete it first",
            )
        self.world.calls.append(("getupdates", asked))
        self.world.refuse("getupdates")
        if self._poll:
            self._poll.set()
        self._poll = ended = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(float(asked.get("timeout") or 0) if self.waits else 0):
                await self._news(asked, ended)
        return self.world.waiting(asked)

    async def _news(self, asked: dict[str, Any], ended: asyncio.Event) -> None:
        while not self.world.waiting(asked):
            self.world.news.clear()
            await _either(self.world.news, ended)
            if ended.is_set():
                raise No(
                    409,
                    "Conflict: terminated by other getUpdates request; make sure that only one instance is running",
                )

    async def file(self, request: web.Request) -> web.Response:
        content = self.world.files.get(request.match_info["path"].partition("/")[2])
        return web.Response(status=404) if content is None else web.Response(body=content)

    async def call(self) -> None:
        """Bring what is new to the webhook, one after the other, again and again until it is taken."""
        while True:
            self.world.news.clear()
            while self.world.webhook["url"] and self.world.updates:
                if not await self._brought(self.world.updates[0]):
                    await asyncio.sleep(_AGAIN)
            await self.world.news.wait()

    async def _brought(self, update: dict[str, Any]) -> bool:
        hook = self.world.webhook
        headers = {"x-telegram-bot-api-secret-token": hook["secret"], "content-type": "application/json"}
        try:
            reply = await self._call(HttpRequest(method="POST", headers=headers, body=json.dumps(update).encode()))
        except Exception:  # noqa: BLE001 - no matter what is wrong there, it is called again
            hook |= {"last_error_date": int(time.time()), "last_error_message": "Connection\nrefused"}
            return False
        if reply.status == 200 and update in self.world.updates:
            self.world.updates.remove(update)
        return reply.status == 200

    async def _call(self, call: HttpRequest) -> HttpResponse:
        if self.calls_us is None:
            raise ConnectionRefusedError
        return await self.calls_us(call)


async def _lost(transport: asyncio.Transport) -> None:
    """Anyone who answers on a connection that is gone is cancelled."""
    transport.abort()
    await asyncio.Event().wait()


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _parameters(request: web.Request) -> dict[str, Any]:
    """Form fields; anything that is no text is JSON in them."""
    if not request.content_type.startswith("multipart/"):
        return {name: _value(name, str(value)) for name, value in (await request.post()).items()}
    found: dict[str, Any] = {"uploads": {}}
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        name, content = part.name or "", await part.read(decode=True)
        if part.filename is not None:
            found["uploads"][name] = (part.filename, bytes(content))
        else:
            found[name] = _value(name, bytes(content).decode())
    attached = {
        field: found["uploads"][value.removeprefix("attach://")]
        for field, value in found.items()
        if str(value).startswith("attach://")
    }
    return {**found, "uploads": {**found["uploads"], **attached}}


def _value(name: str, text: str) -> Any:
    return text if name in {"text", "caption", "chat_id", "name", "url"} else _json(text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _yes(result: Any) -> web.Response:
    return web.json_response({"ok": True, "result": result})


def _no(no: No) -> web.Response:
    parameters = {"parameters": no.parameters} if no.parameters else {}
    return web.json_response(
        {"ok": False, "error_code": no.code, "description": no.words, **parameters}, status=no.code
    )


@asynccontextmanager
async def serving(world: World) -> AsyncGenerator[Server]:
    server = Server(world)
    app = web.Application(client_max_size=60_000_000)
    app.router.add_post("/bot{token}/{method}", server.answer)
    app.router.add_get("/file/bot{token}/{path:.*}", server.file)
    runner = web.AppRunner(app, shutdown_timeout=0.0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    calling = asyncio.create_task(server.call())
    try:
        yield server
    finally:
        calling.cancel()
        await asyncio.wait({calling})
        await runner.cleanup()
