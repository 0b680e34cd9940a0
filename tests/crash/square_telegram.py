"""The square on Telegram: the Bot API on the loopback, which tells again what was not confirmed."""

import random
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from palaver.store.store import Store
from palaver.testkit.updates import Message
from tests.crash.square import View, is_group
from tests.platforms.telegram.server import Server, serving
from tests.platforms.telegram.world import BOT, TOKEN, Chat, No, World

__all__ = ["TelegramSquare", "telegram_square"]

Json = dict[str, Any]
_MISHAP = 0.02
"""How often something goes wrong with what is sent."""


@dataclass(kw_only=True)
class TelegramSquare:
    server: Server
    platform: str = "telegram"
    keeps_position: bool = False
    _chats: list[tuple[Chat, tuple[Json, ...]]] = field(default_factory=list[tuple[Chat, tuple[Json, ...]]])
    _said: dict[int, list[Json]] = field(default_factory=lambda: defaultdict[int, list[Json]](list))

    @property
    def where(self) -> Mapping[str, Any]:
        return {"token": TOKEN, "api_url": self.server.url}

    async def settle(self, chats: int) -> None:
        for number in range(chats):
            people = tuple(_person(1000 + 10 * number + each) for each in range(3 if is_group(number) else 1))
            kind, chat_id = ("group", -1 - number) if is_group(number) else ("private", people[0]["id"])
            title = f"group {number}" if is_group(number) else None
            self._chats.append((self.server.world.chat(chat_id, kind, title=title), people))

    async def is_heard(self, store: Store) -> bool:
        del store
        return True

    async def speak(self, chance: random.Random, number: int, order: str) -> str:
        place = chance.randrange(len(self._chats))
        chat, people = self._chats[place]
        word = f"c{place}-{number}"
        name = f"@{BOT['username']}" if chat.type == "group" else ""
        message = self.server.world.says(chat, chance.choice(people), " ".join(f"{name} {order} {word}".split()))
        self._said[chat.id].append(message)
        self._go_wrong(chance)
        self.server.world.push(message)
        return word

    def _go_wrong(self, chance: random.Random) -> None:
        """The connection is lost during a send, before or after it is shown, or there is too much of it, or cut."""
        if chance.random() < _MISHAP:
            self.server.loses = chance.random() < 0.5
        if chance.random() < _MISHAP:
            self.server.world.refuses["sendmessage"] = [No(429, "Too Many Requests: retry after 1", retry_after=1)]
        if chance.random() < _MISHAP:
            self.server.cut()

    async def waiting(self, store: Store) -> int:
        del store
        return len(self.server.world.updates)

    async def look(self) -> Sequence[View]:
        """A chat numbers everything in it, no matter who says it."""
        sent = defaultdict[int, list[Json]](list)
        for message in self.server.world.sent:
            sent[message["chat"]["id"]].append(message)
        return [
            View(
                id=str(chat.id),
                messages=[
                    _seen(message)
                    for message in sorted([*self._said[chat.id], *sent[chat.id]], key=lambda each: each["message_id"])
                ],
            )
            for chat in self.server.world.chats.values()
        ]


def _person(number: int) -> Json:
    return {"id": number, "is_bot": False, "first_name": f"person {number}"}


def _seen(message: Json) -> Message:
    number, author = str(message["message_id"]), str(message["from"]["id"])
    return Message(
        id=number,
        author=author,
        text=message["text"],
        at=datetime.fromtimestamp(message["date"], UTC),
        key=f"{message['chat']['id']}:{number}" if message["from"] == BOT else None,
    )


@asynccontextmanager
async def telegram_square() -> AsyncGenerator[TelegramSquare]:
    async with serving(World()) as server:
        yield TelegramSquare(server=server)
