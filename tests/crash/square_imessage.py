"""The square on iMessage: a BlueBubbles server on the loopback, which is asked from the position that we kept."""

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
from tests.platforms.imessage.server import PASSWORD, Server, serving, web
from tests.platforms.imessage.world import US, Json, Mac

__all__ = ["IMessageSquare", "imessage_square"]

_MISHAP = 0.02
"""How often something goes wrong with what is sent."""


@transaction
def _taken_in() -> Statements[int]:
    return (yield "SELECT count(*) FROM inbox", ())[0][0]


@dataclass(kw_only=True)
class IMessageSquare:
    server: Server
    platform: str = "imessage"
    keeps_position: bool = True
    _chats: list[tuple[str, Sequence[str]]] = field(default_factory=list[tuple[str, Sequence[str]]])
    _said: int = 0

    @property
    def where(self) -> Mapping[str, Any]:
        return {"url": self.server.url, "password": PASSWORD, "poll_seconds": 0.05}

    async def settle(self, chats: int) -> None:
        for number in range(chats):
            people = [f"+1555{100 * number + each:07}" for each in range(3 if is_group(number) else 1)]
            guid = f"iMessage;+;chat{number}" if is_group(number) else f"iMessage;-;{people[0]}"
            self.server.mac.chat(guid, f"group {number}" if is_group(number) else "")
            self._chats.append((guid, people))

    async def is_heard(self, store: Store) -> bool:
        """Anyone who has never listened hears what is said from then on."""
        return await store.read(store.accounts.read_position(self.platform, ACCOUNT)) is not None

    async def speak(self, chance: random.Random, number: int, order: str) -> str:
        place = chance.randrange(len(self._chats))
        guid, people = self._chats[place]
        word = f"c{place}-{number}"
        self._go_wrong(chance)
        self._said += 1
        self.server.mac.add(guid, f"{order} {word}".strip(), sender=chance.choice(people))
        return word

    def _go_wrong(self, chance: random.Random) -> None:
        """The connection is lost during a send, before or after it is shown, or a tunnel says stop, or it is cut."""
        if chance.random() < _MISHAP:
            self.server.loses = chance.random() < 0.5
        if chance.random() < _MISHAP:
            self.server.refuses = [web.Response(status=429, headers={"retry-after": "1"})]
        if chance.random() < _MISHAP:
            self.server.cut()

    async def waiting(self, store: Store) -> int:
        return self._said - await store.read(_taken_in())

    async def look(self) -> Sequence[View]:
        messages = self.server.mac.messages
        return [
            View(id=guid, messages=[_seen(each, guid) for each in messages if each["chats"][0]["guid"] == guid])
            for guid, _ in self._chats
        ]


def _seen(message: Json, chat: str) -> Message:
    return Message(
        id=message["guid"],
        author=US if message["isFromMe"] else message["handle"]["address"],
        text=message["text"],
        at=datetime.fromtimestamp(message["dateCreated"] / 1000, UTC),
        key=f"{chat}:{message['guid']}" if message["isFromMe"] else None,
    )


@asynccontextmanager
async def imessage_square() -> AsyncGenerator[IMessageSquare]:
    async with serving(Mac()) as server:
        yield IMessageSquare(server=server)
