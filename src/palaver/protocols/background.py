"""Work beside the connection: requests that nothing waits for and that never break it, and what ends with it."""

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


async def run_together(*works: Coroutine[None, None, object]) -> None:
    """Run until one of them ends; then end the others, and raise what any of them has raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()


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
