"""A server of the Cloud API on the loopback, as Meta documents it: messages, media, and webhooks that come again."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import BodyPartReader, web

from palaver.protocols.capabilities import HttpRequest, HttpResponse

__all__ = ["APP_SECRET", "DISPLAY_NUMBER", "NUMBER_ID", "TOKEN", "VERIFY_TOKEN", "No", "Server", "serving", "signed"]

TOKEN = "EAAJB-token"  # noqa: S105
APP_SECRET = "9b2f5d0c"  # noqa: S105
VERIFY_TOKEN = "apricot"  # noqa: S105
NUMBER_ID = "106540352242922"
DISPLAY_NUMBER = "15550783881"
_AGAIN = 0.01
"""Seconds until a webhook that was not answered with 200 is called again."""
_MAX_TEXT, _MAX_CAPTION, _MAX_QUESTION, _MAX_TITLE, _MAX_BUTTONS = 4096, 1024, 1024, 20, 3
Json = dict[str, Any]


@dataclass
class No(Exception):
    """An error answer of the Graph API."""

    status: int
    code: int
    message: str = "(#100) Invalid parameter"
    details: str = ""


def signed(body: bytes, secret: str = APP_SECRET) -> dict[str, str]:
    return {"x-hub-signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}


@dataclass
class Server:
    url: str = ""
    sent: list[Json] = field(default_factory=list[Json])
    """What people see of us, in order, with an `id` each."""
    reads: list[Json] = field(default_factory=list[Json])
    media: dict[str, tuple[str, str, bytes]] = field(default_factory=dict[str, tuple[str, str, bytes]])
    """Name, type and content of a file, by id."""
    refuses: list[No] = field(default_factory=list[No])
    """The errors of the next sends."""
    gone: set[str] = field(default_factory=set[str])
    silent: set[str] = field(default_factory=set[str])
    """People who have not written for more than 24 hours: WhatsApp says so at once."""
    trouble: No | None = None
    loses: bool | None = None
    """During the next send the connection is lost, after (True) or before it is shown."""
    calls_us: Callable[[HttpRequest], Awaitable[HttpResponse]] | None = None
    """Who is reached at the address of the webhook."""
    queue: list[Json] = field(default_factory=list[Json])
    """Webhooks that were not answered with 200 yet."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    # Webhooks

    def push(self, *messages: Json, contacts: tuple[Json, ...] = (), statuses: tuple[Json, ...] = ()) -> None:
        """Call the webhook once with all of it."""
        value = {
            "messaging_product": "whatsapp",
            "metadata": {"display_phone_number": DISPLAY_NUMBER, "phone_number_id": NUMBER_ID},
            **({"contacts": list(contacts)} if contacts else {}),
            **({"messages": list(messages)} if messages else {}),
            **({"statuses": list(statuses)} if statuses else {}),
        }
        self.queue.append(
            {
                "object": "whatsapp_business_account",
                "entry": [{"id": "102290129340398", "changes": [{"value": value, "field": "messages"}]}],
            }
        )
        self.news.set()

    async def call(self) -> None:
        """One after the other, again and again until it is answered with 200."""
        while True:
            self.news.clear()
            while self.queue:
                if not await self._called(self.queue[0]):
                    await asyncio.sleep(_AGAIN)
            await self.news.wait()

    async def _called(self, update: Json) -> bool:
        body = json.dumps(update).encode()
        request = HttpRequest(method="POST", headers={"content-type": "application/json", **signed(body)}, body=body)
        try:
            reply = self.calls_us and await self.calls_us(request)
        except Exception:  # noqa: BLE001 - no matter what is wrong there, it is called again
            return False
        if reply and reply.status == 200:
            self.queue.remove(update)
            return True
        return False

    # The Graph API

    async def answer(self, request: web.Request) -> web.StreamResponse:
        try:
            self._authorize(request)
            return await self._answer(request)
        except No as no:
            error = {"message": no.message, "type": "OAuthException", "code": no.code, "fbtrace_id": "A"}
            data = {"error_data": {"messaging_product": "whatsapp", "details": no.details}} if no.details else {}
            return web.json_response({"error": error | data}, status=no.status)

    def _authorize(self, request: web.Request) -> None:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            raise No(401, 190, "Error validating access token: Session has expired")
        if self.trouble:
            raise self.trouble

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        match request.method, request.match_info["path"].split("/"):
            case "GET", ["file", media_id]:
                name, media_type, content = self.media[media_id]
                return web.Response(body=content, content_type=media_type, headers={"x-name": name.encode().hex()})
            case "GET", [found] if found == NUMBER_ID:
                about = {"display_phone_number": "+1 555-078-3881", "verified_name": "Lucky Shrub", "id": NUMBER_ID}
                return web.json_response(about)
            case "GET", [media_id] if media_id in self.media:
                return web.json_response(
                    {
                        "messaging_product": "whatsapp",
                        "url": f"{self.url}/file/{media_id}",
                        "mime_type": self.media[media_id][1],
                        "file_size": str(len(self.media[media_id][2])),
                        "id": media_id,
                    }
                )
            case "POST", [found, "media"] if found == NUMBER_ID:
                return web.json_response({"id": await self._upload(request)})
            case "POST", [found, "messages"] if found == NUMBER_ID:
                return await self._message(request)
            case _:
                raise No(400, 100, "Unsupported get request. Object with ID '1' does not exist")

    async def _upload(self, request: web.Request) -> str:
        fields: Json = {}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            content = bytes(await part.read(decode=True))
            fields[part.name or ""] = (part.filename, content) if part.filename is not None else content.decode()
        name, content = fields["file"]
        if fields["messaging_product"] != "whatsapp" or "/" not in fields["type"]:
            raise No(400, 100)
        media_id = str(next(self.numbers))
        self.media[media_id] = (name, fields["type"], content)
        return media_id

    async def _message(self, request: web.Request) -> web.StreamResponse:
        said: Json = await request.json()
        if said.get("messaging_product") != "whatsapp":
            raise No(400, 100, "(#100) The parameter messaging_product is required.")
        if said.get("status") == "read":
            self.reads.append(said)
            return web.json_response({"success": True})
        loses, self.loses = self.loses, None
        if loses is False:
            await _lose(request)
        to = str(said.get("to") or said.get("recipient"))
        self._refuse(said, to)
        message_id = f"wamid.{next(self.numbers)}"
        self.sent.append({**said, "id": message_id, "chat": to})
        if loses:
            await _lose(request)
        contacts = [{"input": to, "wa_id": to}]
        return web.json_response(
            {"messaging_product": "whatsapp", "contacts": contacts, "messages": [{"id": message_id}]}
        )

    def _refuse(self, said: Json, to: str) -> None:
        if self.refuses:
            raise self.refuses.pop(0)
        if to in self.gone:
            raise No(400, 131026, "(#131026) Message undeliverable")
        if to in self.silent and said["type"] != "template":
            raise No(400, 131047, "(#131047) Re-engagement message", "more than 24 hours have passed")
        _check(said)


def _check(said: Json) -> None:
    """Refuse what is too long, and what is not there."""
    kind = str(said["type"])
    body: Json = said[kind]
    if kind == "text" and not 0 < len(body["body"]) <= _MAX_TEXT:
        raise No(400, 100, "(#100) Param text['body'] must be at most 4096 characters long.")
    if kind == "interactive":
        titles = [button["reply"]["title"] for button in body["action"]["buttons"]]
        fits = len(titles) <= _MAX_BUTTONS and all(0 < len(title) <= _MAX_TITLE for title in titles)
        if not fits or len(body["body"]["text"]) > _MAX_QUESTION:
            raise No(400, 131009, "(#131009) Parameter value is not valid")
    if kind == "template" and any(
        character in parameter["text"] for parameter in body["components"][0]["parameters"] for character in "\n\t"
    ):
        raise No(400, 132018, "Param text cannot have new-line/tab characters")
    if len(body.get("caption", "")) > _MAX_CAPTION:
        raise No(400, 100)


async def _lose(request: web.Request) -> None:
    """A handler whose connection is gone is cancelled."""
    assert request.transport
    request.transport.abort()
    await asyncio.Event().wait()


@asynccontextmanager
async def serving() -> AsyncGenerator[Server]:
    server = Server()
    app = web.Application(client_max_size=60_000_000)
    app.router.add_route("*", "/v25.0/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v25.0"
    calling = asyncio.create_task(server.call())
    try:
        yield server
    finally:
        calling.cancel()
        await asyncio.wait({calling})
        await runner.cleanup()
