"""A worker that does anything that comes to its mind to a few conversations, and keeps a diary of what it was told.

In tests of SQLite several of them are tasks of one process; with PostgreSQL each is a process of its own:
`python -m tests.store.worker_child URL NAMES SEED STEPS`, whose output is the diaries.
"""

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from palaver.model.compaction import plan_compaction
from palaver.model.errors import NotFound, NothingToCompact, SessionBusy, StaleFence
from palaver.model.session import Principal
from palaver.model.turn import Delivery, Inbound, Outbound, OutboxState, Turn, TurnState, Usage
from palaver.store.conversations import branches, history, sessions, titles, transcript
from palaver.store.opening import open_store
from palaver.store.queue import inbox, outbox, turns
from palaver.store.results import RepeatSafety
from palaver.store.store import Store
from tests.store.world import (
    IDLE_HOUR,
    LEASE,
    NEVER,
    NOON,
    OPERATOR,
    answer,
    begin_sends,
    collecting,
    dm,
    key_of,
    only_begun,
)

# One person in three places, so that sessions can be carried from one to the other.
PLACES = (dm("7"), dm("7", thread_id="a"), dm("7", thread_id="b"))
ME = Principal.speaking(PLACES[0])
# What a worker may be told when it is too late or there is nothing to do.
REFUSALS = (StaleFence, SessionBusy, NothingToCompact, NotFound)
SHARED_IDS = 40
Record = tuple[Any, ...]
Action = Callable[[], Awaitable[None]]


class Worker:
    def __init__(self, store: Store, name: str, seed: int) -> None:
        self.store = store
        self.name = name
        self.chance = random.Random(seed)  # noqa: S311
        self.diary: list[Record] = []
        self.held: list[Turn] = []
        self.claimed: list[Delivery] = []
        self.words = count(1)
        # Most steps move a turn on; the others get in its way.
        self.actions: list[Action] = [
            *[self.accept] * 5,
            *[self.begin] * 6,
            *[self.append] * 5,
            *[self.settle] * 5,
            *[self.claim, self.deliver] * 2,
            self.halt,
            self.resume,
            self.reclaim,
            self.reclaim_sends,
            self.reset,
            self.undo,
            self.back,
            self.switch,
            self.branch,
            self.compact,
            self.rename,
        ]

    async def work(self, steps: int) -> list[Record]:
        for _ in range(steps):
            action = self.chance.choice(self.actions)
            try:
                await action()
            except REFUSALS:
                continue
        return self.diary

    @property
    def now(self) -> datetime:
        """Clocks of several machines never quite agree."""
        return NOON + timedelta(seconds=self.chance.randrange(30))

    def word(self) -> str:
        return f"{self.name} {next(self.words)} {'.' * 40}"

    def note(self, *facts: object) -> None:
        self.diary.append(facts)

    # Turns

    async def accept(self) -> None:
        """Some messages are delivered to several workers at once."""
        place = self.chance.randrange(len(PLACES))
        shared = self.chance.random() < 0.3
        id_ = f"shared {self.chance.randrange(SHARED_IDS)}" if shared else self.word()
        source = dm("7", **({"thread_id": PLACES[place].thread_id or ""} if place else {}), message_id=id_)
        inbound = Inbound(source=source, text=self.word(), at=self.now)
        number = await self.store.transact(inbox.accept(inbound, key_of(source), self.now))
        self.note("accepted", place, id_, number)

    async def begin(self) -> None:
        place = self.chance.choice(PLACES)
        rules = self.chance.choice((NEVER, NEVER, IDLE_HOUR))
        rules = collecting(rules) if self.chance.random() < 0.3 else rules
        begin = turns.begin(key_of(place), self.name, self.now, LEASE, rules)
        begun = only_begun(await self.store.transact(begin))
        if begun:
            self.held.append(begun.turn)
            self.note("begun", begun.turn.number, [message.number for message in begun.messages])

    def some_turn(self) -> Turn:
        """The newest or, to be refused, one that was lost or settled long ago."""
        if not self.held:
            raise NotFound("turn", "any")
        return self.held[-1] if self.chance.random() < 0.8 else self.chance.choice(self.held)

    async def append(self) -> None:
        turn, text = self.some_turn(), self.word()
        self.note("tried to write", turn.number, text)
        await self.store.transact(turns.append_to_turn(turn, [answer(text)]))
        self.note("wrote", turn.number, text)

    async def settle(self) -> None:
        turn, text = self.some_turn(), self.word()
        self.note("tried to write", turn.number, text)
        replies = [Outbound(platform="web", chat_id="7", text=f"{text} {part}") for part in range(2)]
        error = "it broke" if self.chance.random() < 0.2 else None
        usage = Usage(input_tokens=1)
        await self.store.transact(turns.settle(turn, [answer(text)], replies, self.now, usage=usage, error=error))
        self.note("wrote", turn.number, text)
        self.note("settled", turn.number)

    async def halt(self) -> None:
        state = self.chance.choice((TurnState.PARKED, TurnState.INTERRUPTED))
        await self.store.transact(turns.halt(self.some_turn(), state, self.now))

    async def resume(self) -> None:
        taken = await self.store.transact(turns.resume(self.some_turn().number, self.name, self.now, LEASE))
        if taken:
            self.take(taken)

    async def reclaim(self) -> None:
        """A worker whose clock runs far ahead takes everything from everybody."""
        for turn in await self.store.transact(turns.reclaim(self.name, self.now + 2 * LEASE, LEASE)):
            self.take(turn)

    def take(self, turn: Turn) -> None:
        self.held.append(turn)
        self.note("took", turn.number, turn.fence)

    # What is owed

    async def claim(self) -> None:
        for delivery in await self.store.transact(begin_sends(self.name, self.now + LEASE, limit=3)):
            self.claimed.append(delivery)
            self.note("claimed", delivery.number, delivery.attempts)

    async def deliver(self) -> None:
        if self.claimed:
            delivery = self.claimed.pop(self.chance.randrange(len(self.claimed)))
            state = self.chance.choice((OutboxState.DELIVERED, OutboxState.DUE, OutboxState.DEAD))
            await self.store.transact(outbox.settle_send(delivery, self.name, state, error="later"))
            self.note(state.value, delivery.number)

    async def reclaim_sends(self) -> None:
        lost = outbox.reclaim_sends(self.name, self.now + 4 * LEASE, safe=RepeatSafety(accounts=frozenset({"web:"})))
        for delivery in await self.store.transact(lost):
            self.note("unclear", delivery.number, delivery.attempts)

    # Moves

    async def reset(self) -> None:
        place, title = self.chance.choice(PLACES), self.chance.choice((None, "Plan"))
        await self.store.transact(sessions.reset(key_of(place), place, self.now, by=self.name, title=title))

    async def undo(self) -> None:
        place = self.chance.choice(PLACES)
        await self.store.transact(
            transcript.undo(key_of(place), self.chance.randrange(1, 3), self.now, principal=OPERATOR)
        )

    async def back(self) -> None:
        await self.store.transact(history.back(key_of(self.chance.choice(PLACES)), self.now, principal=OPERATOR))

    async def some_session(self) -> str:
        """A session of any of the three places."""
        current = await self.store.read(sessions.open_by_key(key_of(self.chance.choice(PLACES))))
        if current is None:
            raise NotFound("session", "any")
        return current.id

    async def switch(self) -> None:
        place, target = self.chance.choice(PLACES), await self.some_session()
        await self.store.transact(sessions.switch(key_of(place), place, target, ME, self.now, by=self.name))

    async def branch(self) -> None:
        place, target = self.chance.choice(PLACES), await self.some_session()
        step = branches.branch(key_of(place), place, ME, self.now, by=self.name, from_session=target)
        await self.store.transact(step)

    async def compact(self) -> None:
        key = key_of(self.chance.choice(PLACES))
        current = await self.store.read(sessions.open_by_key(key))
        if current:
            entries = await self.store.read(transcript.load_visible(current.id, OPERATOR))
            plan = plan_compaction(entries, keep_exchanges=1)
            await self.store.transact(transcript.compact(key, plan, "in short", self.now, by=self.name))

    async def rename(self) -> None:
        await self.store.transact(titles.rename(await self.some_session(), "Plan", ME))


async def work_together(url: str, names: list[str], seed: int, steps: int) -> list[list[Record]]:
    """Several workers over one store; gives their diaries."""
    async with await open_store(url) as store:
        workers = [Worker(store, name, seed + number) for number, name in enumerate(names)]
        return await asyncio.gather(*(worker.work(steps) for worker in workers))


if __name__ == "__main__":
    _, address, own_names, own_seed, own_steps = sys.argv
    diaries = asyncio.run(work_together(address, own_names.split(), int(own_seed), int(own_steps)))
    print(json.dumps(diaries))  # noqa: T201
