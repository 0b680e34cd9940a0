"""Rigs: a person on Telegram, in a forum whose bot asks for messages, and in private where the bot is called."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palaver.model.attachment import NewFile
from palaver.model.source import Source
from palaver.platforms.telegram.adapter import TelegramAdapter
from palaver.platforms.telegram.client import TelegramOptions
from palaver.protocols.adapter import Receiver
from palaver.protocols.capabilities import HttpRequest, HttpResponse, MenuCommand
from palaver.testkit.fake_server import NotPossible, Shown
from tests.platforms.telegram.server import Server
from tests.platforms.telegram.world import TOKEN, Chat, No

__all__ = ["ACCOUNT", "ALICE", "WEBHOOK", "FakeCallbacks", "FakeForum", "adapter_of", "options_of"]

ACCOUNT = "helper"
ALICE: dict[str, Any] = {"id": 7, "is_bot": False, "first_name": "alice"}


WEBHOOK = {"mode": "webhook", "public_url": "https://bot.example.org"}


def options_of(server: Server, **options: Any) -> TelegramOptions:
    return TelegramOptions.model_validate({"token": TOKEN, "api_url": server.url, **options})


def adapter_of(server: Server, **options: Any) -> TelegramAdapter:
    """Without the pace that real chats ask for."""
    adapter = TelegramAdapter(ACCOUNT, options_of(server, **options))
    adapter.limits = replace(adapter.limits, interval=0.0)
    return adapter


class _FakeTelegram:
    thread_id: str | None = "77"
    kind = "group"

    def __init__(self, server: Server) -> None:
        self.server = server
        self.world = server.world
        self._chat = self._make_chat()
        self._said: dict[str, dict[str, Any]] = {}

    def _make_chat(self) -> Chat:
        return self.world.chat(-1001, "supergroup", title="Dev", topics={77})

    @property
    def chat_id(self) -> str:
        return str(self._chat.id)

    def adapter(self) -> TelegramAdapter:
        return adapter_of(self.server)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        message = self.world.says(
            self._chat, {**ALICE, "first_name": name}, text, topic=int(thread_id) if thread_id else None
        )
        self.world.push(message)
        return self._source(message)

    def _source(self, message: dict[str, Any]) -> Source:
        thread = message.get("message_thread_id")
        self._said[str(message["message_id"])] = message
        return Source(
            platform="telegram",
            account=ACCOUNT,
            chat_kind=self.kind,
            chat_id=self.chat_id,
            thread_id=str(thread) if thread else None,
            user_id=str(message["from"]["id"]),
            message_id=str(message["message_id"]),
        )

    async def edit(self, said: Source, text: str) -> None:
        self.world.push(self.world.edited(self._said[said.message_id or ""], text), "edited_message")

    async def delete(self, said: Source) -> None:
        del said
        raise NotPossible("nobody tells a bot that a message was deleted")

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        """An album: as many messages as files, the words with the first."""
        sources: list[Source] = []
        for file in files:
            handle = f"file-{len(self.world.files)}"
            self.world.files[handle] = file.content
            about = {"file_id": handle, "file_unique_id": handle, "file_size": len(file.content)}
            document = {**about, "file_name": file.name, "mime_type": file.media_type}
            message = self.world.says(self._chat, ALICE, document=document, media_group_id="album")
            if not sources:
                message["caption"] = text
            self.world.push(message)
            sources.append(self._source(message))
        return sources[0]

    async def mention(self, text: str) -> Source:
        return await self.say(f"@helper_bot, {text}")

    async def answer(self, receipt: str, text: str) -> Source:
        ours = next(each for each in self.world.sent if str(each["message_id"]) == receipt)
        message = self.world.says(self._chat, ALICE, text, reply_to_message=ours)
        self.world.push(message)
        return self._source(message)

    async def choices(self) -> Sequence[str]:
        return [button["text"] for button in self._buttons()]

    async def press(self, label: str) -> Source:
        data = next(button["callback_data"] for button in self._buttons() if button["text"] == label)
        self.world.press(ALICE, self.world.sent[-1], data)
        return self._source({**self.world.sent[-1], "from": ALICE})

    async def react(self, receipt: str, sign: str, *, removed: bool = False) -> Source:
        ours = next(each for each in self.world.sent if str(each["message_id"]) == receipt)
        self.world.react(ALICE, ours, sign, removed=removed)
        return self._source({**ours, "from": ALICE})

    def _buttons(self) -> list[dict[str, Any]]:
        markup: dict[str, Any] = self.world.sent[-1].get("reply_markup") or {"inline_keyboard": []}
        return [button for row in markup["inline_keyboard"] for button in row]

    async def menu(self) -> Sequence[MenuCommand]:
        return [MenuCommand(name=each["command"], help=each["description"]) for each in self.world.commands]

    async def shown(self) -> Sequence[Shown]:
        return [
            Shown(
                chat_id=str(message["chat"]["id"]),
                text=message.get("text", ""),
                thread_id=str(message["message_thread_id"]) if "message_thread_id" in message else None,
            )
            for message in self.world.sent
        ]

    async def shown_files(self) -> Sequence[NewFile]:
        return [NewFile(name, content) for _, name, content in self.world.uploads]

    async def cut(self) -> None:
        self.server.cut()

    async def limit_rate(self) -> None:
        self.world.refuses["sendmessage"] = [No(429, "Too Many Requests: retry after 7", retry_after=7)]

    async def lose_send(self, *, shown: bool) -> None:
        self.server.loses = shown

    async def close_chat(self) -> None:
        self._chat.is_gone = No(403, "Forbidden: bot was kicked from the supergroup chat")


class FakeForum(_FakeTelegram):
    """A supergroup with topics; the bot asks."""

    async def move_chat(self) -> str:
        self._chat = self.world.upgrade(self._chat, -1002)
        return self.chat_id


class _Called(TelegramAdapter):
    """Reached at the address of the webhook for as long as it runs."""

    server: Server

    async def run(self, receiver: Receiver) -> None:
        async def hear(call: HttpRequest) -> HttpResponse:
            return await self.handle_callback(call, receiver)

        self.server.calls_us = hear
        try:
            await super().run(receiver)
        finally:
            self.server.calls_us = None


class FakeCallbacks(_FakeTelegram):
    """A private chat with topics; the bot is called."""

    kind = "dm"

    def _make_chat(self) -> Chat:
        return self.world.chat(7, topics={77})

    def adapter(self) -> TelegramAdapter:
        adapter = _Called(ACCOUNT, options_of(self.server, **WEBHOOK))
        adapter.limits, adapter.server = replace(adapter.limits, interval=0.0), self.server
        return adapter

    async def close_chat(self) -> None:
        self._chat.is_gone = No(403, "Forbidden: bot was blocked by the user")

    async def cut(self) -> None:
        raise NotPossible("Telegram calls: there is no connection that could be cut")
