"""The Bot Framework on the loopback, as Microsoft's documentation describes it, and a person in Teams."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from typing import Any, ClassVar
from urllib.parse import unquote

from aiohttp import web

from palaver.platforms.teams.adapter import TeamsAdapter, TeamsOptions
from palaver.protocols import Adapter, HttpRequest, NewFile, PlatformBusy, SendRefused, SendUnclear, Source, TargetGone
from palaver.testkit.fake_server import Refusal
from tests.platforms.called import ACCOUNT, CalledChat, Json, Loopback, No, Sent, reached
from tests.platforms.jwts import public_keys, signed

APP, SECRET, TENANT = "0a1b2c3d-0000-4000-8000-000000000000", "teams-secret", "tenant-1"
US, ALICE, ALICE_AAD = f"28:{APP}", "29:1alice", "4c0bd3c4-8a5e-4e0e-9f0c-0f6a0c3f6a11"
PERSONAL, GROUP_ID, CHANNEL_ID = "a:1pL6i0", "19:g@thread.v2", "19:c@thread.tacv2"


def token_for(service: str, **more: Any) -> str:
    return f"Bearer {signed({'iss': 'https://api.botframework.com', 'aud': APP, 'serviceurl': service, **more})}"


def call(activity: Json, token: str | None = None) -> HttpRequest:
    headers = {"authorization": token_for(activity["serviceUrl"]) if token is None else token}
    return HttpRequest(method="POST", headers=headers, body=json.dumps(activity).encode())


def options_of(url: str) -> TeamsOptions:
    given = {"app_id": APP, "app_secret": SECRET, "tenant": TENANT, "service_url": f"{url}/default"}
    return TeamsOptions.model_validate({**given, "login_url": url, "keys_url": f"{url}/openid"})


def error(code: str, status: int) -> No:
    return No({"error": {"code": code, "message": f"No: {code}"}}, status)


@dataclass
class Teams(Loopback):
    busy: ClassVar[No] = No({"error": {"code": "Throttled", "message": "x"}}, 429, {"retry-after": "3"})
    closed: ClassVar[No] = error("BotNotInConversationRoster", 403)
    wrong: ClassVar[No] = No({"error": "invalid_client", "error_description": "AADSTS7000215"}, 401)
    typed: list[str] = field(default_factory=list[str])

    async def api(self, method: str, path: str, request: web.Request) -> object:
        match method, path.strip("/").split("/"):
            case "GET", ["openid"]:
                return {"issuer": "https://api.botframework.com", "jwks_uri": f"{self.url}/keys"}
            case "GET", ["keys"]:
                return {"keys": public_keys(endorsements=["msteams"])}
            case "POST", ["tenant-1", "oauth2", "v2.0", "token"]:
                asked = await request.post()
                assert (asked["client_id"], asked["client_secret"]) == (APP, SECRET)
                assert asked["scope"] == "https://api.botframework.com/.default"
                return {"access_token": self.new_token(), "expires_in": 3599, "token_type": "Bearer"}
            case _:
                return await self._service(method, request)

    async def _service(self, method: str, request: web.Request) -> object:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            raise No({"message": "Authorization has been denied for this request."}, 401)
        match method, [unquote(part) for part in request.raw_path.strip("/").split("/")]:
            case "GET", ["default", "files", handle]:
                return self.files[handle]
            case "POST", ["amer" | "default" as service, "v3", "conversations", chat, "activities"]:
                return await self._post(request, service, chat)
            case "PUT", [_, "v3", "conversations", _, "activities", receipt]:
                sent = next((each for each in self.sent if each.id == receipt), None)
                if sent is None:
                    raise error("ActivityNotFoundInConversation", 404)
                sent.raw = await request.json()
                sent.text = shown_text(sent.raw["text"])
                return {"id": receipt}
            case _:
                raise error("ServiceError", 404)

    async def _post(self, request: web.Request, service: str, conversation: str) -> Json:
        asked, (chat, _, thread) = await request.json(), conversation.partition(";messageid=")
        if asked["type"] == "typing":
            self.typed.append(conversation)
            return {}
        if len(json.dumps(asked, ensure_ascii=False).encode()) > 28_000:
            raise error("MessageSizeTooBig", 413)
        receipt = f"b{next(self.numbers)}"
        raw = {**asked, "service": service}
        await self.show(request, Sent(chat, shown_text(asked["text"]), receipt, raw, thread or None))
        return {"id": receipt}


def shown_text(text: str) -> str:
    return unescape(re.sub(r"</?p>", "", text.replace("<br>", "\n")))


class FakeTeams(CalledChat):
    platform = "teams"
    person = ALICE
    chat_id = PERSONAL
    conversation = PERSONAL
    type_of_chat = "personal"
    fix = "client secret"
    foreign = (
        "http://x.sharepoint.com/a",
        "https://sharepoint.com.evil.example/a",
        "http://169.254.169.254/",
        None,
    )
    refused_as = (
        Refusal(answer=error("x", 429), means=PlatformBusy),
        Refusal(answer=error("PreconditionFailed", 412), means=PlatformBusy),
        Refusal(answer=error("BotNotInConversationRoster", 403), means=TargetGone),
        Refusal(answer=error("x", 403), means=TargetGone),
        Refusal(answer=error("ConversationNotFound", 404), means=TargetGone),
        Refusal(answer=error("BadSyntax", 400), means=SendRefused),
        Refusal(answer=error("MessageSizeTooBig", 413), means=SendRefused),
        Refusal(answer=error("ServiceError", 502), means=SendUnclear),
        Refusal(answer=No({}), means=SendUnclear),
    )

    def adapter(self) -> Adapter:
        return reached(TeamsAdapter(ACCOUNT, options_of(self.server.url)), self.server)

    def activity(self, kind: str, number: object, name: str = "alice", **more: Any) -> Json:
        conversation: Json = {"id": self.conversation, "conversationType": self.type_of_chat, "tenantId": TENANT}
        return {
            "type": kind,
            "id": str(number),
            "timestamp": f"2026-05-01T10:00:{next(self.server.numbers) % 60:02}.5110000Z",
            "serviceUrl": f"{self.server.url}/amer/",
            "channelId": "msteams",
            "from": {"id": ALICE, "name": name, "aadObjectId": ALICE_AAD},
            "conversation": conversation,
            "recipient": {"id": US, "name": "Helper"},
            **more,
        }

    def _push(self, number: object, name: str = "alice", kind: str = "message", **more: Any) -> Source:
        self.server.push(call(self.activity(kind, number, name, **more)), name)
        return self.source(str(number), user_id_alt=ALICE_AAD, thread_id=self.thread_id)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None, **more: Any) -> Source:
        assert thread_id == self.thread_id or not thread_id
        return self._push(next(self.server.numbers), name, text=escape(text, quote=False), **more)

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        attachments = [
            {"contentType": "image/*", "name": file.name, "contentUrl": f"{self.server.url}/default/files/{handle}"}
            for file, handle in ((file, self.server.keep(file)) for file in files)
        ]
        return await self.say(text, attachments=[*attachments, {"contentType": "text/html", "content": text}])

    async def edit(self, said: Source, text: str) -> None:
        self._push(
            said.message_id,
            kind="messageUpdate",
            text=escape(text, quote=False),
            channelData={"eventType": "editMessage"},
        )

    async def delete(self, said: Source) -> None:
        self._push(said.message_id, kind="messageDelete", channelData={"eventType": "softDeleteMessage"})

    async def choices(self) -> Sequence[str]:
        return [action["title"] for action in self._actions()]

    async def press(self, label: str) -> Source:
        data = next(action["data"] for action in self._actions() if action["title"] == label)
        return self._push(next(self.server.numbers), value=data, replyToId=self.server.sent[-1].id)

    async def react(self, receipt: str, sign: str, *, removed: bool = False) -> Source:
        kind = {"👍": "like", "👎": "no-tone2"}[sign]
        given: Json = {"reactionsRemoved" if removed else "reactionsAdded": [{"type": kind}]}
        return self._push(f"f:{next(self.server.numbers)}", kind="messageReaction", replyToId=receipt, **given)

    def _actions(self) -> list[Json]:
        return [each for card in self.server.sent[-1].raw.get("attachments", ()) for each in card["content"]["actions"]]


class FakeGroup(FakeTeams):
    kind = "group"
    chat_id = conversation = GROUP_ID
    type_of_chat = "groupChat"

    async def mention(self, text: str) -> Source:
        mention = {"type": "mention", "mentioned": {"id": US, "name": "Helper"}, "text": "<at>Helper</at>"}
        shown = f"<at>Helper</at> {escape(text, quote=False)}"
        return self._push(next(self.server.numbers), text=shown, entities=[{"type": "clientInfo"}, mention])

    async def answer(self, receipt: str, text: str) -> Source:
        return await self.say(text, replyToId=receipt)


class FakeThread(FakeTeams):
    kind = "channel"
    chat_id, thread_id = CHANNEL_ID, "1712"
    conversation = f"{CHANNEL_ID};messageid=1712"
    type_of_chat = "channel"
