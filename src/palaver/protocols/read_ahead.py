"""Connections that stay open: the proxy to use, and reading while what came before is still being stored."""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

T = TypeVar("T")

_MAX_AHEAD = 1_000
_LAST_READ_SECONDS = 0.05
"""In this time, what has already been sent to us is read."""


def proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for the URL of a WebSocket, by the rules of an HTTP request."""
    address, proxies = urlsplit(url), getproxies()
    found = proxies.get({"wss": "https"}.get(address.scheme, "http")) or proxies.get("all")
    if not found or proxy_bypass(address.netloc.rpartition("@")[2]):
        return None
    return found if "://" in found else f"http://{found}"


async def read_ahead(
    payloads: AsyncIterable[T], take: Callable[[T], Awaitable[None]], *, finish_within: float = 0.0
) -> None:
    """Hand each payload to `take`, in order, until there are no more. Raise what either of them raises.

    If it is cancelled or the connection is lost, what was read and not taken is dropped: it comes again. If the
    platform does not repeat itself, say how many seconds you can wait for the rest with `finish_within`.
    """
    read: asyncio.Queue[T | None] = asyncio.Queue(_MAX_AHEAD)
    reading, taking = asyncio.create_task(_read(payloads, read)), asyncio.create_task(_take(read, take))
    try:
        await asyncio.wait({reading, taking}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if finish_within and not taking.done():
            await asyncio.wait({reading}, timeout=_LAST_READ_SECONDS)
            await _end(reading)
            with suppress(TimeoutError):
                async with asyncio.timeout(finish_within):
                    await read.put(None)
                    await asyncio.wait({taking})
        await _end(reading)
        await _end(taking)
    for task in (taking, reading):
        if not task.cancelled():
            task.result()


async def finish(work: Coroutine[None, None, T], within: float) -> T:
    """Await it. If we are cancelled, it goes on for some seconds before it is cancelled, too."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=within)
        await _end(task)
        raise


async def _read(payloads: AsyncIterable[T], read: "asyncio.Queue[T | None]") -> None:
    async for payload in payloads:
        await read.put(payload)


async def _take(read: "asyncio.Queue[T | None]", take: Callable[[T], Awaitable[None]]) -> None:
    while (payload := await read.get()) is not None:
        await take(payload)


async def _end(task: "asyncio.Future[T]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
