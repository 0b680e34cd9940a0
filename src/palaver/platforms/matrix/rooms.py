"""Direct chats: which rooms are some, as the account itself keeps it on its homeserver."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from nio.responses import RoomSummary
from nio.rooms import MatrixRoom

from palaver.model.source import DM, GROUP
from palaver.platforms.matrix.client import Call, Client
from palaver.platforms.matrix.events import content_of, event_of
from palaver.platforms.matrix.options import Invites
from palaver.protocols.adapter import TargetGone

__all__ = [
    "DIRECT",
    "Direct",
    "answer",
    "is_welcome",
    "replaced_by",
]

DIRECT = "m.direct"
_TWO = 2


class Direct:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._rooms: dict[str, list[str]] = {}
        self._writing = asyncio.Lock()

    def __contains__(self, room_id: str) -> bool:
        return bool(self._with(room_id))

    def kind(self, room: MatrixRoom, sender: str) -> str:
        """Direct with the one whom it was made with: whoever else is there, or invited, is in a group.

        Also after that one has gone: what was said in the direct chat is nobody else's.
        """
        return DM if _is_for_two(room) and self._with(room.room_id) == [sender] else GROUP

    def is_direct(self, room: MatrixRoom) -> bool:
        return _is_for_two(room) and room.room_id in self

    async def count(self, room: MatrixRoom) -> None:
        """How many are in a direct chat is asked where we do not know it: we are told only when it changes."""
        if room.room_id not in self or _count(room) is not None:
            return
        memberships = [*(await self._members(room.room_id)).values()]
        if memberships:
            invited = memberships.count("invite")
            room.update_summary(RoomSummary(invited, len(memberships) - invited))

    def _with(self, room_id: str) -> list[str]:
        return [user_id for user_id, rooms in self._rooms.items() if room_id in rooms]

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
        """The room that we are in with somebody and nobody else; one is made where there is none."""
        for room_id in reversed(self._rooms.get(user_id, [])):
            if (await self._members(room_id)).keys() == {user_id, self._client.user_id}:
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

    async def _members(self, room_id: str) -> dict[str | None, str]:
        """Who is in a room, or invited; as the homeserver knows it, which tells us of a new room only later."""
        found = await self._client.ask("GET", "rooms", room_id, "members") or {}
        members = {each.state_key: each.content.membership for each in map(event_of, found.get("chunk", ())) if each}
        return {who: membership for who, membership in members.items() if membership in {"join", "invite"}}

    @property
    def _path(self) -> tuple[str, ...]:
        return "user", self._client.user_id, "account_data", DIRECT


def _is_for_two(room: MatrixRoom) -> bool:
    """Not where nobody has said how many are there: those whom nio knows are only some of them."""
    count = _count(room)
    return count is not None and count <= _TWO


def _count(room: MatrixRoom) -> int | None:
    told = room.summary
    if told is None or told.joined_member_count is None or told.invited_member_count is None:
        return None
    return told.joined_member_count + told.invited_member_count


def is_welcome(inviter: str, us: str, invites: Invites) -> bool:
    server = inviter.partition(":")[2]
    match invites:
        case "everybody":
            return True
        case "server":
            return server == us.partition(":")[2]
        case "nobody":
            return False
        case listed:
            return inviter in listed or server in listed


async def answer(client: Client, direct: Direct, call: Call, invites: Invites) -> None:
    """Taken or declined; where nobody's are taken they are left alone, so that a person may answer by hand."""
    if not call.inviter or is_welcome(call.inviter, client.user_id, invites):
        if await _enter(client, call) and call.is_direct:
            await direct.add(call.inviter, call.room_id)
    elif invites != "nobody":
        await client.ask("POST", "rooms", call.room_id, "leave", body={})


async def _enter(client: Client, call: Call) -> bool:
    way = {"via": call.server, "server_name": call.server}
    return await client.ask("POST", "join", call.room_id, body={}, **way) is not None


async def replaced_by(client: Client, room_id: str) -> str | None:
    """The room whose place it has taken: it says so itself, and that room says so, too.

    Either alone could be said by anybody, to get at what was said elsewhere.
    """
    made = content_of(await client.ask("GET", "rooms", room_id, "state", "m.room.create", ""))
    old = made.predecessor.room_id
    if not old:
        return None
    closed = content_of(await client.ask("GET", "rooms", old, "state", "m.room.tombstone", ""))
    return old if closed.replacement_room == room_id else None
