"""Feishu on the loopback, as its documentation describes it, and a person there."""

import asyncio
import hashlib
import html
import json
import os
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from aiohttp import web
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from palaver.platforms.feishu.adapter import FeishuAdapter, FeishuOptions
from palaver.platforms.feishu.stream import Frame
from palaver.protocols import (
    Adapter,
    HttpRequest,
    NewFile,
    PlatformBusy,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    Source,
    TargetGone,
)
from palaver.testkit.fake_server import Refusal
from tests.platforms.called import ACCOUNT, CalledChat, Json, Loopback, No, Sent, forget_names, reached, read_form

APP_ID, SECRET, KEY, VERIFY = "cli_9f5343c580712544", "s3cret", "test key", "v-token"
US, ALICE, UNION = "ou_bot", "ou_7d8a6e6df7621556ce0d21922b676706", "on_8ed6aa67826108097d9ee143816345"
CHAT, GROUP_CHAT = "oc_p2p", "oc_5ad11d72b830411d72b836c20"
_MAX_CONTENT = 30_000


def encrypted(text: str, key: str = KEY) -> str:
    iv, plain = os.urandom(16), text.encode()
    size = 16 - len(plain) % 16
    encryptor = Cipher(algorithms.AES(hashlib.sha256(key.encode()).digest()), modes.CBC(iv)).encryptor()
    return b64encode(iv + encryptor.update(plain + bytes([size]) * size) + encryptor.finalize()).decode()


def call(event: object, key: str = KEY, *, seals: bool = True) -> HttpRequest:
    """Return a callback, encrypted and signed."""
    text = json.dumps(event)
    body = json.dumps({"encrypt": encrypted(text, key)}).encode() if seals else text.encode()
    signature = hashlib.sha256(b"1700000000" + b"n" + key.encode() + body).hexdigest()
    stamps = {"x-lark-request-timestamp": "1700000000", "x-lark-request-nonce": "n", "x-lark-signature": signature}
    return HttpRequest(method="POST", headers=stamps, body=body)


def event_of(kind: str, event: Json, number: int = 1) -> Json:
    header = {"event_id": f"e{number}", "event_type": kind, "create_time": "1603977298000000", "token": VERIFY}
    return {"schema": "2.0", "header": {**header, "app_id": APP_ID}, "event": event}


def options_of(url: str = "https://open.feishu.cn", **more: Any) -> FeishuOptions:
    given = {"app_id": APP_ID, "app_secret": SECRET, "encrypt_key": KEY, "verification_token": VERIFY, "api_url": url}
    return FeishuOptions.model_validate({**given, **more})


@dataclass
class Feishu(Loopback):
    busy: ClassVar[No] = No({"code": 230020, "msg": "This operation triggers the frequency limit."}, 400)
    closed: ClassVar[No] = No({"code": 230002, "msg": "Bot/User can NOT be out of the chat."}, 400)
    wrong: ClassVar[No] = No({"code": 10014, "msg": "app secret invalid"})
    uuids: dict[str, str] = field(default_factory=dict[str, str])
    quoted: list[str] = field(default_factory=list[str])
    """The message that each of ours is a reply to, if it is one."""
    events: list[tuple[bytes, str]] = field(default_factory=list[tuple[bytes, str]])
    """What the long connection brings, and the sender's name, until it is acknowledged."""
    lines: list[web.WebSocketResponse] = field(default_factory=list[web.WebSocketResponse])
    forbids: No | None = None
    """How it refuses a long connection."""
    pings: int = 0
    parts: int = 1
    """In how many frames each event comes."""

    async def api(self, method: str, path: str, request: web.Request) -> object:  # noqa: C901, PLR0911, PLR0912 - a case for each path
        if path.endswith("/tenant_access_token/internal"):
            asked = await request.json()
            if (asked["app_id"], asked["app_secret"]) != (APP_ID, SECRET):
                raise No({"code": 10014, "msg": "app secret invalid"})
            return {"code": 0, "msg": "ok", "tenant_access_token": self.new_token(), "expire": 7200}
        if path == "/callback/ws/endpoint":
            asked = await request.json()
            assert asked == {"AppID": APP_ID, "AppSecret": SECRET}
            if self.forbids:
                raise self.forbids
            url = f"ws{self.url.removeprefix('http')}/stream?device_id=d1&service_id=33554678"
            return {"code": 0, "msg": "", "data": {"URL": url, "ClientConfig": {"PingInterval": 120}}}
        if path == "/stream":
            return await self._stream(request)
        if request.headers.get("authorization") != f"Bearer {self.token}":
            raise No({"code": 99991663, "msg": "Invalid access token for authorization."}, 400)
        match method, path.removeprefix("/open-apis/").split("/"):
            case "GET", ["bot", "v3", "info"]:
                return {"code": 0, "msg": "ok", "bot": {"app_name": "Helper", "open_id": US}}
            case "GET", ["contact", "v3", "users", _]:
                return {"code": 0, "data": {"user": {"name": self.name}}}
            case "GET", ["im", "v1", "chats", chat]:
                return {"code": 0, "data": {"name": "Dev", "chat_mode": "p2p" if chat == CHAT else "group"}}
            case "GET", ["im", "v1", "messages", _, "resources", key]:
                return self.files[key]
            case "GET", ["im", "v1", "messages", message]:
                ours = self._find(message)
                about = {"chat_id": ours.chat, "sender": {"id": APP_ID}} if ours else {"sender": {"id": ALICE}}
                return {"code": 0, "data": {"items": [{"message_id": message, **about}]}}
            case "PATCH", ["im", "v1", "messages", message]:
                return self._update(message, await request.json())
            case "POST", ["im", "v1", ("images" | "files") as kind]:
                return await self._upload(kind, request)
            case "POST", ["im", "v1", "messages"]:
                asked = await request.json()
                return await self._post(request, asked["receive_id"], asked)
            case "POST", ["im", "v1", "messages", root, "reply"]:
                asked = await request.json()
                if "reply_in_thread" in asked:
                    return await self._post(request, GROUP_CHAT, asked, root)
                return await self._post(request, "", asked, quoted=root)
            case _:
                raise No({"code": 99992402, "msg": "field validation failed"}, 400)

    async def _stream(self, request: web.Request) -> web.WebSocketResponse:
        """Bring one event after the other, each when the one before is acknowledged."""
        assert request.query["service_id"] == "33554678"
        line = web.WebSocketResponse()
        await line.prepare(request)
        self.lines.append(line)
        telling = asyncio.create_task(self._tell(line))
        try:
            async for message in line:
                frame = Frame.decode(message.data)
                self.pings += frame.method == 0 and frame.headers == {"type": "ping"}
                if frame.method == 1 and json.loads(frame.payload)["code"] == 200:
                    assert (frame.service, frame.number, frame.headers["message_id"]) == (33554678, 0, "m1")
                    del self.events[0]
                    self.acknowledged.set()
        finally:
            telling.cancel()
            self.lines.remove(line)
        return line

    async def _tell(self, line: web.WebSocketResponse) -> None:
        while True:
            self.acknowledged.clear()
            while not self.events:
                await self.news.wait()
                self.news.clear()
            payload, self.name = self.events[0]
            size = -(-len(payload) // self.parts)
            for number in range(self.parts):
                about = {"type": "event", "message_id": "m1", "sum": str(self.parts), "seq": str(number)}
                part = payload[number * size :][:size]
                await line.send_bytes(Frame(method=1, service=33554678, headers=about, payload=part).encode())
            await self.acknowledged.wait()

    def __post_init__(self) -> None:
        self.acknowledged = asyncio.Event()

    def _find(self, message: str) -> Sent | None:
        return next((each for each in self.sent if each.id == message), None)

    def _update(self, message: str, asked: Json) -> Json:
        found = self._find(message)
        if found is None:
            raise No({"code": 230001, "msg": "invalid message_id"}, 400)
        found.raw = json.loads(asked["content"])
        found.text = text_of(found.raw)
        return {"code": 0, "data": {}}

    async def _upload(self, kind: str, request: web.Request) -> Json:
        form = await read_form(request)
        name, content = form["image" if kind == "images" else "file"]
        assert form.get("image_type") == "message" or form["file_name"] == name
        return {"code": 0, "data": {"image_key" if kind == "images" else "file_key": self.keep(NewFile(name, content))}}

    async def _post(
        self, request: web.Request, chat: str, asked: Json, thread: str | None = None, quoted: str = ""
    ) -> Json:
        assert len(asked["uuid"]) <= 50
        if asked["uuid"] in self.uuids:
            return {"code": 0, "data": {"message_id": self.uuids[asked["uuid"]]}}
        if len(asked["content"].encode()) > _MAX_CONTENT:
            raise No({"code": 230025, "msg": "The length of the message content reaches its limit."}, 400)
        content, message = json.loads(asked["content"]), f"om_{next(self.numbers)}"
        handle = content.get("image_key") or content.get("file_key")
        text = "" if handle else text_of(content)
        sent = Sent(chat, text, message, content, thread, self.files[handle] if handle else None)
        self.uuids[asked["uuid"]] = message
        await self.show(request, sent)
        self.quoted.append(quoted)
        return {"code": 0, "data": {"message_id": message, "chat_id": chat}}


def text_of(card: Json) -> str:
    """Return what a person reads."""
    assert card["schema"] == "2.0"
    return html.unescape(card["body"]["elements"][0]["content"])


class FakeFeishu(CalledChat):
    platform = "feishu"
    fix = "App Secret"
    person = ALICE
    chat_id = CHAT
    refused_as = (
        Refusal(answer=No({"code": 230020, "msg": "x"}, 400), means=PlatformBusy),
        Refusal(answer=No({"code": 99991400, "msg": "x"}, 400), means=PlatformBusy),
        Refusal(answer=No({"code": 1, "msg": "x"}, 429), means=PlatformBusy),
        Refusal(answer=No({"code": 230027, "msg": "x"}, 400), means=PlatformRefused),
        Refusal(answer=No({"code": 99991672, "msg": "x"}, 400), means=PlatformRefused),
        Refusal(answer=No({"code": 230013, "msg": "x"}, 400), means=TargetGone),
        Refusal(answer=No({"code": 232009, "msg": "x"}, 400), means=TargetGone),
        Refusal(answer=No({"code": 230025, "msg": "too long"}, 400), means=SendRefused),
        Refusal(answer=No({"code": 230049, "msg": "x"}, 400), means=SendUnclear),
        Refusal(answer=No({"code": 7, "msg": "x"}, 500), means=SendUnclear),
        Refusal(answer=No("?", 502), means=SendUnclear),
    )

    def adapter(self) -> Adapter:
        adapter = FeishuAdapter(ACCOUNT, options_of(self.server.url))
        forget_names(adapter, "_people")
        return reached(adapter, self.server)

    def _push(self, kind: str, content: Any, name: str = "alice", **more: Any) -> Source:
        message = f"om_{next(self.server.numbers)}"
        said = {
            "message_id": message,
            "create_time": "1609073151345",
            "chat_id": self.chat_id,
            "chat_type": "p2p" if self.kind == "dm" else "group",
            "message_type": kind,
            "content": json.dumps(content),
            **more,
        }
        sender = {"sender_id": {"open_id": ALICE, "union_id": UNION, "user_id": "e33"}, "sender_type": "user"}
        self._tell(event_of("im.message.receive_v1", {"sender": sender, "message": said}), name)
        return self.source(message, user_id_alt=UNION)

    def _tell(self, event: Json, name: str = "alice") -> None:
        self.server.push(call(event), name)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        topic = {"thread_id": "omt_1", "root_id": thread_id, "parent_id": thread_id} if thread_id else {}
        for sent in self.server.sent:
            if sent.id == thread_id:
                sent.thread = thread_id
        said = self._push("text", {"text": text}, name, **topic)
        return replace(said, thread_id=thread_id)

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        said = await self.say(text)
        for file in files:
            self._push("file", {"file_key": self.server.keep(file), "file_name": file.name})
        return said

    async def choices(self) -> Sequence[str]:
        return [each["text"]["content"] for each in self._buttons()]

    async def press(self, label: str) -> Source:
        pressed = next(each for each in self._buttons() if each["text"]["content"] == label)
        event = {
            "operator": {"open_id": ALICE, "union_id": UNION},
            "action": {"tag": "button", "value": pressed["behaviors"][0]["value"]},
            "context": {"open_message_id": self.server.sent[-1].id, "open_chat_id": self.chat_id},
        }
        self._tell(event_of("card.action.trigger", event, next(self.server.numbers)))
        return self.source("", user_id_alt=UNION)

    async def react(self, receipt: str, sign: str, *, removed: bool = False) -> Source:
        event = {
            "message_id": receipt,
            "reaction_type": {"emoji_type": {"👍": "THUMBSUP", "👎": "ThumbsDown"}[sign]},
            "operator_type": "user",
            "user_id": {"open_id": ALICE, "union_id": UNION, "user_id": "e33"},
            "action_time": "1609073151345",
        }
        kind = "deleted" if removed else "created"
        self._tell(event_of(f"im.message.reaction.{kind}_v1", event, next(self.server.numbers)))
        return self.source("", user_id_alt=UNION)

    def _buttons(self) -> list[Json]:
        return [each for each in self.server.sent[-1].raw["body"]["elements"] if each["tag"] == "button"]


class FakeGroup(FakeFeishu):
    kind = "group"
    chat_id = GROUP_CHAT
    thread_id = "om_root"

    async def mention(self, text: str) -> Source:
        mention = {"key": "@_user_1", "id": {"open_id": US}, "name": "Helper"}
        return self._push("text", {"text": f"@_user_1 {text}"}, mentions=[mention])

    async def answer(self, receipt: str, text: str) -> Source:
        return self._push("text", {"text": text}, parent_id=receipt, root_id=receipt)


class FakeStream(FakeFeishu):
    """The same chat over a long connection."""

    def adapter(self) -> Adapter:
        options = options_of(self.server.url, mode="stream", encrypt_key=None)
        adapter = FeishuAdapter(ACCOUNT, options)
        forget_names(adapter, "_people")
        return reached(adapter, self.server)

    def _tell(self, event: Json, name: str = "alice") -> None:
        self.server.events.append((json.dumps(event).encode(), name))
        self.server.news.set()

    async def cut(self) -> None:
        for line in [*self.server.lines]:
            await line.close()
