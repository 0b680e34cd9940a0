"""Errands: small things that are done meanwhile, and whose failure harms nobody."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import chain, repeat

import aiohttp
from nio.exceptions import EncryptionError, LocalProtocolError

from palaver.ports.adapter import PlatformBusy, PlatformDown, PlatformError

__all__ = ["PAUSES", "Errands"]

PAUSES = (1.0, 5.0, 25.0, 125.0, 625.0)
"""Seconds between tries of what gets no answer; the last one again and again."""


class Errands:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def run(self, doing: Coroutine[None, None, object]) -> "asyncio.Task[None]":
        task = asyncio.create_task(_quietly(doing))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def insist(self, doing: Callable[[], Coroutine[None, None, object]]) -> "asyncio.Task[None]":
        """What may be done twice: again, for as long as the homeserver asks for patience, or does not answer."""
        return self.run(_patiently(doing))

    async def end(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def _patiently(doing: Callable[[], Coroutine[None, None, object]]) -> None:
    pauses = chain(PAUSES, repeat(PAUSES[-1]))
    while True:
        try:
            await doing()
        except PlatformBusy as busy:
            await asyncio.sleep(busy.after)
        except PlatformDown:
            await asyncio.sleep(next(pauses))
        else:
            return


async def _quietly(doing: Coroutine[None, None, object]) -> None:
    with suppress(PlatformError, aiohttp.ClientError, TimeoutError, EncryptionError, LocalProtocolError):
        await doing
