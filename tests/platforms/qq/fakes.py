"""QQ on the loopback, as its documentation describes it, and a person there."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar

from aiohttp import web

from palaver.platforms.qq.adapter import QqAdapter, QqOptions, Signer
from palaver.protocols import Adapter, HttpRequest, NewFile, Source
from palaver.protocols.recent import ReplyWindows
from palaver.testkit.fake_server import NotPossible
from tests.platforms.called import ACCOUNT, CalledChat, Json, Loopback, No, Sent, reached

APP_ID, SECRET = "11111111", "DG5g3B4j9X2KOErG"
_numbers = count(1)
ALICE, GROUP_ID, UNION = "E4F4AEA33253A2797FB897C50B81D7ED", "C9F778FE6ADF9D1D1DBE395BF744A33A", "UNION1"


def call(event: object, secret: str = SECRET) -> HttpRequest:
    body = json.dumps(event).encode()
    signature = Signer(secret).sign("1725442341", body.decode())
    headers = {"x-signature-ed25519": signature, "x-signature-timestamp": "1725442341"}
    return HttpRequest(method="POST", headers=headers, body=body)


def options_of(url: str = "https://api.sgroup.qq.com", **more: Any) -> QqOptions:
    given = {"app_id": APP_ID, "app_secret": SECRET, "api_url": url, "token_url": url}
    return QqOptions.model_validate({**given, **more})


def said(text: str, number: int = 1, *, group: str = "", **more: Any) -> Json:
    author = {"member_openid" if group else "user_openid": ALICE, "union_openid": UNION}
    message = {"id": f"ROBOT1.0_{number}", "author": author, "content": text, "timestamp": "2023-11-06T13:37:18+08:00"}
    place = {"group_openid": group} if group else {}
    kind = "GROUP_AT_MESSAGE_CREATE" if group else "C2C_MESSAGE_CREATE"
    return {"op": 0, "id": f"{kind}:1", "t": kind, "d": {**message, **place, **more}}


@dataclass
class Qq(Loopback):
    busy: ClassVar[No] = No({"code": 22009, "message": "msg limit exceed"}, 400)
    closed: ClassVar[No] = No({"code": 10003, "message": "unknown group"}, 404)
    wrong: ClassVar[No] = No({"code": 100016, "message": "invalid appid or secret"})
    replies: dict[str, int] = field(default_factory=dict[str, int])
    """How often each message was replied to."""

    async def api(self, method: str, path: str, request: web.Request) -> object:
        if path == "/app/getAppAccessToken":
            assert await request.json() == {"appId": APP_ID, "clientSecret": SECRET}
            return {"access_token": self.new_token(), "expires_in": "7200"}
        if path.startswith("/download/"):
            return self.files[path.removeprefix("/download/")]
        if request.headers.get("authorization") != f"QQBot {self.token}":
            raise No({"code": 11244, "message": "token not exist or expire"}, 401)
        match method, path.strip("/").split("/"):
            case "GET", ["users", "@me"]:
                return {"id": "1", "username": "Helper"}
            case "POST", ["v2", place, chat, "files"]:
                asked = await request.json()
                assert (place, asked["srv_send_msg"]) in {("users", False), ("groups", False)}
                return {"file_info": self.keep(NewFile(chat, base64.b64decode(asked["file_data"])))}
            case "POST", ["v2", place, chat, "messages"]:
                return await self._post(f"group/{chat}" if place == "groups" else chat, request)
            case _:
                raise No({"code": 404, "message": "no such path"}, 404)

    async def _post(self, chat: str, request: web.Request) -> Json:
        asked = await request.json()
        self.replies[asked["msg_id"]] = self.replies.get(asked["msg_id"], 0) + 1
        if self.replies[asked["msg_id"]] > 5:
            raise No({"code": 40034025, "message": "reply limit"}, 400)
        media = self.files[asked["media"]["file_info"]] if asked["msg_type"] == 7 else None
        message = f"sent{next(self.numbers)}"
        await self.show(request, Sent(chat, asked["content"], message, asked, file=media))
        return {"id": message, "timestamp": "2023-11-06T13:37:18+08:00"}


class _Talkative(ReplyWindows):
    """As if the person had written before each of our messages: QQ takes replies only."""

    def take(self, chat: str) -> str | None:
        return f"{chat}-{next(_numbers)}"


class FakeQq(CalledChat):
    platform = "qq"
    person = ALICE
    chat_id = ALICE
    fix = "AppSecret"
    group = ""
    foreign = ("https://example.org/x", "http://x.qq.com/", "https://qq.com.evil.org", "")

    async def takes_documents(self) -> None:
        raise NotPossible("only pictures: test_adapter sends one")

    def adapter(self) -> Adapter:
        adapter = QqAdapter(ACCOUNT, options_of(self.server.url))
        setattr(adapter, "_windows", _Talkative(1))  # noqa: B010
        return reached(adapter, self.server)

    def source(self, message_id: str, **more: Any) -> Source:
        return super().source(message_id, user_id_alt=UNION, **more)

    def _push(self, text: str, **more: Any) -> Source:
        number = next(self.server.numbers)
        self.server.push(call(said(text, number, group=self.group, **more)))
        return self.source(f"ROBOT1.0_{number}")

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        del name
        assert thread_id is None
        return self._push(text)

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        attachments = [
            {
                "content_type": file.media_type,
                "filename": file.name,
                "url": f"{self.server.url}/download/{self.server.keep(file)}",
            }
            for file in files
        ]
        return self._push(text, attachments=attachments)

    async def say_nonsense(self) -> None:
        unfinished: Json = {"op": 0, "t": "C2C_MESSAGE_CREATE", "d": {}}
        odd: tuple[Json, ...] = (unfinished, {"op": 0}, {**said("x"), "d": None}, {"t": "OTHER", "d": {}})
        for event in odd:
            self.server.push(call(event))


class FakeGroup(FakeQq):
    kind = "group"
    chat_id = f"group/{GROUP_ID}"
    group = GROUP_ID
