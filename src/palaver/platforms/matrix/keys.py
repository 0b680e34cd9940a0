"""Keys of encrypted rooms: kept up after every batch, asked for where one is missing."""

import hashlib

from nio.events import MegolmEvent

from palaver.model.source import DM
from palaver.platforms.matrix.client import Client
from palaver.platforms.matrix.errors import asking
from palaver.platforms.matrix.send import Sending
from palaver.platforms.matrix.sync import Heard
from palaver.protocols.clock import Clock

__all__ = ["MOST_SENDERS", "Closed", "keep_up"]

MOST_SENDERS = 100
"""About so many of them something is done in an hour."""
_HOUR = 3600

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
    """Messages that could not be read. Anybody can send such, so little is done about them.

    In an hour each sender in each room moves us once: to ask for the key, and in a direct chat to say so. An account
    without keys says it once in each room.
    """

    def __init__(self, client: Client, sending: Sending, clock: Clock) -> None:
        self._client = client
        self._sending = sending
        self._clock = clock
        self._rooms: set[str] = set()
        self._hour = 0
        self._senders: set[tuple[str, str]] = set()
        """Of this hour."""

    async def tell(self, heard: Heard, event: MegolmEvent) -> None:
        room_id = heard.scene.chat_id
        if not self._client.olm:
            if room_id not in self._rooms:
                self._rooms.add(room_id)
                await self._say(heard, _NO_ENCRYPTION, room_id)
        elif self._is_new(room_id, heard.event.sender):
            if heard.scene.kind == DM:
                await self._say(heard, _NO_KEY, f"{room_id}\n{self._hour}")
            if event.session_id not in self._client.outgoing_key_requests:
                await self._client.request_room_key(event)

    def _is_new(self, room_id: str, sender: str) -> bool:
        hour = int(self._clock.now().timestamp() // _HOUR)
        if hour != self._hour:
            self._hour, self._senders = hour, set()
        if (room_id, sender) in self._senders or len(self._senders) >= MOST_SENDERS:
            return False
        self._senders.add((room_id, sender))
        return True

    async def _say(self, heard: Heard, text: str, about: str) -> None:
        content = {
            "msgtype": "m.notice",
            "body": text,
            "m.mentions": {},
            "m.relates_to": {"m.in_reply_to": {"event_id": heard.event.event_id}},
        }
        # The same after a restart: the homeserver knows it again.
        name = hashlib.sha256(about.encode()).hexdigest()
        await self._sending.send(heard.scene.chat_id, content, f"closed-{name}")
