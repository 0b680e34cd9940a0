"""Requests beside the connection, such as read receipts: nothing waits for them, and they never break it."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import count

from palaver.model.backoff import backoff
from palaver.protocols.adapter import PlatformBusy, PlatformDown, PlatformError

_FIRST_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 625.0


class BackgroundTasks:
    """Runs requests and drops their errors: those of an adapter, and the library's own that you name."""

    def __init__(self, *dropped: type[Exception]) -> None:
        self._dropped = (PlatformError, *dropped)
        self._running: set[asyncio.Task[None]] = set()

    def run(self, request: Coroutine[None, None, object]) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._suppress_errors(request))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def run_with_retries(self, request: Callable[[], Coroutine[None, None, object]]) -> "asyncio.Task[None]":
        """Repeat an idempotent request while the platform is busy or does not respond."""
        return self.run(_retry(request))

    async def end(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _suppress_errors(self, request: Coroutine[None, None, object]) -> None:
        with suppress(*self._dropped):
            await request


async def _retry(request: Callable[[], Coroutine[None, None, object]]) -> None:
    for attempt in count(1):
        try:
            await request()
        except PlatformBusy as busy:
            await asyncio.sleep(busy.after)
        except PlatformDown:
            await asyncio.sleep(backoff(attempt, first=_FIRST_RETRY_SECONDS, factor=5, longest=_MAX_RETRY_SECONDS))
        else:
            return
