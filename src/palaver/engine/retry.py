"""Waiting: for the first of several events, for foreign code, and through a store that does not answer or refuses."""

import asyncio
import logging
import traceback
from asyncio import Task
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from palaver.model.errors import NewerSchema, StoreError, StoreUnavailable

__all__ = [
    "StrayCancellation",
    "contain_cancellation",
    "log_error",
    "log_outage",
    "log_task_error",
    "next_pause",
    "retry_outage",
    "run_forever",
    "trace",
    "wait_any",
]

log = logging.getLogger(__name__)

_PLACES = 4


def trace(error: BaseException) -> str:
    """`ValueError at delivery.py:139 > adapter.py:51`, and the same of what caused it."""
    frames = [(Path(frame.f_code.co_filename).name, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    places = " > ".join(f"{file}:{line}" for file, line in frames[-_PLACES:])
    told = f"{_name(error)} at {places}" if places else _name(error)
    return told if error.__cause__ is None else f"{told}, from {trace(error.__cause__)}"


def _name(error: BaseException) -> str:
    """`IntegrityError SQLITE_CONSTRAINT_UNIQUE`: databases name what is wrong, and quote nobody in the name."""
    named: object = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
    return f"{type(error).__name__} {named}" if named else type(error).__name__


def log_error(log: logging.Logger, what: str, error: BaseException, told: Mapping[str, object]) -> None:
    """Something that is not ours raised what it should not have."""
    log.error("%s: %s", what, trace(error), extra=told)


def log_task_error(log: logging.Logger, what: str, told: Mapping[str, object], task: Task[Any]) -> None:
    """For a task that is done and that nobody waits for."""
    if not task.cancelled() and (error := task.exception()):
        log_error(log, what, error, told)


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


def contain_cancellation() -> AbstractContextManager[None]:
    """Whoever cancels this task ends it; a cancellation that comes out of foreign code is an error like any other."""
    return _CONTAINED


async def wait_any(*events: asyncio.Event, timeout: float) -> None:  # noqa: ASYNC109 - running out is no error here
    """Until one of the events is set, or the time is over."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def retry_outage(step: Callable[[], Awaitable[T]]) -> T:
    """Do a step, again and again while the store does not answer: what was worked out must not be lost for that."""
    pause = 0.0
    while True:
        try:
            return await step()
        except StoreUnavailable as error:
            log_outage(error)
        pause = next_pause(pause)
        await asyncio.sleep(pause)


def log_outage(error: StoreUnavailable) -> None:
    log.warning("the store does not answer: %s", error, extra={"action": "store.unavailable"})


def next_pause(pause: float) -> float:
    """The pause after this one, while the store does not answer."""
    return max(_SHORTEST_PAUSE, min(2 * pause, _LONGEST_PAUSE))


async def run_forever(loop: Callable[[], Awaitable[None]]) -> None:
    """A loop that broke off, or that the store has refused something, begins anew: the next round may well go on.

    Raises NewerSchema: no round will ever go on.
    """
    while True:
        try:
            with contain_cancellation():
                await loop()
        except NewerSchema:
            raise
        except (StoreError, StrayCancellation) as error:
            log_error(log, "a loop begins anew", error, {"action": "loop.broke"})
        await asyncio.sleep(_BREATH)
