"""ntfy on the loopback, as its documentation describes it, and a person who writes to a topic."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from aiohttp import web

from palaver.platforms.ntfy.adapter import NtfyAdapter, NtfyOptions
from palaver.protocols import (
    Adapter,
    NewFile,
    PlatformBusy,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    Source,
    TargetGone,
)
from palaver.testkit.fake_server import Refusal
from tests.platforms.called import ACCOUNT, CalledChat, Json, Loopback, No, Sent, reached

TOKEN, TOPIC = "tk_secret", "helper-7Kx2mP9q"


def error(code: int, status: int) -> No:
    return No({"code": code, "http": status, "error": f"No: {code}", "link": ""}, status)


def options_of(url: str, **more: Any) -> NtfyOptions:
    return NtfyOptions.model_validate({"topics": [TOPIC, "other"], "url": url, **more})


@dataclass
class Ntfy(Loopback):
    busy: ClassVar[No] = error(42901, 429)
    closed: ClassVar[No] = error(40301, 403)
    wrong: ClassVar[No] = error(40101, 401)
    messages: list[Json] = field(default_factory=list[Json])
    lines: list[web.StreamResponse] = field(default_factory=list[web.StreamResponse])
    token: str | None = None  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    async def api(self, method: str, path: str, request: web.Request) -> object:
        given = request.headers.get("authorization")
        if self.trouble or given != (f"Bearer {self.token}" if self.token else None):
            raise self.trouble or self.wrong
        match method, path.strip("/").split("/"):
            case "GET", [topics, "json"]:
                return await self._subscribe(topics.split(","), request)
            case "GET", ["file", handle]:
                return self.files[handle]
            case "POST", [""]:
                asked = await request.json()
                if len(asked["message"].encode()) > 4096:
                    raise error(41301, 413)
                return await self._publish(request, asked)
            case "PUT", [topic]:
                file = NewFile(request.query["filename"], await request.read())
                asked = {"topic": topic, "message": request.query.get("message", ""), "tags": [request.query["tags"]]}
                return await self._publish(request, asked, file)
            case _:
                raise error(40401, 404)

    async def _publish(self, request: web.Request, asked: Json, file: NewFile | None = None) -> Json:
        message = self.message(**asked)
        await self.show(request, Sent(asked["topic"], asked["message"], message["id"], asked, None, file))
        await self.tell(message)
        return message

    async def _subscribe(self, topics: list[str], request: web.Request) -> web.StreamResponse:
        since = request.query["since"]
        line = web.StreamResponse()
        await line.prepare(request)
        if request.query.get("poll"):
            return line
        await self._write(line, {"id": "o", "time": int(time.time()), "event": "open", "topic": ",".join(topics)})
        for message in [each for each in self.messages if each["time"] >= int(since) and each["topic"] in topics]:
            await self._write(line, message)
        self.lines.append(line)
        try:
            await self.cut_now.wait()
        finally:
            self.lines.remove(line)
        return line

    def __post_init__(self) -> None:
        self.cut_now = type(self.news)()

    async def cut(self) -> None:
        self.cut_now.set()
        self.cut_now = type(self.news)()

    async def _write(self, line: web.StreamResponse, message: Json) -> None:
        await line.write(json.dumps(message).encode() + b"\n")

    def message(self, **more: Any) -> Json:
        return {"id": f"m{next(self.numbers)}", "time": int(time.time()), "event": "message", **more}

    async def tell(self, message: Json) -> None:
        self.messages.append(message)
        for line in self.lines:
            await self._write(line, message)


class FakeNtfy(CalledChat):
    platform = "ntfy"
    person = TOPIC
    chat_id = TOPIC
    foreign = ("//evil.example/file/x", "/file/../v1/account", "/v1/account", None)
    refused_as = (
        Refusal(answer=error(42901, 429), means=PlatformBusy),
        Refusal(answer=error(42908, 429), means=PlatformBusy),
        Refusal(answer=error(40101, 401), means=PlatformRefused),
        Refusal(answer=error(40301, 403), means=TargetGone),
        Refusal(answer=error(40009, 400), means=SendRefused),
        Refusal(answer=error(41301, 413), means=SendRefused),
        Refusal(answer=error(50001, 500), means=SendUnclear),
        Refusal(answer=No({}), means=SendUnclear),
        Refusal(answer=error(42905, 429), means=PlatformBusy, after=3600.0),
        Refusal(answer=error(42908, 429), means=PlatformBusy, after=3600.0),
    )

    def adapter(self) -> Adapter:
        return reached(NtfyAdapter(ACCOUNT, options_of(self.server.url)), self.server)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None, **more: Any) -> Source:
        assert (name, thread_id) == ("alice", None)
        message = self.server.message(topic=TOPIC, message=text, **more)
        await self.server.tell(message)
        return self.source(message["id"])

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        sources: list[Source] = []
        for number, file in enumerate(files):
            url = f"{self.server.url}/file/{self.server.keep(file)}"
            about = {"name": file.name, "url": url, "type": file.media_type, "size": len(file.content)}
            sources.append(await self.say("" if number else text, attachment=about))
        return sources[0]

    async def choices(self) -> Sequence[str]:
        return [each["label"] for each in self.server.sent[-1].raw.get("actions", ())]

    async def press(self, label: str) -> Source:
        action = next(each for each in self.server.sent[-1].raw["actions"] if each["label"] == label)
        assert (action["url"], action["method"]) == (f"{self.server.url}/{TOPIC}", "POST")
        return await self.say(action["body"])

    async def cut(self) -> None:
        await self.server.cut()
