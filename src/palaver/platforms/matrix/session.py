"""One connection: hand over every event, then save the position."""

import asyncio
from dataclasses import replace
from functools import partial

import aiohttp
from nio.exceptions import EncryptionError, LocalProtocolError

from palaver.platforms.matrix.client import Client, Invitation, Invitations, decode_position, encode_position
from palaver.platforms.matrix.events import Event, is_valid_id
from palaver.platforms.matrix.keys import UndecryptableNotices, maintain_keys
from palaver.platforms.matrix.options import Options
from palaver.platforms.matrix.parse import parse, redacted_id, take_back, text_of, trust_of
from palaver.platforms.matrix.rooms import DirectChats, answer_invitation, predecessor_of
from palaver.platforms.matrix.send import MessageSender, RoomSender
from palaver.platforms.matrix.sync import Batch, RoomEvent, SyncReader, Undecrypted
from palaver.protocols import (
    BackgroundTasks,
    Inbound,
    Quote,
    Receiver,
    SystemClock,
    account_text,
    identity_of,
    parse_or_skip,
)
from palaver.protocols.recent import remember

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
        login: str = "",
    ) -> None:
        self._client = client
        self._options = options
        self._login = login
        """The sealed login, kept with the position."""
        self._receiver = receiver
        self._undecrypted = waiting
        self._direct_chats = DirectChats(client)
        self._reader = SyncReader(client, self._direct_chats, account, waiting, threads=options.scope == "thread")
        sender = RoomSender(client)
        self._notices = UndecryptableNotices(client, sender, SystemClock())
        self._position: str | None = None
        self._invitations: Invitations = {}
        self._reactions = {} if reactions is None else reactions
        self._saved_position: str | None = None
        self._next: Batch
        self.sender = MessageSender(client, self._direct_chats, sender)
        self.tasks = BackgroundTasks(aiohttp.ClientError, TimeoutError, EncryptionError, LocalProtocolError)
        self._verifications = None
        if client.olm:
            from palaver.platforms.matrix.verification import Verifications  # noqa: PLC0415 - an extra

            name, fingerprint = account_text("matrix", account), client.olm.account.identity_keys["ed25519"]
            self._verifications = Verifications(client, fingerprint, SystemClock(), name, self._may_verify)

    async def start(self) -> None:
        """Sync once to learn our rooms. Without a stored position, start with new messages."""
        self._saved_position = await self._receiver.load_position()
        self._position, self._invitations = decode_position(self._saved_position, self._client.user_id)
        await self._direct_chats.load()
        self._next = await self._sync()
        self._start_joining(self._invitations)

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
        for room_id in batch.entered:
            if old := await predecessor_of(self._client, room_id):
                await self._report_move(old, room_id)
        read = dict[str, str]()
        for room_event in batch.events:
            if await self._hand_over(room_event):
                read[room_event.context.chat_id] = room_event.event.event_id
        await self._join_rooms(batch)
        await self._save(batch.position)
        for room_id, event_id in read.items():
            self.tasks.run(self.sender.mark_read(room_id, event_id))

    async def _save(self, position: str) -> None:
        """Save the position if it, or the list of open invitations, has changed."""
        text = encode_position(self._client.user_id, position, self._invitations, self._login)
        if text != self._saved_position:
            await self._receiver.save_position(text)
        self._position, self._saved_position = position, text

    async def _hand_over(self, room_event: RoomEvent) -> bool:
        """Hand over an event; return whether it was somebody else's message."""
        event, room_id = room_event.event, room_event.context.chat_id
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
        event, context = room_event.event, room_event.context
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
        is_ours, text = quoted.sender == self._client.user_id, text_of(quoted.content)
        author = identity_of(replace(inbound.source, user_id=quoted.sender))
        return replace(
            inbound,
            mentions_us=inbound.mentions_us or is_ours,
            quote=Quote(text=text, author=author, is_ours=is_ours) if text else None,
        )

    async def _report_move(self, old: str, new: str) -> None:
        await self._direct_chats.copy_to(old, new)
        await self._receiver.chat_moved(old, new)

    async def _join_rooms(self, batch: Batch) -> None:
        """Join rooms that we are invited to or that replace ours. A join can take minutes, or fail."""
        tombstones = [each for each in batch.events if _is_tombstone(each.event)]
        replacements = [
            Invitation(room_id=each.event.content.replacement_room, server=each.event.sender.partition(":")[2])
            for each in tombstones
        ]
        invitations = {invitation.room_id: invitation for invitation in (*batch.invitations, *replacements)}
        if invitations:
            for room_id, invitation in invitations.items():
                remember(self._invitations, room_id, invitation, _MAX_INVITATIONS)
            await asyncio.wait(self._start_joining(invitations), timeout=JOIN_TIMEOUT_SECONDS)
        for each in tombstones:
            old, new = each.context.chat_id, each.event.content.replacement_room
            if await predecessor_of(self._client, new) == old:
                await self._report_move(old, new)

    def _start_joining(self, invitations: Invitations) -> "list[asyncio.Task[None]]":
        return [
            self.tasks.run_with_retries(partial(self._answer_invitation, invitation))
            for invitation in invitations.values()
        ]

    async def _answer_invitation(self, invitation: Invitation) -> None:
        """Answer an invitation, unless a newer one has replaced it or it was dropped."""
        if self._invitations.get(invitation.room_id) is invitation:
            await answer_invitation(self._client, self._direct_chats, invitation, self._options.invites)
            self._invitations.pop(invitation.room_id, None)


def _is_tombstone(event: Event) -> bool:
    """Return whether the event closes a room in favour of another one."""
    new = event.content.replacement_room
    return event.type == "m.room.tombstone" and event.state_key == "" and bool(new) and is_valid_id(new)
