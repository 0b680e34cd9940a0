"""The square on WhatsApp: a bridge on the loopback, which tells again what was not acknowledged."""

import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from palaver.store.store import Store
from palaver.testkit.updates import Message
from tests.crash.square import View, is_group
from tests.platforms.whatsapp.bridge import OWN_NUMBER, SECRET, Bridge, bridging

__all__ = ["WhatsAppSquare", "whatsapp_square"]

_MISHAP = 0.02
"""How often something goes wrong with what is sent."""


@dataclass(kw_only=True)
class WhatsAppSquare:
    bridge: Bridge
    platform: str = "whatsapp"
    keeps_position: bool = False
    _chats: list[tuple[str, tuple[str, ...]]] = field(default_factory=list[tuple[str, tuple[str, ...]]])
    """The id of each, and the numbers of those who speak there."""

    @property
    def where(self) -> Mapping[str, Any]:
        return {"bridge_url": self.bridge.url, "bridge_secret": SECRET}

    async def settle(self, chats: int) -> None:
        for number in range(chats):
            people = tuple(f"49170{1000 + 10 * number + each}" for each in range(3 if is_group(number) else 1))
            self._chats.append((f"{number}@g.us" if is_group(number) else people[0], people))

    async def is_heard(self, store: Store) -> bool:
        del store
        return True

    async def speak(self, chance: random.Random, number: int, order: str) -> str:
        place = chance.randrange(len(self._chats))
        chat, people = self._chats[place]
        word = f"c{place}-{number}"
        group, name = ({"group": chat}, f"@{OWN_NUMBER}") if chat.endswith("@g.us") else ({}, "")
        # Each time from another of the person's devices.
        sender = f"{chance.choice(people)}:{chance.randrange(1, 4)}@s.whatsapp.net"
        text = " ".join(f"{name} {order} {word}".split())
        self._go_wrong(chance)
        about = {"type": "message", "id": f"3A{number}", "from": sender, "at": 1_749_416_383 + number, "text": text}
        await self.bridge.say({**about, **group})
        return word

    def _go_wrong(self, chance: random.Random) -> None:
        """The connection is lost during a send, before or after it is shown, or there is too much of it, or cut."""
        if chance.random() < _MISHAP:
            self.bridge.loses = chance.random() < 0.5
        if chance.random() < _MISHAP:
            self.bridge.errors.append({"error": "busy", "after": 1})
        if chance.random() < _MISHAP:
            self.bridge.cut()

    async def waiting(self, store: Store) -> int:
        del store
        return len(self.bridge.unacked)

    async def look(self) -> Sequence[View]:
        return [
            View(id=chat, messages=[_seen(frame) for frame in self.bridge.log if _chat_of(frame) == chat])
            for chat, _ in self._chats
        ]


def _chat_of(frame: Mapping[str, Any]) -> str:
    return str(frame.get("to") or frame.get("group") or frame["from"].partition(":")[0])


def _seen(frame: Mapping[str, Any]) -> Message:
    is_ours = "to" in frame
    return Message(
        id=frame["id"],
        author=OWN_NUMBER if is_ours else frame["from"].partition(":")[0],
        text=frame["text"],
        at=datetime.fromtimestamp(frame.get("at", 1_749_416_383), UTC),
        key=frame["key"] if is_ours else None,
    )


@asynccontextmanager
async def whatsapp_square() -> AsyncGenerator[WhatsAppSquare]:
    async with bridging() as bridge:
        yield WhatsAppSquare(bridge=bridge)
