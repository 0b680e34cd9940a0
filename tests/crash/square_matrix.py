"""The square on Matrix: rooms on a real Synapse, which repeats everything after the position that we kept."""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from palaver.db.transaction import Statements, transaction
from palaver.store.store import Store
from palaver.testkit.updates import Message
from tests.crash.gateway import ACCOUNT
from tests.crash.square import View, is_group
from tests.platforms.matrix.fakes import Person, present
from tests.platforms.matrix.homeserver import Account, Homeserver

__all__ = ["MatrixSquare", "matrix_square"]


@transaction
def _taken_in() -> Statements[int]:
    return (yield "SELECT count(*) FROM inbox", ())[0][0]


@dataclass(kw_only=True)
class MatrixSquare:
    home: Homeserver
    us: Account
    people: Sequence[tuple[Account, Person]]
    platform: str = "matrix"
    keeps_position: bool = True
    _rooms: list[tuple[str, Sequence[Person]]] = field(default_factory=list[tuple[str, Sequence[Person]]])
    _said: int = 0

    @property
    def where(self) -> Mapping[str, Any]:
        return {"homeserver": self.home.url, "user_id": self.us.user_id, "access_token": self.us.token}

    async def settle(self, chats: int) -> None:
        for number in range(chats):
            among = self.people if is_group(number) else [self.people[number % len(self.people)]]
            guests = [self.us, *(account for account, _ in among[1:])]
            room_id = await among[0][1].makes_room(*(each.user_id for each in guests), name=f"room {number}")
            for guest in guests:
                await asyncio.to_thread(self.home.join, room_id, guest)
            self._rooms.append((room_id, [person for _, person in among]))

    async def is_heard(self, store: Store) -> bool:
        """Anyone who has never listened hears what is said from then on."""
        return await store.read(store.accounts.read_position(self.platform, ACCOUNT)) is not None

    async def speak(self, chance: random.Random, number: int, order: str) -> str:
        place = chance.randrange(len(self._rooms))
        room_id, people = self._rooms[place]
        word = f"c{place}-{number}"
        meant = {"m.mentions": {"user_ids": [self.us.user_id]}}
        self._said += 1
        await chance.choice(people).says(room_id, f"{order} {word}".strip(), **meant)
        return word

    async def waiting(self, store: Store) -> int:
        return self._said - await store.read(_taken_in())

    async def look(self) -> Sequence[View]:
        return [
            View(id=room_id, messages=[self._seen(event) for event in await people[0].sees(room_id) if _is_said(event)])
            for room_id, people in self._rooms
        ]

    def _seen(self, event: dict[str, Any]) -> Message:
        relation = event["content"].get("m.relates_to", {})
        return Message(
            id=event["event_id"],
            author=event["sender"],
            text=event["content"]["body"],
            at=datetime.fromtimestamp(event["origin_server_ts"] / 1000, UTC),
            thread=relation["event_id"] if relation.get("rel_type") == "m.thread" else None,
            key=event["event_id"] if event["sender"] == self.us.user_id else None,
        )


def _is_said(event: Mapping[str, Any]) -> bool:
    return event["type"] == "m.room.message"


@asynccontextmanager
async def matrix_square(home: Homeserver) -> AsyncGenerator[MatrixSquare]:
    async with AsyncExitStack() as stack:
        accounts = [await asyncio.to_thread(home.register, name) for name in ("helper", "alice", "bob", "carol")]
        people = [(each, await stack.enter_async_context(present(home, each))) for each in accounts[1:]]
        yield MatrixSquare(home=home, us=accounts[0], people=people)
