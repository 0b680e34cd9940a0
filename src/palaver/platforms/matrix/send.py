"""Send messages; in an encrypted room, share the key with every member first."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from nio.events import Event as NioEvent
from nio.responses import ErrorResponse, Response, RoomSendError, RoomSendResponse
from nio.rooms import MatrixRoom

from palaver.platforms.matrix.client import Client
from palaver.platforms.matrix.errors import API, encryption_errors, request_error, send_error
from palaver.platforms.matrix.events import Event, parse_content, parse_event
from palaver.platforms.matrix.media import upload
from palaver.platforms.matrix.render import Content, edit_content, file_content, message_content
from palaver.platforms.matrix.rooms import DirectChats, predecessor_of
from palaver.protocols import Attachment, ChatMoved, Outbound, PlatformBusy, PlatformDown, SendRefused, TargetGone

if TYPE_CHECKING:
    from nio.crypto import Olm


class RoomSender:
    """Prepares encryption itself: nio would ignore errors of the homeserver there."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = asyncio.Lock()

    async def send(self, room_id: str, content: Content, key: str | None) -> RoomSendResponse | RoomSendError:
        room, olm = self._client.rooms.get(room_id), self._client.olm
        if room is None or not room.encrypted or olm is None:
            return await self._client.room_send(room_id, "m.room.message", content, tx_id=key)
        async with self._lock:
            with API.requests():
                await self._prepare(room, olm)
            return await self._client.room_send(room_id, "m.room.message", content, tx_id=key)

    async def _prepare(self, room: MatrixRoom, olm: "Olm") -> None:
        if not room.members_synced:
            _raise_if_error(await self._client.joined_members(room.room_id))
        if self._client.users_for_key_query & room.users.keys():
            _raise_if_error(await self._client.keys_query())
        if olm.should_share_group_session(room.room_id):
            await self._share(room, olm)

    async def _share(self, room: MatrixRoom, olm: "Olm") -> None:
        if missing := self._client.get_missing_sessions(room.room_id):
            _raise_if_error(await self._client.keys_claim({**missing}))
        sessions = olm.outbound_group_sessions
        try:
            for devices, messages in olm.share_group_session_parallel(
                room.room_id, [*room.users], ignore_unverified_devices=True
            ):
                await self._send_keys(messages)
                sessions[room.room_id].users_shared_with.update(devices)
            sessions[room.room_id].shared = True
        except BaseException:
            # A member who got the key can have left by the next attempt: make a new one.
            sessions.pop(room.room_id, None)
            raise

    async def _send_keys(self, messages: Content) -> None:
        path = ("sendToDevice", "m.room.encrypted", str(uuid4()))
        if await self._client.ask("PUT", *path, body=messages) is None:
            raise PlatformDown("The homeserver does not forward the keys of an encrypted room.")


def _raise_if_error(answer: Response | ErrorResponse) -> None:
    if isinstance(answer, ErrorResponse):
        status = getattr(answer.transport_response, "status", 0)
        raise request_error(answer, status) or PlatformDown(f"Preparing the encryption failed: {status}")


_TYPING_MS = 30_000
_SYNC_WAIT_SECONDS = 1.0


class MessageSender:
    def __init__(self, client: Client, direct: DirectChats, sender: RoomSender) -> None:
        self._client = client
        self._direct_chats = direct
        self._room_sender = sender

    async def send(self, outbound: Outbound, key: str) -> str:
        room_id = await self._room(outbound.chat_id)
        return await self._send(room_id, message_content(self._with_reply(room_id, outbound)), key)

    async def send_file(self, outbound: Outbound, file: Attachment, content: Path, key: str) -> str:
        room_id = await self._room(outbound.chat_id)
        where = await upload(self._client, file, content, encrypt=await self._is_encrypted(room_id))
        return await self._send(room_id, file_content(self._with_reply(room_id, outbound), file, where), key)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        if not receipt.startswith("$"):
            raise SendRefused("There is no such message.")
        await self._send(await self._room(outbound.chat_id), edit_content(receipt, outbound), None)

    async def typing(self, outbound: Outbound) -> None:
        with API.requests():
            await self._client.room_typing(await self._room(outbound.chat_id), timeout=_TYPING_MS)

    async def mark_read(self, room_id: str, event_id: str) -> None:
        await self._client.room_read_markers(room_id, event_id, event_id)

    async def find_event(self, room_id: str, event_id: str) -> Event | None:
        """Return an event of a room, decrypted if we can; None if there is none that we may see."""
        found = await self._client.ask("GET", "rooms", room_id, "event", event_id)
        if found is None:
            return None
        if found.get("type") == "m.room.encrypted":
            encrypted = NioEvent.parse_encrypted_event({**found, "room_id": room_id})  # pyright: ignore[reportUnknownMemberType]
            decrypted = self._client.read(encrypted)
            found = found if decrypted is None else decrypted.source
        return parse_event(found)

    def _with_reply(self, room_id: str, outbound: Outbound) -> Outbound:
        """Leave out a reply that is not wanted: in a direct chat it is clear what an answer is to."""
        room = self._client.rooms.get(room_id)
        in_group = not (room and self._direct_chats.is_direct(room))
        return replace(outbound, reply_to=outbound.quoted(in_group=in_group))

    async def _send(self, room_id: str, content: Content, key: str | None) -> str:
        await self._is_encrypted(room_id)
        with encryption_errors(), API.sends():
            answer = await self._room_sender.send(room_id, content, key)
        if isinstance(answer, RoomSendResponse):
            return answer.event_id
        problem = send_error(answer)
        if isinstance(problem, TargetGone) and (new := await self._replacement(room_id)):
            raise ChatMoved(new)
        raise problem

    async def _replacement(self, room_id: str) -> str | None:
        """Return the room that replaces this one, if we are in it."""
        tombstone = parse_content(await self._client.ask("GET", "rooms", room_id, "state", "m.room.tombstone", ""))
        new = tombstone.replacement_room
        return new if new and await predecessor_of(self._client, new) == room_id else None

    async def _is_encrypted(self, room_id: str) -> bool:
        """Return whether the room is encrypted; raise if we cannot encrypt, so that nothing goes out as plain text."""
        room = self._client.rooms.get(room_id)
        if room is None:
            # A room that we have only just joined is known after the next sync.
            joined = await self._client.ask("GET", "joined_rooms") or {}
            is_in = room_id in joined.get("joined_rooms", ())
            raise PlatformBusy(_SYNC_WAIT_SECONDS) if is_in else TargetGone("We are not in this room.")
        if room.encrypted and not self._client.olm:
            raise SendRefused("The room is encrypted. Configure keys for the account.")
        return room.encrypted

    async def _room(self, chat_id: str) -> str:
        """Resolve a target: a room id, a room alias, or a person."""
        if chat_id.startswith("@"):
            return await self._direct_chats.room_with(chat_id)
        if not chat_id.startswith("#"):
            return chat_id
        found = await self._client.ask("GET", "directory", "room", chat_id)
        if found is None:
            raise TargetGone(f"There is no room {chat_id}.")
        return str(found.get("room_id"))
