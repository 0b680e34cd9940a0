"""A visit: from one connection to its end, everything that happens is handed over, then counts as read."""

import asyncio
from dataclasses import replace
from functools import partial

from palaver.model.source import DM
from palaver.model.turn import Inbound
from palaver.platforms.matrix.client import Call, Calls, Client, position_of, read_position
from palaver.platforms.matrix.events import Event, is_name
from palaver.platforms.matrix.keys import Closed, keep_up
from palaver.platforms.matrix.options import Options
from palaver.platforms.matrix.parse import parse, trust_in
from palaver.platforms.matrix.rooms import Direct, answer, replaced_by
from palaver.platforms.matrix.send import Sending, Speaking
from palaver.platforms.matrix.sync import Batch, Errands, Heard, Hearing, Waiting
from palaver.protocols.adapter import Receiver
from palaver.protocols.clock import SystemClock

__all__ = [
    "JOINING",
    "Visit",
]

JOINING = 10.0
"""Seconds after which we come into rooms beside everything else."""
_MOST_CALLS = 100


class Visit:
    def __init__(self, client: Client, options: Options, account: str, receiver: Receiver, waiting: Waiting) -> None:
        self._client = client
        self._options = options
        self._receiver = receiver
        self._waiting = waiting
        self._direct = Direct(client)
        self._hearing = Hearing(client, self._direct, account, waiting, threads=options.scope == "thread")
        sending = Sending(client)
        self._closed = Closed(client, sending, SystemClock())
        self._since: str | None = None
        self._calls: Calls = {}
        self._kept: str | None = None
        self._next: Batch
        self.speaking = Speaking(client, self._direct, sending)
        self.errands = Errands()

    async def begin(self) -> None:
        """The first batch tells which rooms we are in. Without a position, we begin with what is said from now on."""
        self._kept = await self._receiver.load_position()
        self._since, self._calls = read_position(self._kept, self._client.user_id)
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
        await self._keep(batch.position)
        for room_id, event_id in read.items():
            self.errands.run(self.speaking.mark_read(room_id, event_id))

    async def _keep(self, position: str) -> None:
        """Also where nothing is new, but a call was answered."""
        text = position_of(self._client.user_id, position, self._calls)
        if text != self._kept:
            await self._receiver.save_position(text)
        self._since, self._kept = position, text

    async def _hand_over(self, heard: Heard) -> bool:
        """Whether it was a message of somebody else."""
        event, room_id = heard.event, heard.scene.chat_id
        if event.sender == self._client.user_id:
            return False
        if heard.closed:
            self.errands.run(self._closed.tell(heard, heard.closed))
            return False
        inbound = parse(event, heard.scene)
        if inbound:
            await self._receiver.receive(await self._with_mention(inbound, room_id), trust_in(event))
        self._waiting.pop(event.event_id, None)
        return inbound is not None

    async def _with_mention(self, inbound: Inbound, room_id: str) -> Inbound:
        """To answer something of ours is to speak to us. In a direct chat that makes no difference."""
        if inbound.mentions_us or not inbound.reply_to or inbound.source.chat_kind == DM:
            return inbound
        return replace(inbound, mentions_us=await self.speaking.is_ours(room_id, inbound.reply_to))

    async def _moved(self, old: str, new: str) -> None:
        await self._direct.moved(old, new)
        await self._receiver.chat_moved(old, new)

    async def _go_where_called(self, batch: Batch) -> None:
        """Where we are invited, and where a room of ours has gone. To come into a room may take minutes, or fail."""
        closed = [each for each in batch.heard if _is_replaced(each.event)]
        calls = {each.room_id: each for each in (*batch.invitations, *(_call_by(each.event) for each in closed))}
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
        return [self.errands.insist(partial(self._heed, call)) for call in calls.values()]

    async def _heed(self, call: Call) -> None:
        """Until it is answered; not where another has taken its place, or where there are too many."""
        if self._calls.get(call.room_id) is call:
            await answer(self._client, self._direct, call, self._options.invites)
            self._calls.pop(call.room_id, None)


def _is_replaced(event: Event) -> bool:
    """Whether a room says by it that another has taken its place."""
    new = event.content.replacement_room
    return event.type == "m.room.tombstone" and event.state_key == "" and bool(new) and is_name(new)


def _call_by(closing: Event) -> Call:
    return Call(room_id=closing.content.replacement_room, server=closing.sender.partition(":")[2])
