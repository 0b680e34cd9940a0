"""The square on Slack: Socket Mode on the loopback, which brings again what was not acknowledged."""

import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from palaver.db.transaction import Statements, transaction
from palaver.store.store import Store
from palaver.testkit.updates import Message
from tests.crash.gateway import ACCOUNT
from tests.crash.square import View, is_group
from tests.platforms.slack.server import Server, serving
from tests.platforms.slack.world import APP_TOKEN, BOT, BOT_TOKEN, BOT_USER, Json, No, World

__all__ = ["SlackSquare", "slack_square"]


@transaction
def _taken_in() -> Statements[int]:
    return (yield "SELECT count(*) FROM inbox", ())[0][0]


_MISHAP = 0.02
"""How often something goes wrong with what is sent."""


@dataclass(kw_only=True)
class SlackSquare:
    server: Server
    platform: str = "slack"
    keeps_position: bool = True
    _chats: list[tuple[str, tuple[str, ...]]] = field(default_factory=list[tuple[str, tuple[str, ...]]])
    _said: int = 0

    @property
    def where(self) -> Mapping[str, Any]:
        return {"bot_token": BOT_TOKEN, "app_token": APP_TOKEN, "api_url": f"{self.server.url}/api"}

    async def settle(self, chats: int) -> None:
        world = self.server.world
        for number in range(chats):
            people = [world.user(f"U{number}X{each}", f"person {each}") for each in range(3 if is_group(number) else 1)]
            chat = world.channel(f"C{number}") if is_group(number) else world.channel(f"D{number}", "im")
            self._chats.append((chat, tuple(people)))

    async def is_heard(self, store: Store) -> bool:
        """What was written before its first connection is not read."""
        return bool(await store.read(store.accounts.read_position(self.platform, ACCOUNT)))

    async def speak(self, chance: random.Random, number: int, order: str) -> str:
        place = chance.randrange(len(self._chats))
        chat, people = self._chats[place]
        word = f"c{place}-{number}"
        name = f"<@{BOT_USER}>" if chat.startswith("C") else ""
        self._go_wrong(chance)
        self._said += 1
        self.server.world.says(chat, chance.choice(people), " ".join(f"{name} {order} {word}".split()))
        return word

    def _go_wrong(self, chance: random.Random) -> None:
        """The connection is lost during a send, before or after it is shown, or there is too much of it, or cut."""
        if chance.random() < _MISHAP:
            self.server.loses = chance.random() < 0.5
        if chance.random() < _MISHAP:
            self.server.world.refuses["chat.postMessage"] = [No("ratelimited", 429, retry_after=1)]
        if chance.random() < _MISHAP:
            self.server.cut()
        if chance.random() < _MISHAP:  # It was away for long, so Slack has given these up.
            self.server.world.envelopes.clear()
            self.server.cut()

    async def waiting(self, store: Store) -> int:
        return self._said - await store.read(_taken_in())

    async def look(self) -> Sequence[View]:
        world = self.server.world
        return [View(id=chat, messages=[_seen(chat, each) for each in world.messages[chat]]) for chat, _ in self._chats]


def _seen(chat: str, message: Json) -> Message:
    number = message["ts"]
    return Message(
        id=number,
        author=message["user"],
        text=message["text"],
        at=datetime.fromtimestamp(float(number), UTC),
        key=f"{chat}:{number}" if message.get("bot_id") == BOT else None,
    )


@asynccontextmanager
async def slack_square() -> AsyncGenerator[SlackSquare]:
    async with serving(World()) as server:
        yield SlackSquare(server=server)
