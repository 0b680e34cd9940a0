"""Sending: into an encrypted room only what everybody there has the key of."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from nio.responses import ErrorResponse, Response, RoomSendError, RoomSendResponse
from nio.rooms import MatrixRoom

from palaver.model.attachment import Attachment
from palaver.model.turn import Outbound
from palaver.platforms.matrix.client import Client
from palaver.platforms.matrix.errors import asking, sending, unanswered, unsent
from palaver.platforms.matrix.events import content_of
from palaver.platforms.matrix.media import put
from palaver.platforms.matrix.render import Content, edit_of, file_message, message
from palaver.platforms.matrix.rooms import Direct, replaced_by
from palaver.protocols.adapter import ChatMoved, PlatformBusy, PlatformDown, SendRefused, TargetGone

__all__ = [
    "Sending",
    "Speaking",
]

if TYPE_CHECKING:
    from nio.crypto import Olm


class Sending:
    """Does itself what nio does before it encrypts: nio passes over a homeserver that does not do its part."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._one_at_a_time = asyncio.Lock()

    async def send(self, room_id: str, content: Content, key: str | None) -> RoomSendResponse | RoomSendError:
        room, olm = self._client.rooms.get(room_id), self._client.olm
        if room is None or not room.encrypted or olm is None:
            return await self._client.room_send(room_id, "m.room.message", content, tx_id=key)
        async with self._one_at_a_time:
            with asking():
                await self._prepare(room, olm)
            return await self._client.room_send(room_id, "m.room.message", content, tx_id=key)

    async def _prepare(self, room: MatrixRoom, olm: "Olm") -> None:
        if not room.members_synced:
            _look_at(await self._client.joined_members(room.room_id))
        if self._client.users_for_key_query & room.users.keys():
            _look_at(await self._client.keys_query())
        if olm.should_share_group_session(room.room_id):
            await self._share(room, olm)

    async def _share(self, room: MatrixRoom, olm: "Olm") -> None:
        if missing := self._client.get_missing_sessions(room.room_id):
            _look_at(await self._client.keys_claim({**missing}))
        sessions = olm.outbound_group_sessions
        try:
            for devices, messages in olm.share_group_session_parallel(
                room.room_id, [*room.users], ignore_unverified_devices=True
            ):
                await self._give(messages)
                sessions[room.room_id].users_shared_with.update(devices)
            sessions[room.room_id].shared = True
        except BaseException:
            # Whoever has got it already may have left the room by the next try.
            sessions.pop(room.room_id, None)
            raise

    async def _give(self, messages: Content) -> None:
        path = ("sendToDevice", "m.room.encrypted", str(uuid4()))
        if await self._client.ask("PUT", *path, body=messages) is None:
            raise PlatformDown("the homeserver does not pass on the keys of an encrypted room")


def _look_at(answer: Response | ErrorResponse) -> None:
    if isinstance(answer, ErrorResponse):
        status = getattr(answer.transport_response, "status", 0)
        raise unanswered(answer, status) or PlatformDown(f"the homeserver prepares no encryption: {status}")


_TYPING = 30_000
_MOST_KNOWN = 1000
_SOON = 1.0


class Speaking:
    def __init__(self, client: Client, direct: Direct, sending: Sending) -> None:
        self._client = client
        self._direct = direct
        self._sending = sending
        self._ours: dict[str, bool] = {}
        """Of some events whether they are ours."""

    async def say(self, outbound: Outbound, key: str) -> str:
        room_id = await self._room(outbound.chat_id)
        return await self._send(room_id, message(self._quoting(room_id, outbound)), key)

    async def say_with(self, outbound: Outbound, file: Attachment, content: Path, key: str) -> str:
        room_id = await self._room(outbound.chat_id)
        where = await put(self._client, file, content, encrypt=await self._is_encrypted(room_id))
        return await self._send(room_id, file_message(self._quoting(room_id, outbound), file, where), key)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        if not receipt.startswith("$"):
            raise SendRefused("there is no such message")
        await self._send(await self._room(outbound.chat_id), edit_of(receipt, outbound), None)

    async def typing(self, outbound: Outbound) -> None:
        with asking():
            await self._client.room_typing(await self._room(outbound.chat_id), timeout=_TYPING)

    async def mark_read(self, room_id: str, event_id: str) -> None:
        await self._client.room_read_markers(room_id, event_id, event_id)

    async def is_ours(self, room_id: str, event_id: str) -> bool:
        """Whether we have said it, in this life or an earlier one."""
        if event_id not in self._ours:
            found = await self._client.ask("GET", "rooms", room_id, "event", event_id) or {}
            self._know(event_id, ours=found.get("sender") == self._client.user_id)
        return self._ours[event_id]

    def _know(self, event_id: str, *, ours: bool) -> None:
        self._ours[event_id] = ours
        if len(self._ours) > _MOST_KNOWN:
            del self._ours[next(iter(self._ours))]

    def _quoting(self, room_id: str, outbound: Outbound) -> Outbound:
        """Where there are only two, it is clear what an answer is to."""
        room = self._client.rooms.get(room_id)
        return replace(outbound, reply_to=None) if room and self._direct.is_direct(room) else outbound

    async def _send(self, room_id: str, content: Content, key: str | None) -> str:
        await self._is_encrypted(room_id)
        with sending():
            answer = await self._sending.send(room_id, content, key)
        if isinstance(answer, RoomSendResponse):
            self._know(answer.event_id, ours=True)
            return answer.event_id
        problem = unsent(answer)
        if isinstance(problem, TargetGone) and (new := await self._replacement(room_id)):
            raise ChatMoved(new)
        raise problem

    async def _replacement(self, room_id: str) -> str | None:
        """The room that has taken the place of this one, if we are in it."""
        closed = content_of(await self._client.ask("GET", "rooms", room_id, "state", "m.room.tombstone", ""))
        new = closed.replacement_room
        return new if new and await replaced_by(self._client, new) == room_id else None

    async def _is_encrypted(self, room_id: str) -> bool:
        """Nothing goes into an encrypted room as plain text."""
        room = self._client.rooms.get(room_id)
        if room is None:
            raise await self._unknown(room_id)
        if room.encrypted and not self._client.olm:
            raise SendRefused("the room is encrypted, and the account has no folder for keys")
        return room.encrypted

    async def _unknown(self, room_id: str) -> Exception:
        """A room that we have only just come into will be known in a moment."""
        return PlatformBusy(_SOON) if await self._is_in(room_id) else TargetGone("we are not in this room")

    async def _is_in(self, room_id: str) -> bool:
        joined = await self._client.ask("GET", "joined_rooms") or {}
        return room_id in joined.get("joined_rooms", ())

    async def _room(self, chat_id: str) -> str:
        """A target may name a room by its address, or a person."""
        if chat_id.startswith("@"):
            return await self._direct.room_with(chat_id)
        if not chat_id.startswith("#"):
            return chat_id
        found = await self._client.ask("GET", "directory", "room", chat_id)
        if found is None:
            raise TargetGone(f"there is no room {chat_id}")
        return str(found.get("room_id"))
