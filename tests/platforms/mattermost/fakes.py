"""Mattermost on the loopback, as its documentation and its own client describe it, and a person there."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from aiohttp import WSMsgType, web

from palaver.platforms.mattermost.adapter import MattermostAdapter, MattermostOptions
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
from palaver.testkit.fake_server import Refusal, Shown
from tests.engine.gateway import until
from tests.platforms.called import ACCOUNT, CalledChat, Json, Loopback, No, Sent, forget_names, reached, read_form

TOKEN, US, ALICE = "mm-token", "u" * 26, "a" * 26
DIRECT, OPEN = "d" * 26, "c" * 26
CHANNELS = {
    DIRECT: {"id": DIRECT, "type": "D", "display_name": "", "last_post_at": 0},
    OPEN: {"id": OPEN, "type": "O", "display_name": "Town", "last_post_at": 0},
}


def error(what: str, status: int) -> No:
    return No({"id": f"api.{what}.app_error", "message": f"No: {what}", "status_code": status}, status)


@dataclass
class Mattermost(Loopback):
    busy: ClassVar[No] = No({"id": "x", "message": "limit exceeded"}, 429, {"retry-after": "2"})
    closed: ClassVar[No] = error("context.permissions", 403)
    wrong: ClassVar[No] = error("context.session_expired", 401)
    posts: dict[str, Json] = field(default_factory=dict[str, Json])
    events: list[Json] = field(default_factory=list[Json])
    """The numbered events of the connection that can be resumed."""
    connection: int = 0
    lines: list[web.WebSocketResponse] = field(default_factory=list[web.WebSocketResponse])
    bots: set[str] = field(default_factory=set[str])
    typed: list[str] = field(default_factory=list[str])
    asked: list[str] = field(default_factory=list[str])
    last: int = 0
    most_listed: int = 1000

    def now(self) -> int:
        self.last = max(self.last + 1, int(time.time() * 1000))
        return self.last

    async def api(self, method: str, path: str, request: web.Request) -> object:
        self.asked.append(f"{method} {path.removeprefix('/api/v4')}")
        if path == "/api/v4/websocket":
            return await self._serve(request)
        if self.trouble or request.headers.get("authorization") != f"Bearer {TOKEN}":
            raise self.trouble or self.wrong
        parts = path.removeprefix("/api/v4/").split("/")
        return self._get(parts, request) if method == "GET" else await self._change(method, parts, request)

    def _get(self, parts: list[str], request: web.Request) -> object:
        found: object = None
        match parts:
            case ["users", "me"]:
                found = {"id": US, "username": "helper"}
            case ["users", "me", "channels"]:
                latest = {each: max([0, *(p["create_at"] for p in self._of(each))]) for each in CHANNELS}
                found = [{**channel, "last_post_at": latest[key]} for key, channel in CHANNELS.items()]
            case ["users", _]:
                is_bot = {"is_bot": True} if parts[1] in self.bots else {}
                found = {"nickname": self.names.pop(0) if self.names else "alice", "username": "alice", **is_bot}
            case ["channels", channel]:
                found = CHANNELS.get(channel)
            case ["channels", channel, "posts"]:
                found = self._list(channel, request.query)
            case ["posts", post]:
                found = self.posts.get(post)
            case ["files", file]:
                found = self.files[file]
            case _:
                pass
        if found is None:
            raise error("not_found", 404)
        return found

    async def _change(self, method: str, parts: list[str], request: web.Request) -> object:
        match method, parts:
            case "POST", ["users", "me", "typing"]:
                self.typed.append((await request.json())["channel_id"])
                return {"status": "OK"}
            case "POST", ["posts"]:
                return await self._post(request)
            case "PUT", ["posts", post, "patch"]:
                return await self._patch(post, request)
            case "POST", ["files"]:
                name, content = (await read_form(request))["files"]
                return {"file_infos": [{"id": self.keep(NewFile(name, content))}]}
            case _:
                raise error("not_found", 404)

    def _of(self, channel: str) -> list[Json]:
        return [post for post in self.posts.values() if post["channel_id"] == channel]

    def _list(self, channel: str, asked: Mapping[str, str]) -> Json:
        """The newest first. Of the changed ones there are only so many, no matter which."""
        newest = sorted(self._of(channel), key=lambda post: -post["create_at"])
        if "since" in asked:
            listed = [post for post in newest if post["update_at"] > int(asked["since"])][: self.most_listed]
        else:
            before = self.posts[asked["before"]]["create_at"] if asked.get("before") else self.last + 1
            there = [post for post in newest if post["create_at"] < before and not post["delete_at"]]
            listed = there[: min(int(asked["per_page"]), 200)]
        roots = [self.posts[post["root_id"]] for post in listed if post["root_id"]]
        return {"order": [post["id"] for post in listed], "posts": {post["id"]: post for post in (*listed, *roots)}}

    async def _post(self, request: web.Request) -> Json:
        asked = await request.json()
        if len(asked["message"]) > 16_383:
            raise error("post.is_valid.message_length", 400)
        post = self.write(US, **{name: asked[name] for name in ("channel_id", "root_id", "message")})
        file = self.files[asked["file_ids"][0]] if asked.get("file_ids") else None
        try:
            await self.show(
                request, Sent(asked["channel_id"], asked["message"], post["id"], asked, asked["root_id"] or None, file)
            )
        except No:
            del self.posts[post["id"]]
            raise
        return post

    async def _patch(self, post: str, request: web.Request) -> Json:
        sent = next((each for each in self.sent if each.id == post), None)
        if sent is None:
            raise error("post.get", 404)
        sent.text = (await request.json())["message"]
        return self.posts[post]

    def write(self, user: str, **post: Any) -> Json:
        at, number = self.now(), next(self.numbers)
        ids: Json = {"id": f"p{number}", "user_id": user, "type": "", "root_id": "", "props": {}}
        made: Json = {**ids, "create_at": at, "update_at": at, "edit_at": 0, "delete_at": 0, **post}
        self.posts[made["id"]] = made
        return made

    # The WebSocket

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        line = web.WebSocketResponse()
        await line.prepare(request)
        try:
            async for message in line:
                if message.type is WSMsgType.TEXT:
                    await self._login(json.loads(message.data), line, request)
        finally:
            if line in self.lines:
                self.lines.remove(line)
        return line

    async def _login(self, asked: Json, line: web.WebSocketResponse, request: web.Request) -> None:
        assert asked["action"] == "authentication_challenge"
        assert asked["data"]["token"] == TOKEN
        await line.send_json({"status": "OK", "seq_reply": 1})
        if request.query.get("connection_id") == f"c{self.connection}":
            missed = [each for each in self.events if each["seq"] >= int(request.query["sequence_number"])]
        else:
            self.connection += 1
            missed = [{"event": "hello", "seq": 0, "data": {"connection_id": f"c{self.connection}"}}]
            self.events = list(missed)
        self.lines.append(line)
        for event in missed:
            await line.send_json(event)

    async def tell(self, event: str, post: Json, **data: Any) -> None:
        told = {"event": event, "seq": len(self.events), "data": {"post": json.dumps(post), **data}}
        self.events.append(told)
        for line in self.lines:
            await line.send_json(told)

    async def forget(self) -> None:
        """Lose what could be resumed, as a restart does."""
        self.connection += 1
        for line in list(self.lines):
            await line.close()


def options_of(url: str) -> MattermostOptions:
    return MattermostOptions.model_validate({"url": url, "token": TOKEN})


class FakeMattermost(CalledChat):
    platform = "mattermost"
    person = ALICE
    chat_id = DIRECT
    fix = "access token"
    refused_as = (
        Refusal(answer=error("x", 429), means=PlatformBusy),
        Refusal(answer=error("x", 401), means=PlatformRefused),
        Refusal(answer=error("x", 403), means=TargetGone),
        Refusal(answer=error("x", 404), means=TargetGone),
        Refusal(answer=error("post.create_post.can_not_post_to_deleted", 400), means=TargetGone),
        Refusal(answer=error("post.create_post.root_id", 400), means=SendRefused),
        Refusal(answer=error("x", 413), means=SendRefused),
        Refusal(answer=error("x", 500), means=SendUnclear),
        Refusal(answer=No({}), means=SendUnclear),
    )

    def __init__(self, server: Mattermost) -> None:
        super().__init__(server)
        self.thread_id = server.write(US, channel_id=self.chat_id, message="root", create_at=1, update_at=1)["id"]

    def adapter(self) -> Adapter:
        adapter = MattermostAdapter(ACCOUNT, options_of(self.server.url))
        forget_names(adapter, "_people")
        return reached(adapter, self.server)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None, **more: Any) -> Source:
        if not self.server.lines:
            self.server.names.append(name)  # it will be looked up
        post = self.server.write(ALICE, channel_id=self.chat_id, message=text, root_id=thread_id or "", **more)
        await self.server.tell("posted", post, sender_name=f"@{name}", channel_type="D")
        return self.source(post["id"], thread_id=thread_id)

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        kept = [
            {"id": self.server.keep(file), "name": file.name, "mime_type": file.media_type, "size": len(file.content)}
            for file in files
        ]
        return await self.say(text, file_ids=[each["id"] for each in kept], metadata={"files": kept})

    async def edit(self, said: Source, text: str) -> None:
        post = self.server.posts[said.message_id]
        at = self.server.now()
        post |= {"message": text, "edit_at": at, "update_at": at}
        await self.server.tell("post_edited", post)

    async def delete(self, said: Source) -> None:
        post = self.server.posts[said.message_id]
        before, at = dict(post), self.server.now()
        post |= {"delete_at": at, "update_at": at}
        await self.server.tell("post_deleted", before)

    async def react(self, receipt: str, sign: str, *, removed: bool = False) -> Source:
        await until(lambda: bool(self.server.lines))  # nobody learns of reactions later
        name = {"👍": "thumbsup_medium_skin_tone", "👎": "-1"}[sign]
        reaction = {"user_id": ALICE, "post_id": receipt, "emoji_name": name, "create_at": self.server.now()}
        told = json.dumps({**reaction, "update_at": 0, "delete_at": 0, "channel_id": self.chat_id})
        await self.server.tell("reaction_removed" if removed else "reaction_added", {}, reaction=told)
        return self.source(receipt)

    async def shown(self) -> Sequence[Shown]:
        roots = {post["root_id"] for post in self.server.posts.values()}
        return [
            Shown(chat_id=each.chat, text=each.text, thread_id=each.thread or (each.id if each.id in roots else None))
            for each in self.server.sent
            if each.file is None
        ]

    async def cut(self) -> None:
        for line in list(self.server.lines):
            await line.close()


class FakeChannel(FakeMattermost):
    kind = "channel"
    chat_id = OPEN

    async def mention(self, text: str) -> Source:
        return await self.say(f"@Helper {text}")

    async def answer(self, receipt: str, text: str) -> Source:
        return await self.say(text, thread_id=receipt)

    async def cut(self) -> None:
        """The server restarts, so the connection cannot be resumed."""
        await self.server.forget()
