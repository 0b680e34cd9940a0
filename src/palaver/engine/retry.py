"""Retry, wait and time out; describe errors without quoting anybody."""

import asyncio
import logging
import traceback
from asyncio import Task
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import takewhile
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from palaver.db.transaction import Transaction
from palaver.model.backoff import backoff
from palaver.model.errors import NewerSchema, StoreError, StoreUnavailable, first_error
from palaver.store.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

DESCRIBED_FRAMES = 4
LONG_TEXT = 20_000
"""Work on a text of so many characters can take the event loop several milliseconds."""
RESTART_PAUSE_SECONDS = 1.0


async def retry(
    step: Callable[[], Awaitable[T]],
    *,
    on: type[Exception],
    unless: tuple[type[Exception], ...] = (),
    report: Callable[[Any], None],
    first: float = 0.1,
    longest: float = 10.0,
) -> T:
    """Repeat a step with growing pauses while it raises `on`. Raise every other error, and those in `unless`."""
    attempt = 0
    while True:
        try:
            return await step()
        except unless:
            raise
        except on as error:
            report(error)
        attempt += 1
        await asyncio.sleep(backoff(attempt, first=first, longest=longest))


def retry_outage(step: Callable[[], Awaitable[T]]) -> Coroutine[object, object, T]:
    """Repeat a step while the store does not answer, so that no result is lost to an outage."""
    return retry(step, on=StoreUnavailable, report=log_outage)


def retry_until_stored(store: Store, work: Transaction[T]) -> Coroutine[object, object, T]:
    """Commit a transaction, however long the store does not answer: a finished result must not be lost."""
    return retry_outage(lambda: store.transact(work))


def log_outage(error: StoreUnavailable) -> None:
    log.warning("the store does not answer: %s", error, extra={"action": "store.unavailable"})


async def run_forever(loop: Callable[[], Awaitable[None]]) -> None:
    """Restart a loop whenever it ends or the store refuses something. Raise NewerSchema: no restart cures that."""
    while True:
        try:
            with contain_cancellation():
                await loop()
        except NewerSchema:
            raise
        except (StoreError, StrayCancellation) as error:
            log_error(log, "a loop failed and restarts", error, {"action": "loop.error"})
        await asyncio.sleep(RESTART_PAUSE_SECONDS)


async def wait_any(*events: asyncio.Event, timeout: float) -> None:  # noqa: ASYNC109 - running out is no error here
    """Wait until one of the events is set or the time is over."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def off_loop(length: int, work: Callable[[], T]) -> T:
    """Do pure work on a text of this length: in a thread if everybody else would have to wait for it."""
    return await asyncio.to_thread(work) if length > LONG_TEXT else work()


async def close_all(
    what: str, closing: Iterable[Awaitable[object]], extra: Mapping[str, object], *, within: float
) -> None:
    """Wait until everything is closed, but not longer than `within` seconds: log what fails, and leave what goes on."""
    tasks = {task for each in closing if not (task := asyncio.ensure_future(each)).done()}
    if not tasks:
        return
    done, left = await asyncio.wait(tasks, timeout=within)
    for task in done:
        log_task_error(log, f"{what} did not close", extra, task)
    for task in left:
        task.cancel()
        log.error("%s does not close; leaving it alone", what, extra=extra)


# Foreign code


class StrayCancellation(Exception):
    """Foreign code raised CancelledError although nobody cancelled the task it ran in."""


class _ContainCancellation:
    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                raise StrayCancellation from error


_CONTAIN_CANCELLATION = _ContainCancellation()


def contain_cancellation() -> AbstractContextManager[None]:
    """Turn a CancelledError that foreign code raised on its own into StrayCancellation; pass a real one on."""
    return _CONTAIN_CANCELLATION


def describe_error(error: BaseException) -> str:
    """Return an error's type and place, and those of its causes: `ValueError at worker.py:139 > adapter.py:51`.

    Of a group it is the first one.
    """
    if isinstance(error, BaseExceptionGroup):
        return describe_error(first_error(cast("BaseExceptionGroup[BaseException]", error)))
    frames = [(Path(frame.f_code.co_filename).name, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    places = " > ".join(f"{file}:{line}" for file, line in frames[-DESCRIBED_FRAMES:])
    described = f"{_name(error)} at {places}" if places else _name(error)
    return described if error.__cause__ is None else f"{described}, from {describe_error(error.__cause__)}"


def _name(error: BaseException) -> str:
    """Return the type with the database's name for the error, which quotes no content."""
    named: object = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
    return f"{type(error).__name__} {named}" if named else type(error).__name__


def log_error(log: logging.Logger, sentence: str, error: BaseException, extra: Mapping[str, object]) -> None:
    log.error("%s: %s", sentence, describe_error(error), extra=extra)


def log_task_error(log: logging.Logger, sentence: str, extra: Mapping[str, object], task: Task[Any]) -> None:
    """Log the error of a finished task that nobody awaits."""
    if not task.cancelled() and (error := task.exception()):
        log_error(log, sentence, error, extra)


# Timeouts


class Timeouts:
    """Timeouts that share one event loop timer per duration: every message sets several, and few ever expire."""

    def __init__(self) -> None:
        self._queues: dict[float, TimerQueue] = {}

    def timeout(self, seconds: float) -> "Timeout":
        """Work like asyncio.timeout, but with a plain `with`."""
        return Timeout(self.queue(seconds))

    def queue(self, seconds: float) -> "TimerQueue":
        queue = self._queues.get(seconds)
        if queue is None:
            queue = self._queues[seconds] = TimerQueue(seconds)
        return queue


class TimerQueue:
    """Calls each callback once, the same number of seconds after it was added, unless it is removed first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[Callable[[], object], float] = {}
        """Callbacks with the time of each call. They are added in this order, so the first is due first."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, callback: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        self._due[callback] = at = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(at, self._call_due)

    def remove(self, callback: Callable[[], object]) -> None:
        # The timer stays: when it fires it is set again for the callback that is first by then.
        self._due.pop(callback, None)

    def _call_due(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        due = [callback for callback, _ in takewhile(lambda item: item[1] <= now, self._due.items())]
        for callback in due:
            del self._due[callback]
        self._timer = loop.call_at(next(iter(self._due.values())), self._call_due) if self._due else None
        for callback in due:
            callback()


class Timeout:
    """Cancels the task when its time is over, and turns that cancellation into a TimeoutError. Can be used again."""

    __slots__ = ("_cancelling", "_queue", "_task", "expired")

    def __init__(self, queue: TimerQueue) -> None:
        self._queue = queue

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a timeout needs a running task")
        self.expired = False
        self._task = task
        self._cancelling = task.cancelling()
        self._queue.add(self)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._queue.remove(self)
        is_ours = self.expired and self._task.uncancel() <= self._cancelling
        if is_ours and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def __call__(self) -> None:
        self.expired = True
        self._task.cancel()
