"""Sending: into an encrypted room only what everybody there has the key of."""

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

from nio.responses import ErrorResponse, Response, RoomSendError, RoomSendResponse
from nio.rooms import MatrixRoom

from palaver.platforms.matrix.client import Client
from palaver.platforms.matrix.refusals import asking, unanswered
from palaver.platforms.matrix.render import Content
from palaver.ports.adapter import PlatformDown

if TYPE_CHECKING:
    from nio.crypto import Olm

__all__ = ["Sending"]


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
