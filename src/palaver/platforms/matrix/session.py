"""One connection: exchange keys, hand over every event, then save the position."""

import asyncio
import hashlib
from dataclasses import replace
from functools import partial

import aiohttp
from nio.events import MegolmEvent
from nio.exceptions import EncryptionError, LocalProtocolError

from palaver.platforms.matrix.client import API, Client, Invitation, Options
from palaver.platforms.matrix.parse import Event, parse, redacted_id, take_back, text_of, trust_of
from palaver.platforms.matrix.send import MessageSender, RoomSender
from palaver.platforms.matrix.sync import (
    Batch,
    DirectChats,
    RoomEvent,
    SyncReader,
    Undecrypted,
    answer_invitation,
)
from palaver.protocols import (
    DM,
    BackgroundTasks,
    Clock,
    Inbound,
    Quote,
    Receiver,
    SystemClock,
    account_text,
    identity_of,
    parse_or_skip,
)
from palaver.protocols.recent import remember

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
            self._hour = hour
            self._senders = set()
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


JOIN_TIMEOUT_SECONDS = 10.0
"""How long a sync waits for joins; after that they continue in the background."""
_MAX_INVITATIONS = 100
_MAX_REACTIONS = 1000


class SyncSession:
    def __init__(
        self,
        client: Client,
        options: Options,
        account: str,
        receiver: Receiver,
        waiting: Undecrypted,
        *,
        reactions: dict[str, Event] | None = None,
    ) -> None:
        self._client = client
        self._options = options
        self._receiver = receiver
        self._undecrypted = waiting
        self._direct_chats = DirectChats(client)
        self._reader = SyncReader(client, self._direct_chats, account, waiting)
        sender = RoomSender(client)
        self._notices = UndecryptableNotices(client, sender, SystemClock())
        self._position: str | None = None
        self._invitations: dict[str, Invitation] = {}
        """Those that are not answered yet, by room id, the oldest first."""
        self._reactions = {} if reactions is None else reactions
        self._saved_position: str | None = None
        self._next: Batch
        self.sender = MessageSender(client, self._direct_chats, sender)
        self.tasks = BackgroundTasks(aiohttp.ClientError, TimeoutError, EncryptionError, LocalProtocolError)
        self._verifications = None
        if client.olm:
            from palaver.platforms.matrix.verification import Verifications  # noqa: PLC0415 - an extra

            name = account_text("matrix", account)
            fingerprint = client.olm.account.identity_keys["ed25519"]
            self._verifications = Verifications(client, fingerprint, SystemClock(), name, self._may_verify)

    async def start(self) -> None:
        """Sync once to learn our rooms. Without a stored position, start with new messages."""
        self._saved_position = await self._receiver.load_position()
        whose, _, position = (self._saved_position or "").partition(" ")
        self._position = position if whose == self._client.user_id else None
        await self._direct_chats.load()
        self._next = await self._sync()

    async def run(self) -> None:
        while True:
            await self._process(self._next)
            self._next = await self._sync()

    async def _sync(self) -> Batch:
        batch = await self._reader.batch(self._position)
        await maintain_keys(self._client)
        if self._verifications:
            await self._verifications.answer()
        return batch

    async def _may_verify(self, user_id: str) -> bool:
        people = self._options.verifiers
        return await self._receiver.is_owner(user_id) if people == "owner" else user_id in people

    async def _process(self, batch: Batch) -> None:
        """Hand over a batch, then save the position; if anything cannot be stored, the whole batch comes again."""
        read = dict[str, str]()
        for room_event in batch.events:
            if await self._hand_over(room_event):
                read[room_event.context.chat_id] = room_event.event.event_id
        await self._join_rooms(batch)
        await self._save(batch.position)
        for room_id, event_id in read.items():
            self.tasks.run(self.sender.mark_read(room_id, event_id))

    async def _save(self, position: str) -> None:
        text = f"{self._client.user_id} {position}"
        if text != self._saved_position:
            await self._receiver.save_position(text)
        self._position = position
        self._saved_position = text

    async def _hand_over(self, room_event: RoomEvent) -> bool:
        """Hand over an event; return whether it was somebody else's message."""
        event = room_event.event
        room_id = room_event.context.chat_id
        if event.sender == self._client.user_id:
            return False
        if room_event.undecrypted:
            self.tasks.run(self._notices.notify(room_event, room_event.undecrypted))
            return False
        inbound = parse_or_skip("matrix", lambda: self._parse(room_event))
        if inbound and inbound.reaction:
            await self._receiver.receive(inbound, trust_of(event))
        elif inbound:
            await self._receiver.receive(await self._with_quote(inbound, room_id), trust_of(event))
        self._undecrypted.pop(event.event_id, None)
        return inbound is not None

    def _parse(self, room_event: RoomEvent) -> Inbound | None:
        """Parse an event. The redaction of a reaction has only its id, so the last reactions are remembered."""
        event = room_event.event
        context = room_event.context
        if reaction := self._reactions.get(redacted_id(event) or ""):
            return take_back(event, reaction, context)
        inbound = parse(event, context)
        if inbound and inbound.reaction:
            remember(self._reactions, event.event_id, event, _MAX_REACTIONS)
        return inbound

    async def _with_quote(self, inbound: Inbound, room_id: str) -> Inbound:
        """Add what a message replies to. A reply to our message counts as a mention."""
        quoted = await self.sender.find_event(room_id, inbound.reply_to) if inbound.reply_to else None
        if quoted is None:
            return inbound
        is_ours = quoted.sender == self._client.user_id
        text = text_of(quoted.content)
        author = identity_of(replace(inbound.source, user_id=quoted.sender))
        return replace(
            inbound,
            mentions_us=inbound.mentions_us or is_ours,
            quote=Quote(text=text, author=author, is_ours=is_ours) if text else None,
        )

    async def _join_rooms(self, batch: Batch) -> None:
        """Answer invitations. A join can take minutes, or fail."""
        if not batch.invitations:
            return
        for invitation in batch.invitations:
            remember(self._invitations, invitation.room_id, invitation, _MAX_INVITATIONS)
        joining = [
            self.tasks.run_with_retries(partial(self._answer_invitation, invitation))
            for invitation in batch.invitations
        ]
        await asyncio.wait(joining, timeout=JOIN_TIMEOUT_SECONDS)

    async def _answer_invitation(self, invitation: Invitation) -> None:
        """Answer an invitation, unless a newer one has replaced it or it was dropped."""
        if self._invitations.get(invitation.room_id) is invitation:
            await answer_invitation(self._client, self._direct_chats, invitation, self._options.invites)
            self._invitations.pop(invitation.room_id, None)
