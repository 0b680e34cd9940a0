"""A signal-cli daemon on the loopback, as signal-cli-jsonrpc(5) documents it, with Signal behind it.

It receives as with `--receive-mode on-connection`: messages wait at Signal until somebody listens, and what was
written to a listener is forgotten.
"""

import asyncio
import base64
import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from urllib.parse import unquote_plus

from aiohttp import web

from palaver.model.split import Unit

__all__ = ["ALICE", "GROUP_ID", "NUMBER", "UUID", "RpcError", "Server", "failed", "serving"]

Json = dict[str, Any]

NUMBER = "+15550100200"
UUID = "0f7b0a5e-0000-4000-8000-000000000001"
ALICE: Json = {"sourceNumber": "+15550100300", "sourceUuid": "a11ce000-0000-4000-8000-000000000002"}
GROUP_ID = "+/Group0000000000000000000000000000000000A8="
_STYLES = {"BOLD", "ITALIC", "SPOILER", "STRIKETHROUGH", "MONOSPACE"}
_RANGE = re.compile(r"(\d+):(\d+):(.+)")
_DATA_URI = re.compile(r"data:(.+?/.+?)?(;.+?=.+?)?(;base64)?,(.+)", re.DOTALL)
_LONGEST_STRING = 20_000_000


class RpcError(Exception):
    def __init__(self, code: int, message: str, results: list[Json] | None = None) -> None:
        super().__init__(message)
        response = {"timestamp": 1, "results": results}
        data = None if results is None else {"response": response}
        self.json = {"code": code, "message": message, "data": data}


def failed(kind: str, **more: Any) -> list[Json]:
    address = {"uuid": ALICE["sourceUuid"], "number": ALICE["sourceNumber"], "username": None}
    return [{"recipientAddress": address, "type": kind, **more}]


class Server:
    def __init__(self) -> None:
        self.url = ""
        self.accounts: list[str] = [NUMBER]
        self.serves_one = False
        """It was started with `-a`."""
        self.groups: dict[str, str] = {GROUP_ID: "Dev"}
        self.gone: set[str] = set()
        """Groups that we are no member of, and people who have left Signal."""
        self.waiting: list[Json] = []
        """What Signal has for us."""
        self.written: list[list[Json]] = []
        """What was written to each connection, and with each answer to `receive`, in order."""
        self.sent: list[Json] = []
        """Our messages as people see them, in order."""
        self.files: list[tuple[str, str, bytes]] = []
        self.attachments: dict[str, bytes] = {}
        self.calls: list[tuple[str, Json]] = []
        self.errors: list[RpcError] = []
        """What the next sends are answered with."""
        self.loses: bool | None = None
        """During the next send the connection is lost, after (True) or before it is shown."""
        self.status: int | None = None
        """What every request is answered with."""
        self.events_status: int | None = None
        self.refused = 0
        """How many requests were answered with the status."""
        self.paths: list[str] = []
        self.clock = count(1_700_000_000_000, 1000)
        self._listeners: dict[int, asyncio.Event] = {}
        self._transports: set[asyncio.Transport] = set()
        self._numbers = count()
        self._changed = asyncio.Event()
        self.methods: dict[str, Callable[[Json], Any]] = {
            "version": lambda _: {"version": "0.14.6"},
            "listAccounts": self._list_accounts,
            "listContacts": lambda _: [{"number": NUMBER, "uuid": UUID, "name": ""}],
            "send": self._send,
            "sendTyping": self._place,
            "receive": self._receive,
            "sendReceipt": lambda _: {"timestamp": next(self.clock), "results": []},
            "getAttachment": self._attachment,
        }

    # People

    def receives(
        self, sender: Json, data: Json, *, name: str = "alice", kind: str = "dataMessage", **more: Any
    ) -> Json:
        """Bring a message; return its envelope."""
        sent = next(self.clock)
        about = {"source": sender.get("sourceNumber"), "sourceName": name, "sourceDevice": 1, "timestamp": sent}
        content = {"timestamp": sent, "message": None, "expiresInSeconds": 0, "viewOnce": False, **data}
        whole = {"targetSentTimestamp": more["target"], "dataMessage": content} if kind == "editMessage" else content
        envelope = {"sourceNumber": None, "sourceUuid": None, **sender, **about, kind: whole}
        self.push({"envelope": envelope, "account": NUMBER})
        return envelope

    def push(self, event: Json) -> None:
        self.waiting.append(event)
        for news in self._listeners.values():
            news.set()

    def asked(self, method: str) -> list[Json]:
        return [params for name, params in self.calls if name == method]

    async def was_asked(self, method: str, times: int = 1) -> None:
        async with asyncio.timeout(60):
            while len(self.asked(method)) < times:
                await self._changed.wait()

    # Connections

    def cut(self) -> None:
        self._listeners.clear()
        for transport in list(self._transports):
            transport.abort()

    async def unheard(self) -> None:
        """Wait until it has noticed that nobody listens."""
        async with asyncio.timeout(60):
            while self._listeners:
                await self._changed.wait()

    @property
    def is_heard(self) -> bool:
        return bool(self._listeners)

    async def heard(self) -> None:
        async with asyncio.timeout(60):
            while not self._listeners:
                await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def events(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path_qs)
        if status := self.status or self.events_status:
            self.refused += 1
            return web.Response(status=status)
        if not self.serves_one and request.query.get("account", NUMBER) not in self.accounts:
            return web.Response(status=400)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        number, news, written = next(self._numbers), asyncio.Event(), list[Json]()
        self._listeners[number] = news
        self.written.append(written)
        self._remember(request)
        self._notify()
        try:
            await response.write(b":\n")
            await self._tell(response, number, news, written)
        finally:
            self._listeners.pop(number, None)
            self._notify()
        return response

    async def _tell(self, response: web.StreamResponse, number: int, news: asyncio.Event, written: list[Json]) -> None:
        while number in self._listeners:
            news.clear()
            while self.waiting and number in self._listeners:
                event = self.waiting.pop(0)
                written.append(event)
                text = (
                    event
                    if isinstance(event, bytes)
                    else json.dumps(event, ensure_ascii=False).encode("utf-8", "surrogatepass")
                )
                await response.write(b"event:receive\ndata:" + text + b"\n\n")
            await news.wait()

    def _remember(self, request: web.Request) -> asyncio.Transport:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._transports.add(transport)
        return transport

    # JSON-RPC

    async def rpc(self, request: web.Request) -> web.Response:
        if self.status:
            self.refused += 1
            return web.Response(status=self.status)
        if request.content_type != "application/json":
            return web.Response(status=415)
        transport = self._remember(request)
        asked = json.loads(await request.text())
        assert asked["jsonrpc"] == "2.0"
        loses, self.loses = (self.loses, None) if asked["method"] == "send" else (None, self.loses)
        if loses is False:
            await _lost(transport)
        try:
            answer = {"result": self._answer(asked["method"], asked.get("params") or {})}
        except RpcError as error:
            answer = {"error": error.json}
        if loses:
            await _lost(transport)
        return web.json_response({"jsonrpc": "2.0", **answer, "id": asked["id"]})

    def _answer(self, method: str, params: Json) -> Any:
        self.calls.append((method, params))
        self._notify()
        if method not in self.methods or (method == "listAccounts" and self.serves_one):
            raise RpcError(-32601, "Method not implemented")
        if not self.serves_one and method != "listAccounts" and params.get("account") not in self.accounts:
            raise RpcError(-32602, "Specified account does not exist")
        if method == "send" and self.errors:
            raise self.errors.pop(0)
        return self.methods[method](params)

    def _receive(self, params: Json) -> list[Json]:
        """Without the time that it waits for more."""
        if self.serves_one and "account" in params:
            raise RpcError(-32600, 'Unrecognized field "account"')
        if self._listeners:
            raise RpcError(-1, "Receive command cannot be used if messages are already being received.")
        found, self.waiting = self.waiting[: params["maxMessages"]], self.waiting[params["maxMessages"] :]
        if found:
            self.written.append(found)
        return found

    def _list_accounts(self, _: Json) -> list[Json]:
        return [{"number": number} for number in self.accounts]

    def _place(self, params: Json) -> Json:
        group = params.get("groupId")
        if group is not None and group not in self.groups:
            raise RpcError(-1, f"Group not found: {group}")
        if group in self.gone:
            raise RpcError(-1, f"User is not a member in group: {self.groups[group]} ({group})")
        if group is None and not params.get("recipient"):
            raise RpcError(-1, "No recipients given")
        if group is None and params["recipient"][0] in self.gone:
            raise RpcError(-1, "Failed to send message", failed("UNREGISTERED_FAILURE"))
        return {"timestamp": next(self.clock), "results": failed("SUCCESS")}

    def _send(self, params: Json) -> Json:
        text = params.get("message") or ""
        _check_ranges(text, params.get("textStyle") or [], _STYLES)
        _check_ranges(text, params.get("mention") or [], None)
        if "quoteTimestamp" in params and "quoteAuthor" not in params:
            raise RpcError(-1, "Quote author parameter is missing")
        if not text and not params.get("attachments"):
            raise RpcError(
                -1, "Sending empty message is not allowed, either a message, attachment or sticker must be given."
            )
        found = self._place(params)
        attachments: list[str] = params.get("attachments") or []
        self.files += [_file(uri) for uri in attachments]
        chat = params.get("groupId") or params["recipient"][0]
        if "editTimestamp" in params:
            self._edit(params["editTimestamp"], text, found["timestamp"])
        else:
            self.sent.append({**params, "chat": chat, "text": text, "timestamp": found["timestamp"], "versions": 1})
        return found

    def _edit(self, target: int, text: str, now: int) -> None:
        """Apps ignore an edit of anything but the last version."""
        for message in self.sent:
            if message.get("latest", message["timestamp"]) == target and message["versions"] < 11:
                message |= {"text": text, "latest": now, "versions": message["versions"] + 1}

    def _attachment(self, params: Json) -> Json:
        if not ({"recipient", "groupId"} & params.keys()) or params["id"] not in self.attachments:
            raise RpcError(-1, f"Could not find attachment with ID: {params['id']}")
        return {"data": base64.b64encode(self.attachments[params["id"]]).decode()}


def _check_ranges(text: str, ranges: list[str], allowed: set[str] | None) -> None:
    for each in ranges:
        found = _RANGE.fullmatch(each)
        if not found or (allowed and found[3] not in allowed):
            raise RpcError(-1, f"Invalid style: {each}")
        start, length = int(found[1]), int(found[2])
        assert 0 < length <= Unit.UTF16.measure(text) - start


def _file(uri: str) -> tuple[str, str, bytes]:
    if len(uri) > _LONGEST_STRING:
        raise RpcError(-32700, "String value length (20000001) exceeds the maximum allowed (20000000)")
    found = _DATA_URI.fullmatch(uri)
    if not found:
        raise RpcError(-32603, "The given string is not a valid data URI. (IllegalArgumentException)")
    name = unquote_plus((found[2] or "").removeprefix(";filename="))
    return name, found[1], base64.b64decode(found[4], validate=True)


async def _lost(transport: asyncio.Transport) -> None:
    """Anyone who answers on a connection that is gone is cancelled."""
    transport.abort()
    await asyncio.Event().wait()


@asynccontextmanager
async def serving() -> AsyncGenerator[Server]:
    server = Server()
    app = web.Application(client_max_size=60_000_000)
    app.router.add_post("/api/v1/rpc", server.rpc)
    app.router.add_get("/api/v1/events", server.events)
    runner = web.AppRunner(app, shutdown_timeout=0.0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
