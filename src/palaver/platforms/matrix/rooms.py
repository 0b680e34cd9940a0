"""Direct chats (m.direct), invitations and replaced rooms."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from nio.responses import RoomSummary
from nio.rooms import MatrixRoom

from palaver.platforms.matrix.client import Client, Invitation
from palaver.platforms.matrix.events import parse_content, parse_event
from palaver.platforms.matrix.options import Invites
from palaver.protocols import DM, GROUP, TargetGone

DIRECT = "m.direct"


class DirectChats:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._rooms: dict[str, list[str]] = {}
        self._writing = asyncio.Lock()

    def __contains__(self, room_id: str) -> bool:
        return bool(self._people_of(room_id))

    def kind(self, room: MatrixRoom, sender: str) -> str:
        """Return DM for the person the chat was made with, and GROUP for anybody else in it.

        Also after that person has left: nobody else may continue their conversation.
        """
        return DM if _is_for_two(room) and self._people_of(room.room_id) == [sender] else GROUP

    def is_direct(self, room: MatrixRoom) -> bool:
        return _is_for_two(room) and room.room_id in self

    async def load_member_count(self, room: MatrixRoom) -> None:
        """Ask how many people are in a direct chat if we do not know: syncs only report changes."""
        if room.room_id not in self or _count(room) is not None:
            return
        memberships = [*(await self._members(room.room_id)).values()]
        if memberships:
            invited = memberships.count("invite")
            room.update_summary(RoomSummary(invited, len(memberships) - invited))

    def _people_of(self, room_id: str) -> list[str]:
        return [user_id for user_id, rooms in self._rooms.items() if room_id in rooms]

    async def load(self) -> None:
        self.update(await self._client.ask("GET", *self._path) or {})

    def update(self, content: Mapping[str, Any]) -> None:
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

    async def copy_to(self, old: str, new: str) -> None:
        for user_id in [user_id for user_id, rooms in self._rooms.items() if old in rooms]:
            await self.add(user_id, new)

    async def room_with(self, user_id: str) -> str:
        """Return the room with only that person and us; create one if there is none."""
        for room_id in reversed(self._rooms.get(user_id, [])):
            if (await self._members(room_id)).keys() == {user_id, self._client.user_id}:
                return room_id
        created = await self._client.ask(
            "POST",
            "createRoom",
            body={"is_direct": True, "invite": [user_id], "preset": "trusted_private_chat"},
        )
        if created is None:
            raise TargetGone(f"A direct chat with {user_id} cannot be created.")
        room_id = str(created.get("room_id"))
        await self.add(user_id, room_id)
        return room_id

    async def _members(self, room_id: str) -> dict[str | None, str]:
        """Return who has joined or is invited, from the homeserver: syncs report a new room only later."""
        found = await self._client.ask("GET", "rooms", room_id, "members") or {}
        members = {
            event.state_key: event.content.membership for event in map(parse_event, found.get("chunk", ())) if event
        }
        return {who: membership for who, membership in members.items() if membership in {"join", "invite"}}

    @property
    def _path(self) -> tuple[str, ...]:
        return "user", self._client.user_id, "account_data", DIRECT


def _is_for_two(room: MatrixRoom) -> bool:
    """Return whether two people are in the room; False if unknown, since nio knows only some members."""
    count = _count(room)
    return count is not None and count <= 2  # noqa: PLR2004 - two people


def _count(room: MatrixRoom) -> int | None:
    summary = room.summary
    if summary is None or summary.joined_member_count is None or summary.invited_member_count is None:
        return None
    return summary.joined_member_count + summary.invited_member_count


def accepts_invitation(inviter: str, us: str, invites: Invites) -> bool:
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


async def answer_invitation(client: Client, direct: DirectChats, invitation: Invitation, invites: Invites) -> None:
    """Accept or decline an invitation. With `nobody`, leave it open for a person to answer."""
    if not invitation.inviter or accepts_invitation(invitation.inviter, client.user_id, invites):
        route = {"via": invitation.server, "server_name": invitation.server}
        joined = await client.ask("POST", "join", invitation.room_id, body={}, **route)
        if joined is not None and invitation.is_direct:
            await direct.add(invitation.inviter, invitation.room_id)
    elif invites != "nobody":
        await client.ask("POST", "rooms", invitation.room_id, "leave", body={})


async def predecessor_of(client: Client, room_id: str) -> str | None:
    """Return the room that this one replaces, if both rooms say so.

    One alone could be forged, to take over the conversation of the other.
    """
    created = parse_content(await client.ask("GET", "rooms", room_id, "state", "m.room.create", ""))
    old = created.predecessor.room_id
    if not old:
        return None
    tombstone = parse_content(await client.ask("GET", "rooms", old, "state", "m.room.tombstone", ""))
    return old if tombstone.replacement_room == room_id else None
