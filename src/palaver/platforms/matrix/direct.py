"""Direct chats: which rooms are some, as the account itself keeps it on its homeserver."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from nio.rooms import MatrixRoom

from palaver.domain.source import DM, GROUP
from palaver.platforms.matrix.client import Client
from palaver.ports.adapter import TargetGone

__all__ = ["DIRECT", "Direct", "kind_of"]

DIRECT = "m.direct"
_TWO = 2


def kind_of(*, members: int, direct: bool, named: bool) -> str:
    """A direct chat is between two; as soon as a third is there, or invited, it is a group."""
    return DM if members <= _TWO and (direct or not named) else GROUP


class Direct:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._rooms: dict[str, list[str]] = {}
        self._writing = asyncio.Lock()

    def __contains__(self, room_id: str) -> bool:
        return any(room_id in rooms for rooms in self._rooms.values())

    def kind(self, room: MatrixRoom) -> str:
        return kind_of(members=room.member_count, direct=room.room_id in self, named=room.is_named)

    async def load(self) -> None:
        self.learn(await self._client.ask("GET", *self._path) or {})

    def learn(self, content: Mapping[str, Any]) -> None:
        try:
            self._rooms = msgspec.convert(content, dict[str, list[str]])
        except msgspec.ValidationError:
            self._rooms = {}

    async def add(self, user_id: str, room_id: str) -> None:
        async with self._writing:
            if room_id not in self:
                rooms = {**self._rooms, user_id: [*self._rooms.get(user_id, ()), room_id]}
                await self._client.ask("PUT", *self._path, body=rooms)
                self._rooms = rooms

    async def moved(self, old: str, new: str) -> None:
        for user_id in [user_id for user_id, rooms in self._rooms.items() if old in rooms]:
            await self.add(user_id, new)

    async def room_with(self, user_id: str) -> str:
        """The room that we are in with somebody; one is made where there is none."""
        for room_id in reversed(self._rooms.get(user_id, [])):
            if room_id in self._client.rooms:
                return room_id
        made = await self._client.ask(
            "POST",
            "createRoom",
            body={"is_direct": True, "invite": [user_id], "preset": "trusted_private_chat"},
        )
        if made is None:
            raise TargetGone(f"no direct chat with {user_id} can be made")
        room_id = str(made.get("room_id"))
        await self.add(user_id, room_id)
        return room_id

    @property
    def _path(self) -> tuple[str, ...]:
        return "user", self._client.user_id, "account_data", DIRECT
