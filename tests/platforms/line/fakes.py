"""LINE on the loopback, as its documentation describes it, and a person there."""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from aiohttp import web

from palaver.platforms.line.adapter import LineAdapter, LineOptions
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
from tests.platforms.called import ACCOUNT, CalledChat, Json, Loopback, No, Sent, forget_names, reached

SECRET, TOKEN = "8c570fa6dd201bb328f1c1eac23a96d8", "line-token"
ALICE, GROUP_ID = "U4af4980629abcdefabcdefabcdefabcd", "Ca56f94637cabcdefabcdefabcdefabcd"


def call(*events: object, secret: str = SECRET) -> HttpRequest:
    body = json.dumps({"destination": "U8e742f61d673b39c7fff3cecb7536ef0", "events": list(events)}).encode()
    signature = base64.b64encode(hmac.new(secret.encode(), body, hashlib.sha256).digest()).decode()
    return HttpRequest(method="POST", headers={"x-line-signature": signature}, body=body)


def event_of(kind: str, number: int = 1, *, group: str = "", **more: Any) -> Json:
    source = {"type": "group", "groupId": group, "userId": ALICE} if group else {"type": "user", "userId": ALICE}
    return {
        "type": kind,
        "mode": "active",
        "webhookEventId": f"W{number}",
        "timestamp": 1_692_251_666_727,
        "source": source,
        **more,
    }


def options_of(url: str = "https://api.line.me", **more: Any) -> LineOptions:
    return LineOptions.model_validate(
        {"channel_secret": SECRET, "token": TOKEN, "api_url": url, "data_url": url, **more}
    )


@dataclass
class Line(Loopback):
    busy: ClassVar[No] = No({"message": "The API rate limit has been exceeded. Try again later."}, 429)
    closed: ClassVar[No] = No({"message": "Failed to send messages"}, 400)
    wrong: ClassVar[No] = No({"message": "Authentication failed."}, 401)
    reply_tokens: dict[str, str] = field(default_factory=dict[str, str])
    """Those that are valid, with their chat."""
    accepted: dict[str, str] = field(default_factory=dict[str, str])
    """Messages by their retry key."""
    typed: list[str] = field(default_factory=list[str])

    async def api(self, method: str, path: str, request: web.Request) -> object:
        if self.trouble:
            raise self.trouble
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            raise self.wrong
        match method, path.removeprefix("/v2/bot/").split("/"):
            case "GET", ["info"]:
                return {"userId": "U8", "basicId": "@helper", "displayName": "Helper"}
            case "GET", ["profile", _] | ["group", _, "member", _]:
                return {"displayName": self.name}
            case "GET", ["message", message, "content"]:
                return self.files[message]
            case "POST", ["chat", "loading", "start"]:
                self.typed.append((await request.json())["chatId"])
                return {}
            case "POST", ["message", ("reply" | "push") as how]:
                return await self._post(how, request)
            case _:
                raise No({"message": "Not found"}, 404)

    async def _post(self, how: str, request: web.Request) -> Json:
        asked, key = await request.json(), request.headers.get("x-line-retry-key", "")
        if key in self.accepted:
            sent = {"message": "The retry key is already accepted", "sentMessages": [{"id": self.accepted[key]}]}
            raise No(sent, 409)
        chat = self.reply_tokens.pop(asked.get("replyToken", ""), None) if how == "reply" else asked["to"]
        if chat is None:
            raise No({"message": "Invalid reply token"}, 400)
        (message,) = asked["messages"]
        if len(message["text"].encode("utf-16-le")) // 2 > 5000:
            raise No({"message": "The request body has 1 error(s)"}, 400)
        number = str(next(self.numbers))
        if key and not self.refuses:  # the key of a rejected request can be used again
            self.accepted[key] = number
        await self.show(request, Sent(chat, message["text"], number, {**message, "how": how}))
        return {"sentMessages": [{"id": number, "quoteToken": "q"}]}


class FakeLine(CalledChat):
    platform = "line"
    person = ALICE
    chat_id = ALICE
    fix = "channel access token"
    group = ""
    refused_as = (
        Refusal(answer=No({"message": "You have reached your monthly limit."}, 429), means=PlatformBusy),
        Refusal(answer=No({"message": "x"}, 429, {"retry-after": "7"}), means=PlatformBusy),
        Refusal(answer=No({"message": "x"}, 401), means=PlatformRefused),
        Refusal(answer=No({"message": "Failed to send messages"}, 400), means=TargetGone),
        Refusal(answer=No({"message": "The property, 'to', in the request body is invalid"}, 400), means=SendRefused),
        Refusal(answer=No({"message": "x"}, 500), means=SendUnclear),
        Refusal(answer=No({}), means=SendUnclear),
    )

    def adapter(self) -> Adapter:
        adapter = LineAdapter(ACCOUNT, options_of(self.server.url))
        forget_names(adapter, "_people")
        return reached(adapter, self.server)

    def _push(self, kind: str, content: Json, name: str = "alice") -> Source:
        number = next(self.server.numbers)
        self.server.reply_tokens[f"r{number}"] = self.chat_id
        message = {"id": str(number), "type": kind, **content}
        event = event_of("message", number, group=self.group, replyToken=f"r{number}", message=message)
        self.server.push(call(event), name)
        return self.source(str(number))

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        assert thread_id is None
        return self._push("text", {"text": text, "quoteToken": "q"}, name)

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        first = await self.say(text)
        for file in files:
            said = self._push("file", {"fileName": file.name, "fileSize": len(file.content)})
            self.server.files[said.message_id or ""] = file
        return first

    async def choices(self) -> Sequence[str]:
        return [each["action"]["label"] for each in self.server.sent[-1].raw["quickReply"]["items"]]

    async def press(self, label: str) -> Source:
        items = self.server.sent[-1].raw["quickReply"]["items"]
        data = next(each["action"]["data"] for each in items if each["action"]["label"] == label)
        number = next(self.server.numbers)
        self.server.push(call(event_of("postback", number, group=self.group, postback={"data": data})))
        return self.source(f"W{number}")


class FakeGroup(FakeLine):
    kind = "group"
    chat_id = GROUP_ID
    group = GROUP_ID

    async def mention(self, text: str) -> Source:
        mention = {"mentionees": [{"index": 0, "length": 7, "type": "user", "userId": "U8", "isSelf": True}]}
        return self._push("text", {"text": f"@Helper {text}", "mention": mention})

    async def answer(self, receipt: str, text: str) -> Source:
        return self._push("text", {"text": text, "quotedMessageId": receipt})
