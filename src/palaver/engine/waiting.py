"""Waiting: for the first of several events, and through a store that does not answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from palaver.domain.errors import StoreUnavailable

__all__ = ["any_of", "through_outages"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST_PAUSE = 10.0


async def any_of(*events: asyncio.Event, timeout: float) -> None:  # noqa: ASYNC109 - running out is no error here
    """Until one of the events is set, or the time is over."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def through_outages(step: Callable[[], Awaitable[T]]) -> T:
    """Do a step, again and again while the store does not answer: what was worked out must not be lost for that."""
    pause = 0.1
    while True:
        try:
            return await step()
        except StoreUnavailable as error:
            log.warning("the store does not answer: %s", error, extra={"action": "store.unavailable"})
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
