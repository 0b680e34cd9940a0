"""Yuanbao on the loopback, as the plugin that Tencent publishes speaks with it, and a person there."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from aiohttp import WSMsgType, web

from palaver.platforms.yuanbao.adapter import YuanbaoAdapter, YuanbaoOptions, sign
from palaver.platforms.yuanbao.wire import Frame, Kind
from palaver.protocols import Adapter, NewFile, Source
from palaver.protocols.protobuf import Fields, decode, encode, messages_of, text_of
from tests.platforms.called import ACCOUNT, CalledChat, Loopback, No, Sent, reached

KEY, SECRET, BOT = "app-key", "s3cret", "bot_1"
ALICE, GROUP_CODE = "xqfNihe1yIVQyNwb", "535168412"


@dataclass
class Yuanbao(Loopback):
    wrong: ClassVar[No] = No({"code": 10001, "msg": "invalid signature"})
    pushes: list[Frame] = field(default_factory=list[Frame])
    """What is not acknowledged yet."""
    lines: list[web.WebSocketResponse] = field(default_factory=list[web.WebSocketResponse])
    codes: list[int] = field(default_factory=list[int])
    """The codes of the next sends."""
    uploads: list[str] = field(default_factory=list[str])
    typed: list[str] = field(default_factory=list[str])
    signed: object = None
    """Its next tokens, if not right ones."""
    bind_code: int = 0
    is_silent: bool = False
    """It takes connections, and says nothing."""

    async def api(self, method: str, path: str, request: web.Request) -> object:
        if path == "/wss":
            return await self._serve(request)
        if path == "/api/v5/robotLogic/sign-token":
            asked = await request.json()
            plain = f"{asked['nonce']}{asked['timestamp']}{KEY}{SECRET}"
            assert asked["signature"] == hmac.new(SECRET.encode(), plain.encode(), hashlib.sha256).hexdigest()
            assert asked["timestamp"].endswith("+08:00")
            data = {"bot_id": BOT, "duration": 7200, "product": "yuanbao", "source": "bot", "token": self.new_token()}
            return {"code": 0, "msg": "", "data": data if self.signed is None else self.signed}
        if path == "/api/resource/v1/download":
            assert request.headers["x-token"] == self.token
            return {"code": 0, "data": {"url": f"{self.url}/files/{request.query['resourceId']}"}}
        if path == "/api/resource/genUploadInfo":
            assert request.headers["x-token"] == self.token
            self.uploads.append((await request.json())["fileName"])
            keys = {"encryptTmpSecretId": "AKID", "encryptTmpSecretKey": "KEY", "encryptToken": "tok/en"}
            place = {"bucketName": "b-1", "region": "ap-guangzhou", "location": f"/up/{len(self.uploads)}"}
            url = f"{self.url}/files/up{len(self.uploads)}"
            return {"code": 0, "data": {**keys, **place, "startTime": 1, "expiredTime": 2, "resourceUrl": url}}
        if method == "PUT":
            return await self._store(path, request)
        assert method == "GET"
        return self.files[path.removeprefix("/files/")]

    async def _store(self, path: str, request: web.Request) -> web.Response:
        """Cloud storage: the signature covers these headers, with the keys that were given."""
        content = await request.read()
        names = ("content-length", "host", "x-cos-security-token")
        signed = {name: request.headers[name] for name in names}
        assert request.headers["authorization"] == sign(path, signed, "1;2", "AKID", "KEY")
        self.files[path.strip("/").replace("/", "")] = NewFile(self.uploads[-1], content)
        return web.Response()

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        line = web.WebSocketResponse()
        await line.prepare(request)
        try:
            async for message in line:
                if message.type is WSMsgType.BINARY:
                    await self._hear(Frame.decode(message.data), line, request)
        finally:
            if line in self.lines:
                self.lines.remove(line)
        return line

    async def _hear(self, frame: Frame, line: web.WebSocketResponse, request: web.Request) -> None:
        if frame.kind is Kind.ACK:
            self.pushes = [push for push in self.pushes if push.id != frame.id]
            return
        if self.is_silent:
            return
        code = 0
        match frame.command:
            case "auth-bind":
                token = text_of(messages_of(decode(frame.data), 2)[0], 3)
                code = self.bind_code or (0 if token == self.token else 41103)
            case "send_c2c_message" | "send_group_message":
                code = await self._send(frame, line, request)
            case "send_private_heartbeat" | "send_group_heartbeat":
                self.typed.append(frame.command)
            case _:
                pass
        answer = Frame(
            kind=Kind.RESPONSE, command=frame.command, id=frame.id, module=frame.module, data=encode((1, code))
        )
        await line.send_bytes(answer.encode())
        if frame.command == "auth-bind" and not code:
            self.lines.append(line)
            for push in self.pushes:
                await line.send_bytes(push.encode())

    async def _send(self, frame: Frame, line: web.WebSocketResponse, request: web.Request) -> int:
        fields, is_group = decode(frame.data), frame.command == "send_group_message"
        loses, self.loses = self.loses, None
        if loses is False:
            await _cut(line, request)
        if self.codes:
            return self.codes.pop(0)
        chat = f"group/{text_of(fields, 2)}" if is_group else text_of(fields, 2)
        if chat in self.gone:
            return 20002
        assert text_of(fields, 3) == BOT
        parts = messages_of(fields, 6 if is_group else 5)
        raw = [(text_of(part, 1), messages_of(part, 2)[0]) for part in parts]
        files = [_file_url(kind, content) for kind, content in raw if kind in {"TIMImageElem", "TIMFileElem"}]
        file = self.files[files[0].rpartition("/")[2]] if files else None
        said = raw if not files else []
        text = "".join(text_of(content, 1) or json.loads(text_of(content, 4))["text"] for _, content in said)
        self.sent.append(Sent(chat, text, text_of(fields, 1), fields, None, file))
        if loses:
            await _cut(line, request)
        return 0

    async def push(self, frame: Frame) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.pushes.append(frame)
        for line in self.lines:
            await line.send_bytes(frame.encode())


def _file_url(kind: str, content: Fields) -> str:
    return text_of(messages_of(content, 8)[0], 5) if kind == "TIMImageElem" else text_of(content, 10)


async def _cut(line: web.WebSocketResponse, request: web.Request) -> None:
    assert request.transport
    request.transport.abort()
    await line.close()
    await asyncio.Event().wait()


def text_part(text: str) -> bytes:
    return encode((1, "TIMTextElem"), (2, encode((1, text))))


def mention_part(user: str, name: str) -> bytes:
    data = json.dumps({"elem_type": 1002, "text": f"@{name}", "user_id": user})
    return encode((1, "TIMCustomElem"), (2, encode((4, data))))


def message(*parts: bytes, group: str = "", number: int = 1, name: str = "alice", **more: Any) -> bytes:
    return encode(
        (1, more.get("command", "Group.CallbackAfterSendMsg" if group else "C2C.CallbackAfterSendMsg")),
        (2, more.get("sender", ALICE)),
        (3, BOT),
        (4, name),
        (6, group),
        (7, "Dev" if group else ""),
        (8, number),
        (10, 1_700_000_000),
        (12, f"m{number}"),
        *((13, part) for part in parts),
        (14, json.dumps({"quote": more["quote"]}) if "quote" in more else ""),
        *((17, encode((2, each))) for each in more.get("recalled", ())),
        (19, more.get("from_group", "")),
    )


class FakeYuanbao(CalledChat):
    platform = "yuanbao"
    person = ALICE
    chat_id = ALICE
    group = ""
    foreign = (
        "https://example.org/x",
        "http://x.qq.com/y",
        "https://qq.com.evil.org/",
        "file:///etc/passwd",
        "",
    )

    def adapter(self) -> Adapter:
        given = {"app_key": KEY, "app_secret": SECRET, "api_url": self.server.url, "storage_url": self.server.url}
        socket = f"ws{self.server.url.removeprefix('http')}/wss"
        adapter = YuanbaoAdapter(ACCOUNT, YuanbaoOptions.model_validate({**given, "socket_url": socket}))
        return reached(adapter, self.server)

    async def _push(self, *parts: bytes, name: str = "alice", **more: Any) -> Source:
        number = next(self.server.numbers)
        data = message(*parts, group=self.group, number=number, name=name, **more)
        # Half of them in the envelope of a push.
        data = data if number % 2 else encode((1, "inbound"), (2, "x"), (3, f"p{number}"), (4, data))
        await self.server.push(
            Frame(kind=Kind.PUSH, command="inbound_message", id=f"p{number}", module="x", needs_ack=True, data=data)
        )
        return self.source(f"m{number}")

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        assert thread_id is None
        return await self._push(text_part(text), name=name)

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        parts = [text_part(text)]
        for index, file in enumerate(files):
            handle = self.server.keep(file)
            direct, by_id = f"{self.server.url}/files/{handle}", f"https://x.tencent.com/?resourceId={handle}"
            url = direct if index else by_id
            content = encode((10, url), (11, len(file.content)), (12, file.name))
            parts.append(encode((1, "TIMFileElem"), (2, content)))
        return await self._push(*parts)

    async def delete(self, said: Source) -> None:
        command = "Group.CallbackAfterRecallMsg" if self.group else "C2C.CallbackAfterMsgWithDraw"
        await self._push(command=command, recalled=[said.message_id])

    async def cut(self) -> None:
        for line in self.server.lines:
            await line.close()

    async def limit_rate(self) -> None:
        self.server.codes.append(50503)

    async def lose_send(self, *, shown: bool) -> None:
        self.server.loses = shown

    async def say_nonsense(self) -> None:
        for broken in (b"", b"\xff" * 50, encode((1, b"\xff")), encode((1, encode((1, 9)))), b"\x0a\x00"):
            await self.server.lines[0].send_bytes(broken)
        await self.server.lines[0].send_str("not binary")
        for number, data in enumerate((b"\xff\xff", encode((13, b"\xff")), message(encode((2, b"\x08"))))):
            push = Frame(kind=Kind.PUSH, command="x", id=f"b{number}", module="x", needs_ack=True, data=data)
            await self.server.push(push)


class FakeGroup(FakeYuanbao):
    kind = "group"
    chat_id = f"group/{GROUP_CODE}"
    group = GROUP_CODE

    async def mention(self, text: str) -> Source:
        return await self._push(mention_part(BOT, "Helper"), text_part(f" {text}"))

    async def answer(self, receipt: str, text: str) -> Source:
        return await self._push(text_part(text), quote={"id": receipt, "sender_id": BOT, "desc": "hello"})
