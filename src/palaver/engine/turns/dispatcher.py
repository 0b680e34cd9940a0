"""Lanes: one turn at a time per conversation, many conversations at once, the longest waiting first."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta

from palaver.db.database import INBOX
from palaver.engine.context import EngineContext
from palaver.engine.retry import contain_cancellation, log_error, log_outage, next_pause, retry_outage, wait_any
from palaver.model.errors import StoreUnavailable
from palaver.model.key import SessionKey

__all__ = [
    "Dispatcher",
]

log = logging.getLogger(__name__)

Body = Callable[[], Awaitable[datetime | None]]
"""What a lane does; it may give a time before which its conversation need not be looked at again."""


class Dispatcher:
    """A lane exists only while it works. Order and exclusion are the store's; this only starts what may start."""

    def __init__(self, ctx: EngineContext, take: Callable[[SessionKey], Awaitable[datetime | None]]) -> None:
        self._ctx = ctx
        self._take = take
        self._lanes: dict[SessionKey, asyncio.Task[None]] = {}
        self._later: dict[SessionKey, datetime] = {}
        self._pauses: dict[SessionKey, float] = {}
        """How long each waits that the store did not let begin."""
        self._freed = asyncio.Event()
        self._kept_for: asyncio.Event | None = None

    async def serve(self) -> None:
        """Start turns as messages arrive and lanes get free, until cancelled. Running lanes are not touched by that."""
        with self._ctx.store.listen(INBOX) as arrived:
            while True:
                arrived.clear()
                self._freed.clear()
                await retry_outage(self._fill)
                await wait_any(arrived, self._freed, timeout=self._patience())

    @contextmanager
    def kept(self) -> Generator[asyncio.Event]:
        """For what is taken over: meanwhile no message begins a turn. The event is set whenever a lane gets free."""
        self._kept_for = freed = asyncio.Event()
        try:
            yield freed
        finally:
            self._kept_for = None
            self._freed.set()

    def start(self, key: SessionKey, body: Body) -> None:
        """Transaction on a conversation whose turn was taken over, after what is done there already."""
        self._begin(key, body, after=self._lanes.get(key))

    async def drain(self) -> None:
        """Until every lane is free."""
        while self._lanes:
            await asyncio.wait(self._lanes.values())

    def abandon(self) -> None:
        """Drop everything as a crash would; what was going on is found in the store."""
        for lane in self._lanes.values():
            lane.cancel()

    @property
    def keys(self) -> Collection[SessionKey]:
        """The conversations that are worked on here."""
        return tuple(self._lanes)

    @property
    def running(self) -> int:
        return len(self._lanes)

    @property
    def room(self) -> int:
        """For how many more there is room."""
        return max(0, self._ctx.options.concurrent_turns - len(self._lanes))

    async def _fill(self) -> None:
        now = self._ctx.clock.now()
        self._later = {key: until for key, until in self._later.items() if until > now}
        if not self._free:
            return
        passed_over = len(self._lanes) + len(self._later)
        waiting = await self._ctx.store.read(self._ctx.store.inbox.claimable(self._free + passed_over))
        self._pauses = {key: pause for key, pause in self._pauses.items() if key in waiting}
        ready = [key for key in waiting if key not in self._lanes and key not in self._later]
        # Read anew: lanes may have been taken, or kept, meanwhile.
        for key in ready[: self._free]:
            self._begin(key, lambda key=key: self._take(key))

    @property
    def _free(self) -> int:
        """For how many more messages there is room."""
        return 0 if self._kept_for else self.room

    def _begin(self, key: SessionKey, body: Body, *, after: "asyncio.Task[None] | None" = None) -> None:
        self._lanes[key] = asyncio.create_task(self._work(key, body, after), name=f"lane {key.text}")

    async def _work(self, key: SessionKey, body: Body, after: "asyncio.Task[None] | None") -> None:
        try:
            if after is not None:
                await asyncio.wait({after})
            with contain_cancellation():
                until = await body()
            self._pauses.pop(key, None)
            if until is not None:
                self._later[key] = until
        except StoreUnavailable as error:
            # Not waited for here: nothing begins any more once the gateway drains.
            log_outage(error)
            pause = self._pauses[key] = next_pause(self._pauses.get(key, 0.0))
            self._later[key] = self._ctx.clock.now() + timedelta(seconds=pause)
        except Exception as error:  # noqa: BLE001 - one lane must not end the others
            # The turn is still in the store, under a lease that now runs out; other conversations go on.
            log_error(log, "a lane broke", error, {"action": "lane.broke", "key": key.text})
            self._later[key] = self._ctx.clock.now() + self._ctx.options.lease
        finally:
            if self._lanes[key] is asyncio.current_task():
                del self._lanes[key]
            self._freed.set()
            if self._kept_for:
                self._kept_for.set()

    def _patience(self) -> float:
        poll = self._ctx.options.poll
        soonest = min(self._later.values(), default=None)
        if soonest is not None:
            poll = min(poll, soonest - self._ctx.clock.now())
        return max(poll.total_seconds(), 0.001)
