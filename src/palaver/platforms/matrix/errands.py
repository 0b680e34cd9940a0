"""Errands: small things that are done meanwhile, and whose failure harms nobody."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress

import aiohttp
from nio.exceptions import EncryptionError, LocalProtocolError

from palaver.ports.adapter import PlatformError

__all__ = ["Errands"]


class Errands:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def run(self, doing: Coroutine[None, None, object]) -> "asyncio.Task[None]":
        task = asyncio.create_task(_quietly(doing))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def end(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def _quietly(doing: Coroutine[None, None, object]) -> None:
    with suppress(PlatformError, aiohttp.ClientError, TimeoutError, EncryptionError, LocalProtocolError):
        await doing
