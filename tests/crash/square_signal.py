"""The square on Signal: a signal-cli on the loopback, which forgets what it has written to a connection."""

import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from palaver.db.transaction import Statements, transaction
from palaver.store.store import Store
from palaver.testkit.updates import Message
from tests.crash.square import View, is_group
from tests.platforms.signal.server import NUMBER, UUID, RpcError, Server, failed, serving

__all__ = ["SignalSquare", "signal_square"]

_MISHAP = 0.02
"""How often something goes wrong with what is sent."""
_MENTION = {"name": NUMBER, "number": NUMBER, "uuid": UUID, "start": 0, "length": 1}


@transaction
def _taken_in() -> Statements[set[str]]:
    return {unquote(row[0]) for row in (yield "SELECT message_id FROM inbox", ())}


@dataclass(kw_only=True)
class SignalSquare:
    server: Server
    platform: str = "signal"
    keeps_position: bool = False
    _chats: list[tuple[str, Sequence[str]]] = field(default_factory=list[tuple[str, Sequence[str]]])
    """The id of each, and the account ids of those who speak there."""
    _said: list[tuple[str, Message]] = field(default_factory=list[tuple[str, Message]])

    @property
    def where(self) -> Mapping[str, Any]:
        return {"number": NUMBER, "url": self.server.url}

    @property
    def connections(self) -> Sequence[Sequence[str]]:
        return [[_id(event) for event in written] for written in self.server.written]

    async def settle(self, chats: int) -> None:
        for number in range(chats):
            people = [f"{number:08x}-0000-4000-8000-{each:012x}" for each in range(3 if is_group(number) else 1)]
            self._chats.append((f"Group{number}=" if is_group(number) else people[0], people))
        self.server.groups = {chat: chat for chat, people in self._chats if len(people) > 1}

    async def is_heard(self, store: Store) -> bool:
        del store
        return True

    async def speak(self, chance: random.Random, number: int, order: str) -> str:
        place = chance.randrange(len(self._chats))
        chat, people = self._chats[place]
        word, sender = f"c{place}-{number}", chance.choice(people)
        text, data = f"{order} {word}".strip(), dict[str, Any]()
        if len(people) > 1:
            text = f"\N{OBJECT REPLACEMENT CHARACTER} {text}"
            data = {"mentions": [_MENTION], "groupInfo": {"groupId": chat, "type": "DELIVER"}}
        self._go_wrong(chance)
        envelope = self.server.receives({"sourceUuid": sender}, {"message": text, **data}, name="somebody")
        at = datetime.fromtimestamp(envelope["timestamp"] / 1000, UTC)
        said = Message(id=f"{envelope['timestamp']}:{sender}", author=sender, text=text, at=at, key=None)
        self._said.append((chat, said))
        return word

    def _go_wrong(self, chance: random.Random) -> None:
        """The connection is lost during a send, or Signal says stop, or all is cut, or signal-cli repeats itself."""
        if chance.random() < _MISHAP:
            self.server.loses = chance.random() < 0.5
        if chance.random() < _MISHAP:
            limited = failed("RATE_LIMIT_FAILURE", retryAfterSeconds=1)
            self.server.errors.append(RpcError(-5, "Failed to send message due to rate limiting", limited))
        if chance.random() < _MISHAP:
            self.server.cut()
        if chance.random() < _MISHAP and self.server.waiting:
            self.server.push(self.server.waiting[-1])

    async def waiting(self, store: Store) -> int:
        """Also what the open connection has not brought into the store yet, and until there is one, who knows."""
        if self.server.waiting or not self.server.is_heard:
            return len(self.server.waiting) + 1
        return len(set(self.connections[-1]) - await store.read(_taken_in()))

    async def look(self) -> Sequence[View]:
        shown = [*self._said, *((each["chat"], _shown(each)) for each in self.server.sent)]
        ordered = sorted(shown, key=lambda each: each[1].at)
        return [
            View(id=chat, messages=[message for where, message in ordered if where == chat]) for chat, _ in self._chats
        ]


def _id(event: Mapping[str, Any]) -> str:
    envelope = event["envelope"]
    return f"{envelope['timestamp']}:{envelope['sourceUuid']}"


def _shown(sent: Mapping[str, Any]) -> Message:
    at = datetime.fromtimestamp(sent["timestamp"] / 1000, UTC)
    return Message(id=str(sent["timestamp"]), author=UUID, text=sent["text"], at=at, key=str(sent["timestamp"]))


@asynccontextmanager
async def signal_square() -> AsyncGenerator[SignalSquare]:
    async with serving() as server:
        yield SignalSquare(server=server)
