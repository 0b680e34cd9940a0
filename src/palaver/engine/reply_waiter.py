"""The waiting room: programs are told as soon as their message is answered, all by one look at the store."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from palaver.db.database import INBOX, JOURNAL, OUTBOX, TURNS
from palaver.engine.retry import wait_any
from palaver.model.errors import StoreError
from palaver.protocols.hooks import PartialAnswer
from palaver.store.store import Store

__all__ = [
    "ReplyWaiter",
    "Waiter",
]

_TOPICS = (INBOX, JOURNAL, OUTBOX, TURNS)
_BUNCH = 0.01
"""Seconds in which wake-ups become one look."""
_NET = 5.0
_MOST_TURNS = 1000
_PAGE = 500

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
"""What a web server tells of a client, as ASGI has it."""


@dataclass(eq=False, slots=True)
class Waiter:
    """Somebody who waits for what comes of one message."""

    number: int
    turn: int | None = None
    is_settled: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def until_settled(self, seconds: float, receive: Receive | None = None) -> bool:
        """False where it takes longer, or whoever waits has gone."""
        leaving = asyncio.ensure_future(_left(receive))
        leaving.add_done_callback(lambda _: self.news.set())
        try:
            async with asyncio.timeout(seconds):
                while not self.is_settled and not leaving.done():
                    await self.news.wait()
                    self.news.clear()
        except TimeoutError:
            pass
        finally:
            leaving.cancel()
        return self.is_settled


async def _left(receive: Receive | None) -> None:
    if receive is None:
        await asyncio.Event().wait()
    else:
        while (await receive())["type"] != "http.disconnect":
            pass


class ReplyWaiter:
    """While nobody waits it costs nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiters: set[Waiter] = set()
        self._came = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._said: OrderedDict[int, list[str]] = OrderedDict()
        """What agents have said in turns that somebody may wait for: a text for each time they began to speak."""

    @contextmanager
    def waiting(self, number: int) -> Generator[Waiter]:
        waiter = Waiter(number)
        self._waiters.add(waiter)
        self._came.set()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_on(), name="waiting room")
        try:
            yield waiter
        finally:
            self._waiters.discard(waiter)
            if not self._waiters:
                self._looking.cancel()
                self._looking = None
                self._said.clear()

    def said(self, waiter: Waiter) -> list[str]:
        """What the agent has said so far, as far as it is heard here."""
        return self._said.get(waiter.turn or 0, [])

    def grow(self, growth: PartialAnswer) -> None:
        if not self._waiters:
            return
        said = self._said.setdefault(growth.turn, [""])
        if growth.text.startswith(said[-1]):
            said[-1] = growth.text
        else:
            said.append(growth.text)
        while len(self._said) > _MOST_TURNS:
            self._said.popitem(last=False)
        for waiter in self._waiters:
            if waiter.turn == growth.turn:
                waiter.news.set()

    async def _look_on(self) -> None:
        with ExitStack() as stack:
            heard = [stack.enter_context(self._store.listen(topic)) for topic in _TOPICS]
            while True:
                for event in (*heard, self._came):
                    event.clear()
                with suppress(StoreError):  # then later
                    await self._look()
                await wait_any(*heard, self._came, timeout=_NET)
                await asyncio.sleep(_BUNCH)

    async def _look(self) -> None:
        open_ = [waiter for waiter in self._waiters if not waiter.is_settled]
        for start in range(0, len(open_), _PAGE):
            page = open_[start : start + _PAGE]
            numbers = sorted({waiter.number for waiter in page})
            found = {each.number: each for each in await self._store.read(self._store.message_status.progress(numbers))}
            for waiter in page:
                now = found.get(waiter.number)
                # What is not there any more will not be answered.
                turn, is_settled = (now.turn, now.is_settled) if now else (None, True)
                if (turn, is_settled) != (waiter.turn, waiter.is_settled):
                    waiter.turn, waiter.is_settled = turn, is_settled
                    waiter.news.set()
