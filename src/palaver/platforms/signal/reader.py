"""Read the events of signal-cli so that few can be lost: it forgets what it has written, stored or not."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from palaver.platforms.signal.daemon import Daemon
from palaver.protocols import PlatformError

T = TypeVar("T")
Event: TypeAlias = bytes | Mapping[str, Any]
"""JSON, as text or decoded."""

_PORTION = 10
_MAX_PORTIONS = 100
_PORTION_SECONDS = 1.0
"""How long signal-cli waits for another message before it answers with those that it has."""
_READ_AHEAD = 1_000
_LAST_READ_SECONDS = 0.05
"""In this time it reads what has been written when it is cancelled."""
_END_SECONDS = 5.0


class Reader:
    """Hands events over one by one. If it is cancelled, it still hands over what it has read."""

    def __init__(self, daemon: Daemon, store: Callable[[Event], Awaitable[None]]) -> None:
        self._daemon = daemon
        self._store = store
        self._read: asyncio.Queue[Event | None] = asyncio.Queue(_READ_AHEAD)

    async def run(self, connected: Callable[[], Awaitable[None]]) -> None:
        """Return when signal-cli closes the connection, and all that it wrote is stored."""
        reading, storing = asyncio.create_task(self._read_all(connected)), asyncio.create_task(self._store_all())
        try:
            await asyncio.wait({reading, storing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await asyncio.wait({reading}, timeout=_LAST_READ_SECONDS)
            await _end(reading)
            with suppress(TimeoutError):
                async with asyncio.timeout(0 if storing.done() else _END_SECONDS):
                    await self._read.put(None)
                    await asyncio.wait({storing})
            await _end(storing)
        for task in (storing, reading):
            if not task.cancelled():
                task.result()

    async def _read_all(self, connected: Callable[[], Awaitable[None]]) -> None:
        await self._catch_up()
        async with self._daemon.events() as events:
            await connected()
            async for event in events:
                await self._read.put(event)

    async def _catch_up(self) -> None:
        """Take what came while nobody listened in portions, each stored before the next.

        On the stream, signal-cli would write all of it at once, and a gateway that crashes then would lose it.
        """
        for _ in range(_MAX_PORTIONS):
            if await _finish(self._take_portion()) < _PORTION:
                return
            await self._read.join()

    async def _take_portion(self) -> int:
        try:
            found = await self._daemon.call("receive", {"maxMessages": _PORTION, "timeout": _PORTION_SECONDS})
        except PlatformError:  # It can be receiving for somebody else; the stream works even so.
            return 0
        for event in found or ():
            await self._read.put(event)
        return len(found or ())

    async def _store_all(self) -> None:
        while (event := await self._read.get()) is not None:
            await self._store(event)
            self._read.task_done()


async def _finish(work: Coroutine[None, None, T]) -> T:
    """Finish even if we are cancelled: the answer comes only once."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=_END_SECONDS)
        await _end(task)
        raise


async def _end(task: "asyncio.Future[T]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
