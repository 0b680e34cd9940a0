"""Rigs: a person on WhatsApp, alone with our number or in a group with it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from palaver.model.attachment import NewFile
from palaver.model.source import Source
from palaver.platforms.whatsapp.cloud import CloudAdapter, WhatsAppOptions
from palaver.protocols.adapter import Receiver
from palaver.protocols.capabilities import HttpRequest, HttpResponse
from palaver.testkit.fake_server import NotPossible, Shown
from tests.platforms.whatsapp.server import APP_SECRET, DISPLAY_NUMBER, NUMBER_ID, TOKEN, VERIFY_TOKEN, No, Server

__all__ = ["ACCOUNT", "ALICE", "GROUP_ID", "FakeDirectChat", "FakeGroup", "adapter_of", "options_of", "said"]

ACCOUNT = "shop"
ALICE = "16505551234"
GROUP_ID = "Y2FwaV9ncm91cDoxNzA1NTU1MDEzOQZD"
_numbers = count(1)


def options_of(server: Server | None = None, **options: Any) -> WhatsAppOptions:
    given = {
        "phone_number_id": NUMBER_ID,
        "token": TOKEN,
        "app_secret": APP_SECRET,
        "verify_token": VERIFY_TOKEN,
        "read_receipts": False,
        **({"api_url": server.url} if server else {}),
    }
    return WhatsAppOptions.model_validate({**given, **options})


class Called(CloudAdapter):
    """Reached at the address of the webhook for as long as it runs. Without the pace that real chats ask for."""

    limits = replace(CloudAdapter.limits, interval=0.0)
    server: Server

    async def run(self, receiver: Receiver) -> None:
        async def hear(call: HttpRequest) -> HttpResponse:
            return await self.handle_callback(call, receiver)

        self.server.calls_us = hear
        try:
            await super().run(receiver)
        finally:
            self.server.calls_us = None


def adapter_of(server: Server, **options: Any) -> Called:
    adapter = Called(ACCOUNT, options_of(server, **options))
    adapter.server = server
    return adapter


def said(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    message_id = f"wamid.HBg{next(_numbers)}"
    return {"from": ALICE, "id": message_id, "timestamp": "1749416383", "type": kind, kind: content, **more}


class _FakeWhatsApp:
    thread_id: str | None = None
    chat_id = ALICE
    kind = "dm"

    def __init__(self, server: Server) -> None:
        self.server = server

    def adapter(self) -> CloudAdapter:
        return adapter_of(self.server)

    def _place(self) -> dict[str, Any]:
        return {}

    def _push(self, message: dict[str, Any], name: str = "alice") -> Source:
        self.server.push(message, contacts=({"profile": {"name": name}, "wa_id": ALICE},))
        return self._source(message["id"])

    def _source(self, message_id: str) -> Source:
        return Source(
            platform="whatsapp",
            account=ACCOUNT,
            chat_kind=self.kind,
            chat_id=self.chat_id,
            user_id=ALICE,
            message_id=message_id,
        )

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        del thread_id
        return self._push(said("text", {"body": text}, **self._place()), name)

    async def react(self, receipt: str, sign: str, *, removed: bool = False) -> Source:
        """What is taken back has no emoji."""
        content = {"message_id": receipt, **({} if removed else {"emoji": sign})}
        return self._push(said("reaction", content, **self._place()))

    async def edit(self, said_before: Source, text: str) -> None:
        inner = {"type": "text", "text": {"body": text}}
        changed = {"original_message_id": said_before.message_id, "message": inner}
        self._push(said("edit", changed, timestamp="1749416390", **self._place()))

    async def delete(self, said_before: Source) -> None:
        changed = {"original_message_id": said_before.message_id}
        self._push(said("revoke", changed, timestamp="1749416399", **self._place()))

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        """As many messages as files, the words with the first."""
        sources: list[Source] = []
        for file in files:
            media_id = f"media{len(self.server.media)}"
            self.server.media[media_id] = (file.name, file.media_type, file.content)
            document = {"id": media_id, "mime_type": file.media_type, "sha256": "x", "filename": file.name}
            caption = {} if sources else {"caption": text}
            sources.append(self._push(said("document", {**document, **caption}, **self._place())))
        return sources[0]

    async def shown(self) -> Sequence[Shown]:
        return [Shown(chat_id=each["chat"], text=_text_of(each)) for each in self.server.sent]

    async def shown_files(self) -> Sequence[NewFile]:
        files = [self.server.media[each[each["type"]]["id"]] for each in self.server.sent if "id" in each[each["type"]]]
        return [NewFile(name, content) for name, _, content in files]

    async def cut(self) -> None:
        raise NotPossible("WhatsApp calls: there is no connection that could be cut")

    async def limit_rate(self) -> None:
        self.server.refuses.append(No(400, 131056, "(#131056) Pair rate limit hit"))

    async def lose_send(self, *, shown: bool) -> None:
        self.server.loses = shown

    async def close_chat(self) -> None:
        self.server.gone.add(self.chat_id)


class FakeDirectChat(_FakeWhatsApp):
    async def choices(self) -> Sequence[str]:
        return [button["title"] for button in self._buttons()]

    async def press(self, label: str) -> Source:
        pressed = next(button for button in self._buttons() if button["title"] == label)
        context = {"from": DISPLAY_NUMBER, "id": self.server.sent[-1]["id"]}
        return self._push(said("interactive", {"type": "button_reply", "button_reply": pressed}, context=context))

    def _buttons(self) -> list[dict[str, Any]]:
        shown = self.server.sent[-1]["interactive"]["action"]["buttons"]
        return [button["reply"] for button in shown]


class FakeGroup(_FakeWhatsApp):
    """A group of the Groups API, which shows no buttons."""

    chat_id = GROUP_ID
    kind = "group"

    def _place(self) -> dict[str, Any]:
        return {"group_id": GROUP_ID}

    async def mention(self, text: str) -> Source:
        return await self.say(f"@{DISPLAY_NUMBER} {text}")

    async def answer(self, receipt: str, text: str) -> Source:
        return self._push(
            said("text", {"body": text}, context={"from": DISPLAY_NUMBER, "id": receipt}, **self._place())
        )


def _text_of(message: dict[str, Any]) -> str:
    match message["type"]:
        case "text":
            return message["text"]["body"]
        case "interactive":
            return message["interactive"]["body"]["text"]
        case kind:
            return message[kind].get("caption", "")
