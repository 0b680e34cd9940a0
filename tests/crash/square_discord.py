"""The square on Discord: its gateway on the loopback, which replays what comes after the number we have kept."""

import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from palaver.db.transaction import Statements, transaction
from palaver.platforms.discord.listen import Position
from palaver.store.store import Store
from palaver.testkit.updates import Message
from tests.crash.gateway import ACCOUNT
from tests.crash.square import View, is_group
from tests.platforms.discord.server import Server, serving
from tests.platforms.discord.world import ALICE, BOT, TOKEN, No, World

__all__ = ["DiscordSquare", "discord_square"]

Json = dict[str, Any]
_GUILD = "500"
_MISHAP = 0.02
"""How often something goes wrong with what is sent."""


@transaction
def _taken_in() -> Statements[int]:
    return (yield "SELECT count(*) FROM inbox", ())[0][0]


@dataclass(kw_only=True)
class DiscordSquare:
    server: Server
    platform: str = "discord"
    keeps_position: bool = True
    _chats: list[tuple[str, tuple[Json, ...]]] = field(default_factory=list[tuple[str, tuple[Json, ...]]])
    _said: int = 0

    @property
    def where(self) -> Mapping[str, Any]:
        return {"token": TOKEN, "api_url": f"{self.server.url}/api/v10"}

    async def settle(self, chats: int) -> None:
        world = self.server.world
        world.guild(_GUILD)
        for number in range(chats):
            people = tuple(_person(1000 + 10 * number + each) for each in range(3 if is_group(number) else 1))
            channel = str(5000 + number)
            if is_group(number):
                world.channel(channel, _GUILD, name=f"group {number}")
            else:
                world.dm(channel)
            self._chats.append((channel, people))

    async def is_heard(self, store: Store) -> bool:
        """Nobody tells a bot what was said before its first session."""
        position = await store.read(store.accounts.read_position(self.platform, ACCOUNT))
        return Position.decode(position).session is not None

    async def speak(self, chance: random.Random, number: int, order: str) -> str:
        place = chance.randrange(len(self._chats))
        channel, people = self._chats[place]
        word = f"c{place}-{number}"
        name = f"<@{BOT['id']}>" if is_group(place) else ""
        self._go_wrong(chance)
        self._said += 1
        self.server.world.says(channel, chance.choice(people), " ".join(f"{name} {order} {word}".split()))
        return word

    def _go_wrong(self, chance: random.Random) -> None:
        """The connection is lost during a send, before or after it is shown, or there is too much of it, or cut."""
        if chance.random() < _MISHAP:
            self.server.loses = chance.random() < 0.5
        if chance.random() < _MISHAP:
            no = No(429, 20_028, "You are being rate limited.", retry_after=1.0)
            self.server.world.refuses.append((r"POST /channels/\d+/messages", no))
        if chance.random() < _MISHAP:
            self.server.cut()

    async def waiting(self, store: Store) -> int:
        return self._said - await store.read(_taken_in())

    async def look(self) -> Sequence[View]:
        said = self.server.world.messages
        return [View(id=channel, messages=[_seen(each) for each in said[channel]]) for channel, _ in self._chats]


def _person(number: int) -> Json:
    return {**ALICE, "id": str(number), "username": f"person{number}", "global_name": f"person {number}"}


def _seen(message: Json) -> Message:
    return Message(
        id=message["id"],
        author=message["author"]["id"],
        text=message["content"],
        at=datetime.fromisoformat(message["timestamp"]),
        key=message["id"] if message["author"] == BOT else None,
    )


@asynccontextmanager
async def discord_square() -> AsyncGenerator[DiscordSquare]:
    async with serving(World()) as server:
        yield DiscordSquare(server=server)
