"""A visit: from one connection to its end, everything that happens is handed over, then counts as read."""

import asyncio
from dataclasses import replace
from functools import partial

from palaver.domain.source import DM
from palaver.domain.turn import Inbound
from palaver.platforms.matrix.client import Client
from palaver.platforms.matrix.direct import Direct
from palaver.platforms.matrix.doors import answer_invitation, enter, replaced_by
from palaver.platforms.matrix.errands import Errands
from palaver.platforms.matrix.events import Event
from palaver.platforms.matrix.hearing import Batch, Heard, Hearing, Invitation
from palaver.platforms.matrix.keys import Closed, keep_up
from palaver.platforms.matrix.options import Options
from palaver.platforms.matrix.parse import parse, trust_in
from palaver.platforms.matrix.sending import Sending
from palaver.platforms.matrix.speaking import Speaking
from palaver.ports.adapter import Inlet
from palaver.ports.clock import SystemClock

__all__ = ["JOINING", "Calls", "Visit"]

Calls = dict[str, Invitation | Event]
"""Rooms that we are called to and have not answered, by their ids. They outlive the connection."""

JOINING = 10.0
"""Seconds after which we come into rooms beside everything else."""
_MOST_CALLS = 100


class Visit:
    def __init__(self, client: Client, options: Options, account: str, inlet: Inlet, calls: Calls) -> None:
        self._client = client
        self._options = options
        self._inlet = inlet
        self._calls = calls
        self._direct = Direct(client)
        self._hearing = Hearing(client, self._direct, account, threads=options.scope == "thread")
        sending = Sending(client)
        self._closed = Closed(client, sending, SystemClock())
        self._since: str | None = None
        self._next: Batch
        self.speaking = Speaking(client, self._direct, sending)
        self.errands = Errands()

    async def begin(self) -> None:
        """The first batch tells which rooms we are in. Without a position, we begin with what is said from now on."""
        user_id, _, position = (await self._inlet.position() or "").partition(" ")
        self._since = position if user_id == self._client.user_id else None
        await self._direct.load()
        self._next = await self._listen()
        self._go(self._calls)

    async def stay(self) -> None:
        while True:
            await self._take(self._next)
            self._next = await self._listen()

    async def _listen(self) -> Batch:
        batch = await self._hearing.batch(self._since)
        await keep_up(self._client)
        return batch

    async def _take(self, batch: Batch) -> None:
        """Only when all of it is safe it counts as read; whatever cannot be kept comes again with all the rest."""
        for room_id in batch.entered:
            if old := await replaced_by(self._client, room_id):
                await self._moved(old, room_id)
        read = dict[str, str]()
        for heard in batch.heard:
            if await self._hand_over(heard):
                read[heard.scene.chat_id] = heard.event.event_id
        await self._go_where_called(batch)
        if batch.position != self._since:
            await self._inlet.keep_position(f"{self._client.user_id} {batch.position}")
            self._since = batch.position
        for room_id, event_id in read.items():
            self.errands.run(self.speaking.mark_read(room_id, event_id))

    async def _hand_over(self, heard: Heard) -> bool:
        """Whether it was a message of somebody else."""
        event, room_id = heard.event, heard.scene.chat_id
        if event.sender == self._client.user_id:
            return False
        if heard.closed:
            self.errands.run(self._closed.tell(heard, heard.closed))
        elif inbound := parse(event, heard.scene):
            await self._inlet.receive(await self._with_mention(inbound, room_id), trust_in(event))
            return True
        return False

    async def _with_mention(self, inbound: Inbound, room_id: str) -> Inbound:
        """To answer something of ours is to speak to us. In a direct chat that makes no difference."""
        if inbound.mentions_us or not inbound.reply_to or inbound.source.chat_kind == DM:
            return inbound
        return replace(inbound, mentions_us=await self.speaking.is_ours(room_id, inbound.reply_to))

    async def _moved(self, old: str, new: str) -> None:
        await self._direct.moved(old, new)
        await self._inlet.chat_moved(old, new)

    async def _go_where_called(self, batch: Batch) -> None:
        """Where we are invited, and where a room of ours has gone. To come into a room may take minutes, or fail."""
        closed = [each for each in batch.heard if _is_replaced(each.event)]
        calls: Calls = {each.room_id: each for each in batch.invitations}
        calls |= {each.event.content.replacement_room: each.event for each in closed}
        if calls:
            self._calls.update(calls)
            for oldest in [*self._calls][:-_MOST_CALLS]:
                del self._calls[oldest]
            await asyncio.wait(self._go(calls), timeout=JOINING)
        for each in closed:
            old, new = each.scene.chat_id, each.event.content.replacement_room
            if await replaced_by(self._client, new) == old:
                await self._moved(old, new)

    def _go(self, calls: Calls) -> "list[asyncio.Task[None]]":
        return [self.errands.insist(partial(self._heed, room_id, call)) for room_id, call in calls.items()]

    async def _heed(self, room_id: str, call: Invitation | Event) -> None:
        if isinstance(call, Invitation):
            await answer_invitation(self._client, self._direct, call, self._options.invites)
        else:
            await enter(self._client, room_id, call.sender)
        self._calls.pop(room_id, None)


def _is_replaced(event: Event) -> bool:
    """Whether a room says by it that another has taken its place."""
    return event.type == "m.room.tombstone" and event.state_key == "" and bool(event.content.replacement_room)
