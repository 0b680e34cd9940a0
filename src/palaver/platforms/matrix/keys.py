"""Keys of encrypted rooms: kept up after every batch, asked for where one is missing."""

import hashlib

from nio.events import MegolmEvent

from palaver.platforms.matrix.client import Client
from palaver.platforms.matrix.hearing import Heard
from palaver.platforms.matrix.refusals import asking

__all__ = ["Closed", "keep_up"]

_NO_KEY = (
    "I cannot read this message: its key has not reached me. I have asked for it;"
    " if I do not answer soon, please send the message again."
)
_NO_ENCRYPTION = (
    "This room is encrypted, and I am not set up to read encrypted messages."
    " Please write to me in a room without encryption, or ask whoever runs me to set it up."
)


async def keep_up(client: Client) -> None:
    """What others need from us to write to us, and we from them."""
    if not client.olm:
        return
    with asking():
        if client.should_upload_keys:
            await client.keys_upload()
        if client.should_query_keys:
            await client.keys_query()
        if client.should_claim_keys:
            await client.keys_claim({**client.get_users_for_key_claiming()})
        await client.send_to_device_messages()


class Closed:
    """Messages that could not be read. Whoever sent one is told once for each key, and each room without any."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: set[str] = set()

    async def tell(self, heard: Heard, event: MegolmEvent) -> None:
        room_id = heard.scene.chat_id
        about = (room_id, heard.event.sender, event.session_id or "") if self._client.olm else (room_id,)
        # The same after a restart: the homeserver knows it again.
        name = hashlib.sha256("\n".join(about).encode()).hexdigest()
        if name in self._told:
            return
        self._told.add(name)
        content = {
            "msgtype": "m.notice",
            "body": _NO_KEY if self._client.olm else _NO_ENCRYPTION,
            "m.mentions": {},
            "m.relates_to": {"m.in_reply_to": {"event_id": heard.event.event_id}},
        }
        await self._client.room_send(
            room_id, "m.room.message", content, tx_id=f"closed-{name}", ignore_unverified_devices=True
        )
        if self._client.olm and event.session_id not in self._client.outgoing_key_requests:
            await self._client.request_room_key(event)
