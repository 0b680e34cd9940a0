"""Sync: read the events of our rooms in batches, in order and without gaps, and know which rooms are direct chats."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec
from nio.api import MessageDirection
from nio.events import InviteMemberEvent, MegolmEvent
from nio.responses import ErrorResponse, RoomInfo, RoomMessagesResponse, RoomSummary, SyncError, SyncResponse
from nio.rooms import MatrixInvitedRoom, MatrixRoom

from palaver.platforms.matrix.client import (
    API,
    Client,
    Invitation,
    Invites,
    common_error,
    is_unknown_position,
    sync_error,
)
from palaver.platforms.matrix.parse import Event, EventContext, parse_event
from palaver.protocols import DM, GROUP, TargetGone, account_text, value
from palaver.protocols.recent import remember

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
    if accepts_invitation(invitation.inviter, client.user_id, invites):
        route = {"via": invitation.server, "server_name": invitation.server}
        joined = await client.ask("POST", "join", invitation.room_id, body={}, **route)
        if joined is not None and invitation.is_direct:
            await direct.add(invitation.inviter, invitation.room_id)
    elif invites != "nobody":
        await client.ask("POST", "rooms", invitation.room_id, "leave", body={})


log = logging.getLogger(__name__)

_LONG_POLL_MS = 30_000
FIRST_SYNC_TIMEOUT_SECONDS = 600.0
"""The first response can be large."""
PAGE_SIZE = 100
MAX_PAGES = 100
_MAX_UNDECRYPTED = 100
_NO_EVENTS: dict[str, Any] = {"types": []}
FILTER: dict[str, Any] = {
    "presence": _NO_EVENTS,
    "account_data": {"types": [DIRECT]},
    "room": {
        "account_data": _NO_EVENTS,
        "ephemeral": _NO_EVENTS,
        # Include senders that were sent before: we may have been restarted since.
        "state": {"lazy_load_members": True, "include_redundant_members": True},
        "timeline": {"limit": 50},
    },
}


@value
class RoomEvent:
    event: Event
    context: EventContext
    undecrypted: MegolmEvent | None = None
    """The original event, if it could not be decrypted."""


Undecrypted = dict[str, RoomEvent]
"""Events that wait for their keys, by event id, the oldest first."""


@value
class Batch:
    position: str
    events: Sequence[RoomEvent]
    invitations: Sequence[Invitation]


class SyncReader:
    def __init__(self, client: Client, direct: DirectChats, account: str | None, waiting: Undecrypted) -> None:
        self._client = client
        self._direct_chats = direct
        self._account = account
        self._events: dict[str, list[RoomEvent]] = {}
        self._undecrypted = waiting
        self._invited_before: set[str] = set()
        """Rooms that had invited us before the first sync: older messages there are skipped."""
        self._is_first = True
        client.add_event_callback(self._on_event, None)  # pyright: ignore[reportArgumentType] - None is for any event

    async def batch(self, since: str | None) -> Batch:
        """Return what is new. Without a position, or with one that the homeserver rejects, no message is."""
        self._events.clear()
        answer = await self._sync(since)
        if since and is_unknown_position(answer) and is_unknown_position(answer := await self._sync(since)):
            extra = {"action": "matrix.position_lost", "account": account_text("matrix", self._account)}
            log.warning("the homeserver rejects our position; skipping older messages", extra=extra)
            return await self.batch(None)
        if not isinstance(answer, SyncResponse):
            raise sync_error(answer)
        self._is_first = False
        for data in answer.account_data_events:
            if getattr(data, "type", None) == DIRECT:
                self._direct_chats.update(getattr(data, "content", {}))
        for room_id in answer.rooms.leave:
            self._client.rooms.pop(room_id, None)
        if since is None:
            self._invited_before.update(answer.rooms.invite)
            self._events.clear()
        decrypted = await self._decrypt_waiting()
        found = list[RoomEvent]()
        for room_id, info in answer.rooms.join.items():
            events = await self._room(room_id, info, since)
            room = self._client.rooms.get(room_id)
            if room and _needs_member_count(info, self._events.get(room_id, ())):
                room.summary = None
            found += await self._with_chat_kind(room_id, events)
        self._keep_undecrypted(each for each in found if each.undecrypted and each.event.sender != self._client.user_id)
        return Batch(
            position=answer.next_batch,
            events=[*decrypted, *found],
            invitations=[*self._invitations(answer)],
        )

    async def _sync(self, since: str | None) -> SyncResponse | SyncError:
        """Make one request. The first one returns the full state and can take minutes."""
        with API.requests():
            if not self._is_first:
                return await self._client.sync(_LONG_POLL_MS, FILTER, since)
            async with asyncio.timeout(FIRST_SYNC_TIMEOUT_SECONDS):
                return await self._client.sync(0, FILTER, since, full_state=True)

    async def _room(self, room_id: str, info: RoomInfo, since: str | None) -> list[RoomEvent]:
        """Return the new events of a room; after a join, only those since our invitation."""
        noted = self._events.get(room_id, [])
        if info.timeline.limited and since and _join_index(noted) is None:
            noted = [*await self._fetch_gap(room_id, info.timeline.prev_batch, since), *noted]
            self._events[room_id] = noted
        entrance = _join_index(noted)
        if entrance is None:
            return noted
        invited = [at for at, each in enumerate(noted[:entrance]) if _membership(each) == "invite"]
        return noted[(entrance if room_id in self._invited_before or not invited else invited[-1]) + 1 :]

    async def _with_chat_kind(self, room_id: str, events: Sequence[RoomEvent]) -> list[RoomEvent]:
        """Set the chat kind, which is known only after the whole batch was read."""
        room = self._client.rooms.get(room_id)
        if room is None or not events:
            return [*events]
        await self._direct_chats.load_member_count(room)
        kinds = (self._direct_chats.kind(room, each.event.sender) for each in events)
        return [
            replace(each, context=replace(each.context, kind=kind)) for each, kind in zip(events, kinds, strict=True)
        ]

    async def _fetch_gap(self, room_id: str, start: str | None, since: str) -> list[RoomEvent]:
        """Fetch the events between two batches, oldest first."""
        room = self._client.rooms[room_id]
        found = list[RoomEvent]()
        for _ in range(MAX_PAGES):
            if not start:
                break
            with API.requests():
                answer = await self._client.room_messages(room_id, start, since, MessageDirection.back, PAGE_SIZE)
            if not isinstance(answer, RoomMessagesResponse):
                _raise_if_temporary(answer)
                break
            found += [room_event for each in answer.chunk if (room_event := self._room_event(room, each))]
            start = answer.end if answer.chunk and answer.end != start else None
        else:
            if start:
                extra = {"action": "matrix.gap", "account": account_text("matrix", self._account)}
                log.warning("too many messages since the last sync; skipping the oldest", extra=extra)
        return found[::-1]

    def _on_event(self, room: MatrixRoom, event: Any) -> None:  # noqa: ANN401 - nio has no common type
        if not isinstance(room, MatrixInvitedRoom) and (room_event := self._room_event(room, event)):
            self._events.setdefault(room.room_id, []).append(room_event)

    def _room_event(self, room: MatrixRoom, event: Any) -> RoomEvent | None:  # noqa: ANN401
        read = parse_event(event.source)
        if read is None:
            return None
        undecrypted = event if isinstance(event, MegolmEvent) else None
        return RoomEvent(event=read, context=self._context(room, read.sender), undecrypted=undecrypted)

    def _context(self, room: MatrixRoom, sender: str) -> EventContext:
        us = self._client.user_id
        return EventContext(
            account=self._account,
            us=us,
            our_name=_name(room, us),
            chat_id=room.room_id,
            kind=GROUP,
            title=room.named_room_name(),
            topic=room.topic,
            name=_name(room, sender),
        )

    async def _decrypt_waiting(self) -> list[RoomEvent]:
        """Return the waiting events that can be decrypted by now; they wait on until they are stored."""
        found = list[RoomEvent]()
        for each in self._undecrypted.values():
            decrypted = self._client.read(each.undecrypted) if each.undecrypted else None
            if decrypted and (read := parse_event(decrypted.source)):
                found += await self._with_chat_kind(each.context.chat_id, [RoomEvent(event=read, context=each.context)])
        return found

    def _keep_undecrypted(self, undecrypted: Iterable[RoomEvent]) -> None:
        for each in undecrypted:
            remember(self._undecrypted, each.event.event_id, each, _MAX_UNDECRYPTED)

    def _invitations(self, answer: SyncResponse) -> Sequence[Invitation]:
        found = list[Invitation]()
        for room_id, info in answer.rooms.invite.items():
            for each in cast("list[object]", info.invite_state):
                if isinstance(each, InviteMemberEvent) and each.state_key == self._client.user_id:
                    content = cast("dict[str, object]", each.content)
                    is_direct = content.get("is_direct") is True
                    server = each.sender.partition(":")[2]
                    found.append(Invitation(room_id=room_id, server=server, inviter=each.sender, is_direct=is_direct))
        return found


def _name(room: MatrixRoom, user_id: str) -> str | None:
    user = room.users.get(user_id)
    return user.display_name if user else None


def _membership(room_event: RoomEvent) -> str | None:
    """Return our membership that the event sets."""
    event = room_event.event
    return (
        event.content.membership if (event.type, event.state_key) == ("m.room.member", room_event.context.us) else None
    )


def _join_index(events: Sequence[RoomEvent]) -> int | None:
    """Return the index of our last join; a change of our name is not a join."""
    return next(
        (
            at
            for at in reversed(range(len(events)))
            if _membership(events[at]) == "join" and events[at].event.unsigned.prev_content.membership != "join"
        ),
        None,
    )


def _needs_member_count(info: RoomInfo, events: Iterable[RoomEvent]) -> bool:
    """Return whether the number of members can have changed without a new summary."""
    summary = info.summary
    if summary and (summary.joined_member_count, summary.invited_member_count) != (None, None):
        return False
    return bool(info.timeline.limited) or any(each.event.type == "m.room.member" for each in events)


def _raise_if_temporary(answer: ErrorResponse) -> None:
    """Raise unless we have lost access to the room: then there is nothing to fetch."""
    if answer.status_code != "M_FORBIDDEN":
        raise common_error(answer) or sync_error(answer)
