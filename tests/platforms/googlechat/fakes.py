"""Google Chat on the loopback, as its documentation describes it, and a person there."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import unquote

import jwt
from aiohttp import web

from palaver.platforms.googlechat.adapter import GoogleChatAdapter, GoogleChatOptions
from palaver.protocols import Adapter, HttpRequest, NewFile, PlatformBusy, SendRefused, SendUnclear, Source, TargetGone
from palaver.testkit.fake_server import Refusal
from tests.platforms.called import ACCOUNT, CalledChat, Json, Loopback, No, Sent, reached
from tests.platforms.jwts import pem, private_key, public_keys, signed

PROJECT, EMAIL, ALICE = "1234567890", "helper@p.iam.gserviceaccount.com", "users/107946847022116401880"
DIRECT = {"name": "spaces/dm", "spaceType": "DIRECT_MESSAGE", "type": "DM"}
ROOM = {"name": "spaces/room", "spaceType": "SPACE", "type": "ROOM", "displayName": "Dev"}
THREAD = "spaces/room/threads/t1"


def token_of(**claims: Any) -> str:
    return f"Bearer {signed({'iss': 'chat@system.gserviceaccount.com', 'aud': PROJECT, **claims})}"


def call(event: Json, token: str | None = None) -> HttpRequest:
    headers = {"authorization": token_of() if token is None else token}
    return HttpRequest(method="POST", headers=headers, body=json.dumps(event).encode())


def options_of(url: str, **more: Any) -> GoogleChatOptions:
    key = {"type": "service_account", "client_email": EMAIL, "private_key": pem(), "private_key_id": "k1"}
    given = {"project_number": PROJECT, "service_account": json.dumps(key), "api_url": url}
    return GoogleChatOptions.model_validate({**given, "token_url": f"{url}/token", "keys_url": f"{url}/keys", **more})


def error(status: str, code: int) -> No:
    return No({"error": {"code": code, "message": f"No: {status}", "status": status}}, code)


@dataclass
class GoogleChat(Loopback):
    busy: ClassVar[No] = error("RESOURCE_EXHAUSTED", 429)
    closed: ClassVar[No] = error("PERMISSION_DENIED", 403)
    wrong: ClassVar[No] = No({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, 400)
    accepted: dict[str, Json] = field(default_factory=dict[str, Json])
    """Messages by their request id."""

    async def api(self, method: str, path: str, request: web.Request) -> object:
        if path == "/keys":
            return {"keys": public_keys()}
        if path == "/token":
            asked = await request.post()
            assert asked["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
            audience, key = f"{self.url}/token", private_key().public_key()
            claims = jwt.decode(str(asked["assertion"]), key, algorithms=["RS256"], audience=audience)
            assert (claims["iss"], claims["scope"]) == (EMAIL, "https://www.googleapis.com/auth/chat.bot")
            return {"access_token": self.new_token(), "expires_in": 3599}
        if request.headers.get("authorization") != f"Bearer {self.token}":
            raise error("UNAUTHENTICATED", 401)
        parts = [unquote(part) for part in request.raw_path.partition("?")[0].removeprefix("/v1/").split("/")]
        return await self._answer(method, parts, request)

    async def _answer(self, method: str, parts: list[str], request: web.Request) -> object:
        match method, parts:
            case "GET", ["spaces"]:
                return {}
            case "GET", ["media", handle]:
                assert request.query["alt"] == "media"
                return self.files[handle]
            case "POST", ["spaces", space, "messages"]:
                return await self._post(f"spaces/{space}", request)
            case "PATCH", ["spaces", _, "messages", _] if sent := self._find("/".join(parts)):
                assert request.query["updateMask"] == "text,cardsV2"
                sent.raw = await request.json()
                sent.text = sent.raw["text"]
                return {"name": sent.id}
            case _:
                raise error("NOT_FOUND", 404)

    def _find(self, name: str) -> Sent | None:
        return next((each for each in self.sent if each.id == name), None)

    async def _post(self, space: str, request: web.Request) -> Json:
        key, asked = request.query["requestId"], await request.json()
        if key in self.accepted:
            return self.accepted[key]
        if len(asked["text"]) > 4096:
            raise error("INVALID_ARGUMENT", 400)
        thread = asked.get("thread", {}).get("name")
        assert not thread or request.query["messageReplyOption"] == "REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD"
        made = {"name": f"{space}/messages/b{next(self.numbers)}"}
        await self.show(request, Sent(space, asked["text"], made["name"], asked, thread))
        self.accepted[key] = made
        return made


class FakeGoogleChat(CalledChat):
    platform = "googlechat"
    person = ALICE
    space: ClassVar[Json] = DIRECT
    chat_id = "spaces/dm"
    fix = "service account"
    signs_content = False
    refused_as = (
        Refusal(answer=error("RESOURCE_EXHAUSTED", 429), means=PlatformBusy),
        Refusal(answer=error("PERMISSION_DENIED", 403), means=TargetGone),
        Refusal(answer=error("NOT_FOUND", 404), means=TargetGone),
        Refusal(answer=error("INVALID_ARGUMENT", 400), means=SendRefused),
        Refusal(answer=error("INTERNAL", 500), means=SendUnclear),
        Refusal(answer=No({}), means=SendUnclear),
    )

    def adapter(self) -> Adapter:
        return reached(GoogleChatAdapter(ACCOUNT, options_of(self.server.url)), self.server)

    def event(self, kind: str, message: Json, name: str = "alice", **more: Any) -> Json:
        user = {"name": ALICE, "displayName": name, "type": "HUMAN"}
        when = f"2026-05-01T10:00:00.{next(self.server.numbers):06}Z"
        thread = {"name": self.thread_id or f"{self.chat_id}/threads/x"}
        said = {"sender": user, "createTime": when, "thread": thread, **message}
        return {"type": kind, "eventTime": when, "space": self.space, "user": user, "message": said, **more}

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None, **more: Any) -> Source:
        assert thread_id in {None, self.thread_id}
        message = {"name": f"{self.chat_id}/messages/m{next(self.server.numbers)}", "text": text, **more}
        self.server.push(call(self.event("MESSAGE", message, name)), name)
        return self.source(message["name"], thread_id=self.thread_id)

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        kept = [
            {
                "contentName": file.name,
                "contentType": file.media_type,
                "attachmentDataRef": {"resourceName": self.server.keep(file)},
            }
            for file in files
        ]
        return await self.say(text, attachment=[*kept, {"source": "DRIVE_FILE", "driveDataRef": {}}])

    async def choices(self) -> Sequence[str]:
        return [button["text"] for button in self._buttons()]

    async def press(self, label: str) -> Source:
        action = next(button["onClick"]["action"] for button in self._buttons() if button["text"] == label)
        clicked = {"actionMethodName": action["function"], "parameters": action["parameters"]}
        sent = self.server.sent[-1]
        self.server.push(call(self.event("CARD_CLICKED", {"name": sent.id, "text": sent.text}, action=clicked)))
        return self.source("", thread_id=self.thread_id)

    def _buttons(self) -> list[Json]:
        return [
            button
            for each in self.server.sent[-1].raw["cardsV2"]
            for widget in each["card"]["sections"][0]["widgets"]
            for button in widget["buttonList"]["buttons"]
        ]


class FakeRoom(FakeGoogleChat):
    kind = "group"
    space: ClassVar[Json] = ROOM
    chat_id, thread_id = "spaces/room", THREAD

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None, **more: Any) -> Source:
        return await super().say(f"@Helper {text}", name=name, thread_id=thread_id, argumentText=f" {text}", **more)
