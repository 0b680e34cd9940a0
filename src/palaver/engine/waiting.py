"""Waiting: for the first of several events, for foreign code, and through a store that does not answer or refuses."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from palaver.domain.errors import NewerSchema, StoreError, StoreUnavailable
from palaver.engine.traces import log_broken

__all__ = ["StrayCancellation", "any_of", "contained", "longer", "tell_outage", "through_outages", "unending"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_SHORTEST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0
_BREATH = 1.0


class StrayCancellation(Exception):
    """Something was cancelled in foreign code, which let that out; the task in which it ran was not."""


class _Contained:
    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                raise StrayCancellation from error


_CONTAINED = _Contained()


def contained() -> AbstractContextManager[None]:
    """Whoever cancels this task ends it; a cancellation that comes out of foreign code is an error like any other."""
    return _CONTAINED


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
    pause = 0.0
    while True:
        try:
            return await step()
        except StoreUnavailable as error:
            tell_outage(error)
        pause = longer(pause)
        await asyncio.sleep(pause)


def tell_outage(error: StoreUnavailable) -> None:
    log.warning("the store does not answer: %s", error, extra={"action": "store.unavailable"})


def longer(pause: float) -> float:
    """The pause after this one, while the store does not answer."""
    return max(_SHORTEST_PAUSE, min(2 * pause, _LONGEST_PAUSE))


async def unending(loop: Callable[[], Awaitable[None]]) -> None:
    """A loop that broke off, or that the store has refused something, begins anew: the next round may well go on.

    Raises NewerSchema: no round will ever go on.
    """
    while True:
        try:
            with contained():
                await loop()
        except NewerSchema:
            raise
        except (StoreError, StrayCancellation) as error:
            log_broken(log, "a loop begins anew", error, {"action": "loop.broke"})
        await asyncio.sleep(_BREATH)
