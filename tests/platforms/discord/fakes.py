"""A person on Discord, in a channel of a server with a thread, and in private with the bot."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palaver.model.attachment import NewFile
from palaver.model.source import CHANNEL, DM, Source
from palaver.platforms.discord.adapter import DiscordAdapter
from palaver.platforms.discord.client import DiscordOptions
from palaver.protocols.capabilities import MenuCommand
from palaver.testkit.fake_server import Shown
from tests.platforms.discord.server import Server
from tests.platforms.discord.world import ALICE, BOT, TOKEN, No

__all__ = ["ACCOUNT", "GUILD", "ROOM", "THREAD", "FakeDirect", "FakeServerChannel", "adapter_of", "seen"]

ACCOUNT = "helper"
GUILD, ROOM, THREAD = "500", "501", "502"


def adapter_of(server: Server, **options: Any) -> DiscordAdapter:
    """Without the pace that real channels ask for."""
    given = {"token": TOKEN, "api_url": f"{server.url}/api/v10", **options}
    adapter = DiscordAdapter(ACCOUNT, DiscordOptions.model_validate(given))
    adapter.limits = replace(adapter.limits, interval=0.0)
    return adapter


def seen(text: str) -> str:
    """As people see a text without marks: a backslash hides itself before punctuation."""
    return re.sub(r"\\([^0-9A-Za-z\s])", r"\1", text)


class FakeServerChannel:
    """A channel of a server, with a thread."""

    thread_id: str | None = THREAD
    kind, scope = CHANNEL, GUILD

    def __init__(self, server: Server) -> None:
        self.server, self.world = server, server.world
        self._said: dict[str, dict[str, Any]] = {}
        self.chat_id = self._make_chat()

    def _make_chat(self) -> str:
        self.world.guild(GUILD)
        self.world.channel(ROOM, GUILD, name="dev", topic="What we build")
        self.world.channel(THREAD, GUILD, 11, name="plans", parent_id=ROOM, owner_id=ALICE["id"])
        return ROOM

    def adapter(self) -> DiscordAdapter:
        return adapter_of(self.server)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        await self.world.begun.wait()
        return self._source(self.world.says(thread_id or self.chat_id, {**ALICE, "global_name": name}, text))

    def _source(self, message: dict[str, Any]) -> Source:
        self._said[message["id"]] = message
        channel = message["channel_id"]
        return Source(
            platform="discord",
            account=ACCOUNT,
            chat_kind=self.kind,
            chat_id=self.chat_id,
            thread_id=None if channel == self.chat_id else channel,
            scope_id=self.scope or None,
            user_id=message["author"]["id"],
            message_id=message["id"],
        )

    async def edit(self, said: Source, text: str) -> None:
        self.world.edits(self._said[said.message_id or ""], text)

    async def delete(self, said: Source) -> None:
        self.world.deletes(self._said[said.message_id or ""])

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        attached: list[dict[str, Any]] = []
        for file in files:
            number = self.world.new_id()
            self.world.files[number] = file.content
            about = {"filename": file.name, "content_type": file.media_type, "size": len(file.content)}
            attached.append({"id": number, "url": f"{self.server.url}/cdn/{number}", **about})
        await self.world.begun.wait()
        return self._source(self.world.says(self.chat_id, ALICE, text, attachments=attached))

    async def shown_files(self) -> Sequence[NewFile]:
        return [NewFile(name, content) for name, content in self.world.uploads]

    async def mention(self, text: str) -> Source:
        return await self.say(f"<@{BOT['id']}> {text}")

    async def answer(self, receipt: str, text: str) -> Source:
        ours = next(each for each in self.world.sent if each["id"] == receipt)
        reference = {"message_id": receipt, "channel_id": self.chat_id}
        said = self.world.says(self.chat_id, ALICE, text, kind=19, message_reference=reference, referenced_message=ours)
        return self._source(said)

    def _buttons(self) -> list[dict[str, Any]]:
        return [button for row in self.world.sent[-1]["components"] for button in row["components"]]

    async def choices(self) -> Sequence[str]:
        return [button["label"] for button in self._buttons()]

    async def press(self, label: str) -> Source:
        await self.world.begun.wait()
        chosen = next(button["custom_id"] for button in self._buttons() if button["label"] == label)
        self.world.press(ALICE, self.world.sent[-1], chosen)
        return self._source({**self.world.sent[-1], "author": ALICE})

    async def react(self, receipt: str, sign: str, *, removed: bool = False) -> Source:
        await self.world.begun.wait()
        ours = next(each for each in self.world.sent if each["id"] == receipt)
        self.world.react(ALICE, ours, sign, removed=removed)
        return self._source({**ours, "author": ALICE})

    async def menu(self) -> Sequence[MenuCommand]:
        return [MenuCommand(name=each["name"], help=each["description"]) for each in self.world.commands]

    async def shown(self) -> Sequence[Shown]:
        return [
            Shown(
                chat_id=self.world.channels[each["channel_id"]].get("parent_id") or each["channel_id"],
                text=seen(each["content"]),
                thread_id=None if each["channel_id"] == self.chat_id else each["channel_id"],
            )
            for each in self.world.sent
        ]

    async def cut(self) -> None:
        self.server.cut()

    async def limit_rate(self) -> None:
        no = No(429, 20_028, "You are being rate limited.", retry_after=7.5, **{"global": False})
        self.world.refuses.append((r"POST /channels/\d+/messages", no))

    async def lose_send(self, *, shown: bool) -> None:
        self.server.loses = shown

    async def close_chat(self) -> None:
        self.world.gone.add(self.chat_id)


class FakeDirect(FakeServerChannel):
    """A direct chat."""

    thread_id: str | None = None
    kind, scope = DM, ""

    def _make_chat(self) -> str:
        self.world.dm("700")
        return "700"

    async def close_chat(self) -> None:
        self.world.refuses.append(
            (r"POST /channels/\d+/messages", No(403, 50_007, "Cannot send messages to this user"))
        )
