"""A BlueBubbles server on the loopback: its REST API v1 and its webhooks, as its documentation and source have them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from palaver.protocols import HttpRequest, HttpResponse
from tests.platforms.imessage.world import US, Json, Mac, No, serialized

__all__ = ["PASSWORD", "Server", "serving"]

PASSWORD = "open sesame"  # noqa: S105
_METHODS = {"apple-script", "private-api"}
_EVENTS = {"*", "new-message", "updated-message"}


class Server:
    """It answers for a Mac; connections to it can be cut."""

    def __init__(self, mac: Mac) -> None:
        self.mac = mac
        self.url = ""
        self.loses: bool | None = None
        """During the next send the connection is lost, after (True) or before it is shown."""
        self.refuses: list[No | web.Response] = []
        """What the next sends are answered instead."""
        self.goes_on = asyncio.Event()
        """While it is not set, sends are shown but not answered."""
        self.goes_on.set()
        self.is_asked = asyncio.Event()
        """Somebody has asked for messages."""
        self.asked: list[str] = []
        self.webhooks: dict[int, Json] = {}
        self.calls_us: Callable[[HttpRequest], Awaitable[HttpResponse]] | None = None
        """Who is reached at the address of the webhook."""
        self._sending: set[str] = set()
        self._transports: set[asyncio.Transport] = set()

    def cut(self) -> None:
        for transport in list(self._transports):
            transport.abort()

    async def call(self, event: str, message: Json) -> None:
        """Call the webhooks, once: what goes wrong is only logged. Calls say less than the API."""
        parts = ("chats", "attachments") if event == "new-message" else ("attachments",)
        body = json.dumps({"type": event, "data": serialized(message, parts)}).encode()
        for hook in self.webhooks.values():
            if self.calls_us and {"*", event} & set(hook["events"]):
                query = dict(parse_qsl(urlsplit(str(hook["url"])).query))
                await self.calls_us(HttpRequest(method="POST", query=query, body=body))

    # The API

    async def answer(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._transports.add(transport)
        try:
            return await self._answer(request, transport)
        except No as no:
            return web.json_response(no.body, status=no.status)
        finally:
            self._transports.discard(transport)

    async def _answer(self, request: web.Request, transport: asyncio.Transport) -> web.StreamResponse:
        if request.query.get("password") != PASSWORD:
            raise No(401, "Unauthorized", kind="Authentication Error")
        path = request.path.removeprefix("/api/v1/")
        self.asked.append(f"{request.method} {path}")
        match request.method, path.split("/"):
            case "POST", ["message", ("text" | "attachment") as kind]:
                return await self._send(request, kind, transport)
            case "GET", ["attachment", guid, "download"]:
                return web.Response(body=_found(self.mac.files.get(guid)))
            case _, ["webhook", *rest]:
                return _yes(await self._webhook(request, rest))
            case method, parts:
                return _yes(await self._look_up(request, method, parts))

    async def _look_up(self, request: web.Request, method: str, parts: list[str]) -> object:
        match method, parts:
            case "GET", ["server", "info"]:
                return self._info()
            case "POST", ["message", "query"]:
                self.is_asked.set()
                return self.mac.query(_checked_query(await request.json()))
            case "GET", ["message", guid]:
                return serialized(_found(self.mac.find(guid)), request.query["with"].split(","))
            case "POST", ["contact", "query"]:
                names, asked = self.mac.contacts, (await request.json())["addresses"]
                return [{"displayName": names[each]} for each in asked if each in names]
            case "POST", ["chat", guid, ("typing" | "read") as action]:
                self._need_private_api()
                (self.mac.typing if action == "typing" else self.mac.read).append(guid)
                return None
            case _:
                raise No(404, "Not Found", kind="Database Error")

    def _info(self) -> Json:
        return {
            "computer_id": "mac.local",
            "os_version": "15.5.0",
            "server_version": "1.9.9",
            "private_api": self.mac.has_private_api,
            "helper_connected": self.mac.has_private_api,
            "detected_imessage": US,
        }

    def _need_private_api(self) -> None:
        if not self.mac.has_private_api:
            raise No(500, "iMessage Private API Helper is not connected!")

    async def _webhook(self, request: web.Request, rest: list[str]) -> object:
        match request.method, rest:
            case "GET", []:
                return list(self.webhooks.values())
            case "POST", []:
                asked = await request.json()
                if not asked["url"].startswith("http") or not set(asked["events"]) <= _EVENTS:
                    raise No(400, "Invalid webhook event", kind="Validation Error")
                number = max(self.webhooks, default=0) + 1
                self.webhooks[number] = {"id": number, "url": asked["url"], "events": asked["events"]}
                return self.webhooks[number]
            case "DELETE", [number]:
                return self.webhooks.pop(int(number))
            case _:
                raise No(404, "Not Found", kind="Database Error")

    async def _send(self, request: web.Request, kind: str, transport: asyncio.Transport) -> web.StreamResponse:
        asked: Mapping[str, Any] = await request.json() if kind == "text" else await request.post()
        self._check_send(asked, kind)
        if self.refuses:
            refusal = self.refuses.pop(0)
            if isinstance(refusal, No):
                raise refusal
            return refusal
        loses, self.loses = self.loses, None
        if loses is False:
            await _lost(transport)
        key = str(asked["tempGuid"])
        self._sending.add(key)
        try:
            message = self._show(asked, kind)
            await self.goes_on.wait()
        finally:
            self._sending.discard(key)
        if loses:
            await _lost(transport)
        return _yes({**message, "tempGuid": key})

    def _check_send(self, asked: Mapping[str, Any], kind: str) -> None:
        if asked["method"] not in _METHODS or not asked["tempGuid"] or not asked["chatGuid"]:
            raise No(400, "A 'tempGuid' is required", kind="Validation Error")
        if kind == "text" and not asked["message"]:
            raise No(400, "A 'message' is required when sending via AppleScript", kind="Validation Error")
        if asked["tempGuid"] in self._sending:
            raise No(400, f"Message is already queued to be sent! (Temp GUID: {asked['tempGuid']})")
        if asked["method"] == "private-api" or "selectedMessageGuid" in asked:
            self._need_private_api()
        if asked["chatGuid"] in self.mac.gone:
            words = "Chat does not exist!" if asked["method"] == "private-api" else "Can’t get chat id. (-1728)"
            raise No(500, words)

    def _show(self, asked: Mapping[str, Any], kind: str) -> Json:
        self.mac.replies.append(asked.get("selectedMessageGuid"))
        message = self.mac.add(asked["chatGuid"], asked.get("message", ""), sender=None)
        if kind == "attachment":
            upload = asked["attachment"]
            self.mac.attach(message, [(asked["name"], upload.content_type, upload.file.read())])
        return message


def _checked_query(asked: Json) -> Json:
    if asked.get("sort", "ASC") not in {"ASC", "DESC"} or not 1 <= asked.get("limit", 100) <= 1000:
        raise No(400, "The limit may not be greater than 1000.", kind="Validation Error")
    if asked.get("after", 0) < 0:
        raise No(400, "The after must be at least 0.", kind="Validation Error")
    return {"limit": 100, **asked}


def _found(found: Any) -> Any:
    if found is None:
        raise No(404, "It does not exist!", kind="Database Error")
    return found


def _yes(data: object) -> web.Response:
    return web.json_response({"status": 200, "message": "Success", "data": data})


async def _lost(transport: asyncio.Transport) -> None:
    transport.abort()
    await asyncio.Event().wait()


@asynccontextmanager
async def serving(mac: Mac) -> AsyncGenerator[Server]:
    server = Server(mac)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/api/v1/{path:.*}", server.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
