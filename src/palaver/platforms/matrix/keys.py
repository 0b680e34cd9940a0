"""Keys of encrypted rooms: exchange them after every sync, and ask for missing ones."""

import hashlib

from nio.events import MegolmEvent

from palaver.platforms.matrix.client import Client
from palaver.platforms.matrix.errors import API
from palaver.platforms.matrix.send import RoomSender
from palaver.platforms.matrix.sync import RoomEvent
from palaver.protocols import DM, Clock

MAX_SENDERS_PER_HOUR = 100
"""Ignore undecryptable messages of further senders until the hour is over."""
_HOUR_SECONDS = 3600

_NO_KEY = (
    "I cannot read this message because its key has not reached me. I have asked for it."
    " If I do not answer soon, please send the message again."
)
_NO_ENCRYPTION = (
    "This room is encrypted, and I am not set up to read encrypted messages."
    " Please write to me in a room without encryption, or ask my operator to set it up."
)


async def maintain_keys(client: Client) -> None:
    """Upload, query and claim the keys that we and others need for writing to each other."""
    if not client.olm:
        return
    with API.requests():
        if client.should_upload_keys:
            await client.keys_upload()
        if client.should_query_keys:
            await client.keys_query()
        if client.should_claim_keys:
            await client.keys_claim({**client.get_users_for_key_claiming()})
        await client.send_to_device_messages()


class UndecryptableNotices:
    """Reacts to undecryptable messages, rate-limited because anybody can send them.

    Once an hour per sender and room it asks for the key and, in a direct chat, says so. An account without keys says
    so once in each room.
    """

    def __init__(self, client: Client, sender: RoomSender, clock: Clock) -> None:
        self._client = client
        self._room_sender = sender
        self._clock = clock
        self._rooms: set[str] = set()
        self._hour = 0
        self._senders: set[tuple[str, str]] = set()

    async def notify(self, room_event: RoomEvent, event: MegolmEvent) -> None:
        room_id = room_event.context.chat_id
        if not self._client.olm:
            if room_id not in self._rooms:
                self._rooms.add(room_id)
                await self._say(room_event, _NO_ENCRYPTION, room_id)
        elif self._is_first_this_hour(room_id, room_event.event.sender):
            if room_event.context.kind == DM:
                await self._say(room_event, _NO_KEY, f"{room_id}\n{self._hour}")
            if event.session_id not in self._client.outgoing_key_requests:
                await self._client.request_room_key(event)

    def _is_first_this_hour(self, room_id: str, sender: str) -> bool:
        hour = int(self._clock.now().timestamp() // _HOUR_SECONDS)
        if hour != self._hour:
            self._hour, self._senders = hour, set()
        if (room_id, sender) in self._senders or len(self._senders) >= MAX_SENDERS_PER_HOUR:
            return False
        self._senders.add((room_id, sender))
        return True

    async def _say(self, room_event: RoomEvent, text: str, about: str) -> None:
        content = {
            "msgtype": "m.notice",
            "body": text,
            "m.mentions": {},
            "m.relates_to": {"m.in_reply_to": {"event_id": room_event.event.event_id}},
        }
        # The same after a restart, so that the homeserver drops the repetition.
        name = hashlib.sha256(about.encode()).hexdigest()
        await self._room_sender.send(room_event.context.chat_id, content, f"closed-{name}")
