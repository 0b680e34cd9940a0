"""DingTalk on the loopback, as its documentation describes it, and a person there."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from aiohttp import web

from palaver.platforms.dingtalk.adapter import DingTalkAdapter, DingTalkOptions, sign
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
from tests.platforms.called import ACCOUNT, CalledChat, Json, Loopback, No, Sent, reached, read_form

CLIENT, SECRET = "ding1a2b3c", "s3cret"
TOPIC = "/v1.0/im/bot/messages/get"
ALICE, GROUP_CHAT = "manager4220", "cidh6ezDLHQau9V23Es/xSLNoiDDmPuN354KylQ2BaIhuM="


def call(message: object, secret: str = SECRET, *, at: float | None = None) -> HttpRequest:
    timestamp = str(int((at or time.time()) * 1000))
    headers = {"timestamp": timestamp, "sign": sign(timestamp, secret)}
    return HttpRequest(method="POST", headers=headers, body=json.dumps(message).encode())


def options_of(url: str = "https://api.dingtalk.com", **more: Any) -> DingTalkOptions:
    given = {"client_id": CLIENT, "client_secret": SECRET, "api_url": url, "media_url": url, "mode": "http"}
    return DingTalkOptions.model_validate({**given, **more})


def said(kind: str, content: Json, number: int = 1, *, group: str = "", name: str = "alice") -> Json:
    return {
        "conversationId": group or "cidalone",
        "conversationType": "2" if group else "1",
        "conversationTitle": "Dev",
        "chatbotUserId": "$:LWCP_v1:$bot",
        "msgId": f"msg{number}",
        "senderNick": name,
        "senderStaffId": ALICE,
        "senderId": "$:LWCP_v1:$alice",
        "createAt": 1_700_000_000_000,
        "msgtype": kind,
        "robotCode": CLIENT,
        "isInAtList": bool(group),
        "sessionWebhook": "https://oapi.dingtalk.com/robot/sendBySession?session=1",
        **content,
    }


@dataclass
class DingTalk(Loopback):
    busy: ClassVar[No] = No({"code": "Forbidden.AccessDenied.QpsLimitForApi", "message": "slow down"}, 403)
    closed: ClassVar[No] = No({"code": "group.disbanded", "message": "the group is gone"}, 400)
    wrong: ClassVar[No] = No({"code": "invalidClientIdOrSecret", "message": "no"}, 400)

    frames: list[Json] = field(default_factory=list[Json])
    """What came over the stream and is not acknowledged yet."""
    lines: list[web.WebSocketResponse] = field(default_factory=list[web.WebSocketResponse])
    heard: list[Json] = field(default_factory=list[Json])

    async def api(self, method: str, path: str, request: web.Request) -> object:  # noqa: PLR0911 - one for each path
        if path == "/v1.0/gateway/connections/open":
            asked = await request.json()
            if self.trouble or (asked["clientId"], asked["clientSecret"]) != (CLIENT, SECRET):
                raise self.wrong
            assert asked["subscriptions"] == [{"type": "CALLBACK", "topic": TOPIC}]
            return {"endpoint": f"ws{self.url.removeprefix('http')}/connect", "ticket": "t/1"}
        if path == "/connect":
            return await self._stream(request)
        if path == "/v1.0/oauth2/accessToken":
            assert await request.json() == {"appKey": CLIENT, "appSecret": SECRET}
            return {"accessToken": self.new_token(), "expireIn": 7200}
        if path.startswith("/files/"):
            return self.files[path.removeprefix("/files/")]
        if path == "/media/upload":
            assert request.query["access_token"] == self.token
            name, content = (await read_form(request))["media"]
            return {"errcode": 0, "media_id": self.keep(NewFile(name, content))}
        if request.headers.get("x-acs-dingtalk-access-token") != self.token:
            raise No({"code": "InvalidAuthentication", "message": "invalid token"}, 401)
        asked = await request.json()
        assert (method, asked["robotCode"]) == ("POST", CLIENT)
        if path == "/v1.0/robot/messageFiles/download":
            return {"downloadUrl": f"{self.url}/files/{asked['downloadCode']}"}
        return await self._post(path, asked, request)

    async def _stream(self, request: web.Request) -> web.WebSocketResponse:
        assert request.query["ticket"] == "t/1"
        line = web.WebSocketResponse()
        await line.prepare(request)
        self.lines.append(line)
        for frame in self.frames:
            await line.send_json(frame)
        async for message in line:
            answer = json.loads(message.data)
            assert answer["code"] == 200
            self.heard.append(answer)
            acknowledged = answer["headers"]["messageId"]
            self.frames = [each for each in self.frames if each["headers"]["messageId"] != acknowledged]
        self.lines.remove(line)
        return line

    async def send_frame(self, kind: str, topic: str, data: object) -> None:
        headers = {
            "topic": topic,
            "messageId": f"f{next(self.numbers)}",
            "contentType": "application/json",
            "time": "1",
        }
        frame: Json = {"specVersion": "1.0", "type": kind, "headers": headers, "data": json.dumps(data)}
        if topic == TOPIC:
            self.frames.append(frame)
        for line in self.lines:
            await line.send_json(frame)

    async def _post(self, path: str, asked: Json, request: web.Request) -> Json:
        is_group = path == "/v1.0/robot/groupMessages/send"
        assert is_group or path == "/v1.0/robot/oToMessages/batchSend"
        chat = asked["openConversationId"] if is_group else asked["userIds"][0]
        if not is_group and chat in self.gone:
            return {"processQueryKey": "x", "invalidStaffIdList": [chat], "flowControlledStaffIdList": []}
        given = json.loads(asked["msgParam"])
        handle = given.get("mediaId") or given.get("photoURL")
        text = given.get("content") or given.get("text", "").replace("  \n", "\n")
        message = f"key{next(self.numbers)}"
        await self.show(request, Sent(chat, text, message, asked, file=self.files[handle] if handle else None))
        return {"processQueryKey": message, "invalidStaffIdList": [], "flowControlledStaffIdList": []}


class FakeDingTalk(CalledChat):
    platform = "dingtalk"
    person = ALICE
    chat_id = ALICE
    fix = "Client Secret"
    signs_content = False
    group = ""
    refused_as = (
        Refusal(answer=No({"code": "group.disbanded", "message": "x"}, 400), means=TargetGone),
        Refusal(answer=No({"code": "invalid.openConversationId", "message": "x"}, 400), means=TargetGone),
        Refusal(answer=No({"code": "invalidParameter.robotCode.auth", "message": "x"}, 400), means=PlatformRefused),
        Refusal(
            answer=No({"code": "Forbidden.AccessDenied.AccessTokenPermissionDenied", "message": "x"}, 403),
            means=PlatformRefused,
        ),
        Refusal(answer=No({"code": "Forbidden.AccessDenied.QpsLimitForApi", "message": "x"}, 403), means=PlatformBusy),
        Refusal(answer=No({"code": "unknown.send.result", "message": "x"}, 400), means=SendUnclear),
        Refusal(answer=No({"code": "invalidParameter.msgParam.tooLong", "message": "x"}, 400), means=SendRefused),
        Refusal(answer=No({"code": "ServiceUnavailable", "message": "x"}, 503), means=SendUnclear),
        Refusal(answer=No({"processQueryKey": "k", "flowControlledStaffIdList": ["x"]}), means=PlatformBusy),
        Refusal(answer=No({}), means=SendUnclear),
    )

    def adapter(self) -> Adapter:
        return reached(DingTalkAdapter(ACCOUNT, options_of(self.server.url)), self.server)

    def _push(self, kind: str, content: Json, name: str = "alice") -> Source:
        number = next(self.server.numbers)
        self.server.push(call(said(kind, content, number, group=self.group, name=name)))
        return self.source(f"msg{number}")

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        assert thread_id is None
        return self._push("text", {"text": {"content": text}}, name)

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        first = await self.say(text)
        for file in files:
            code = self.server.keep(file)
            self._push("file", {"content": {"downloadCode": code, "fileName": file.name}})
        return first

    async def say_nonsense(self) -> None:
        message = said("text", {"text": {"content": "hi"}})
        odd = ({"msgtype": "text"}, said("text", {}), said("file", {"content": 7}), {**message, "createAt": "never"})
        for each in odd:
            self.server.push(call(each))


class FakeGroup(FakeDingTalk):
    kind = "group"
    chat_id = GROUP_CHAT
    group = GROUP_CHAT


class FakeStream(FakeDingTalk):
    """A person whose messages come over the stream."""

    def adapter(self) -> Adapter:
        adapter = DingTalkAdapter(ACCOUNT, options_of(self.server.url, mode="stream"))
        setattr(adapter, "limits", replace(adapter.limits, interval=0.0))  # noqa: B010
        return adapter

    async def _said(self, kind: str, content: Json, name: str = "alice") -> Source:
        number = next(self.server.numbers)
        await self.server.send_frame("CALLBACK", TOPIC, said(kind, content, number, name=name))
        return self.source(f"msg{number}")

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        assert thread_id is None
        return await self._said("text", {"text": {"content": text}}, name)

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        first = await self.say(text)
        for file in files:
            await self._said("file", {"content": {"downloadCode": self.server.keep(file), "fileName": file.name}})
        return first

    async def cut(self) -> None:
        for line in self.server.lines:
            await line.close()

    async def say_nonsense(self) -> None:
        for broken in ("", "[", "7", '{"type": "CALLBACK"}', '{"headers": [], "type": 1}'):
            await self.server.lines[0].send_str(broken)
        await self.server.lines[0].send_bytes(b"\xff\xfe")
        await self.server.send_frame("CALLBACK", TOPIC, {"msgtype": "text"})
