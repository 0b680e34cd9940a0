"""Start turns: one at a time per conversation, many conversations at once, the longest waiting first."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta

from palaver.db.transaction import INBOX
from palaver.engine.context import EngineContext, LiveState
from palaver.engine.retry import contain_cancellation, log_error, log_outage, retry_outage, wait_any
from palaver.model.backoff import backoff
from palaver.model.errors import StoreUnavailable
from palaver.model.key import SessionKey

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[datetime | None]]
"""One piece of work on a conversation. It returns when to look at the conversation again, or None for at once."""


_SHARED_WINDOW = 4
"""Gateways that share a store choose at random among so many times more conversations than they can take.

All of them wake at the same notification and see the same ones, longest waiting first.
"""


class Dispatcher:
    """Holds one task per conversation at work. The store decides order and exclusion; this only starts tasks."""

    def __init__(
        self, ctx: EngineContext, live: LiveState, start_next: Callable[[SessionKey], Awaitable[datetime | None]]
    ) -> None:
        self._ctx = ctx
        self._live = live
        self._start_next = start_next
        self._tasks: dict[SessionKey, asyncio.Task[None]] = {}
        self._not_before: dict[SessionKey, datetime] = {}
        self._outages: dict[SessionKey, int] = {}
        """How often in a row the store did not let a conversation begin."""
        self._task_ended = asyncio.Event()
        self.has_lost_track = asyncio.Event()
        """The store did not answer a task: a turn can have begun that nobody runs."""
        self._reserved: asyncio.Event | None = None

    async def serve(self) -> None:
        """Start turns as messages arrive and tasks end, until cancelled. Cancelling leaves running turns alone."""
        with self._ctx.store.listen(INBOX) as arrived:
            while True:
                arrived.clear()
                self._task_ended.clear()
                await retry_outage(self._start_waiting)
                await wait_any(arrived, self._task_ended, timeout=self._poll_seconds())

    @contextmanager
    def reserved(self) -> Generator[asyncio.Event]:
        """Keep all room for recovered turns: no message starts one meanwhile. Yield an event set when a task ends."""
        self._reserved = task_ended = asyncio.Event()
        try:
            yield task_ended
        finally:
            self._reserved = None
            self._task_ended.set()

    def start(self, key: SessionKey, work: Work) -> None:
        """Start work on a recovered turn, after any task that its conversation still has here."""
        self._start(key, work, after=self._tasks.get(key))

    async def drain(self) -> None:
        """Wait until no task is left."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def abandon(self) -> None:
        """Cancel everything as a crash would; the store has what is needed to go on."""
        for task in self._tasks.values():
            task.cancel()

    async def give_up(self) -> None:
        """Cancel everything, and look in the store for what there is to do."""
        tasks = tuple(self._tasks.values())
        self.abandon()
        if tasks:
            await asyncio.wait(tasks, timeout=self._ctx.settings.limits.lease.total_seconds())
        self.has_lost_track.set()

    @property
    def keys(self) -> Collection[SessionKey]:
        return tuple(self._tasks)

    @property
    def running(self) -> int:
        return len(self._tasks)

    @property
    def room(self) -> int:
        return 0 if self._live.clock_problem else max(0, self._ctx.settings.limits.concurrent_turns - len(self._tasks))

    async def _start_waiting(self) -> None:
        now = self._ctx.clock.now()
        self._not_before = {key: until for key, until in self._not_before.items() if until > now}
        if not self._room_for_messages:
            return
        skipped = len(self._tasks) + len(self._not_before)
        wanted = self._room_for_messages * (1 if self._ctx.alone else _SHARED_WINDOW) + skipped
        waiting = await self._ctx.store.read(self._ctx.store.inbox.list_ready(wanted))
        self._outages = {key: count for key, count in self._outages.items() if key in waiting}
        ready = [key for key in waiting if key not in self._tasks and key not in self._not_before]
        if not self._ctx.alone:
            self._ctx.rng.shuffle(ready)
        # Ask for the room again: it may have been taken or reserved during the read.
        for key in ready[: self._room_for_messages]:
            self._start(key, lambda key=key: self._start_next(key))

    @property
    def _room_for_messages(self) -> int:
        return 0 if self._reserved else self.room

    def _start(self, key: SessionKey, work: Work, *, after: "asyncio.Task[None] | None" = None) -> None:
        self._tasks[key] = asyncio.create_task(self._run(key, work, after), name=f"conversation {key.text}")

    async def _run(self, key: SessionKey, work: Work, after: "asyncio.Task[None] | None") -> None:
        try:
            if after is not None:
                await asyncio.wait({after})
            with contain_cancellation():
                until = await work()
            self._outages.pop(key, None)
            if until is not None:
                self._not_before[key] = until
        except StoreUnavailable as error:
            # Do not wait here: nothing may start once the gateway drains.
            log_outage(error)
            self._outages[key] = count = self._outages.get(key, 0) + 1
            self._not_before[key] = self._ctx.clock.now() + timedelta(seconds=backoff(count))
            self.has_lost_track.set()
        except Exception as error:  # noqa: BLE001 - one conversation must not end the others
            # The turn stays in the store under a lease that runs out; recovery then takes it over.
            log_error(log, "work on a conversation failed", error, {"action": "conversation.error", "key": key.text})
            self._not_before[key] = self._ctx.clock.now() + self._ctx.settings.limits.lease
        finally:
            if self._tasks[key] is asyncio.current_task():
                del self._tasks[key]
            self._task_ended.set()
            if self._reserved:
                self._reserved.set()

    def _poll_seconds(self) -> float:
        poll = self._ctx.settings.limits.poll
        soonest = min(self._not_before.values(), default=None)
        if soonest is not None:
            poll = min(poll, soonest - self._ctx.clock.now())
        return max(poll.total_seconds(), 0.001)
