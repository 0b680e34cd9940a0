"""Limits: how long something may take. All that may take equally long share one timer of the event loop."""

import asyncio
from collections.abc import Callable
from itertools import takewhile
from typing import Self

__all__ = [
    "Limit",
    "Limits",
    "Line",
]


class Limits:
    """For what every message does: hardly anything takes as long as it may, and each timer of its own is dear."""

    def __init__(self) -> None:
        self._lines: dict[float, Line] = {}

    def within(self, seconds: float) -> "Limit":
        """As asyncio.timeout, though it is entered without waiting."""
        return Limit(self.after(seconds))

    def after(self, seconds: float) -> "Line":
        line = self._lines.get(seconds)
        if line is None:
            line = self._lines[seconds] = Line(seconds)
        return line


class Line:
    """Calls each that joins it, once, so many seconds later; until then it may leave again."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: dict[Callable[[], object], float] = {}
        """Each with when it is called, the next in front: they came in this order."""
        self._timer: asyncio.TimerHandle | None = None
        """Set for one that may have left since: then it is set anew for whoever is in front."""

    def join(self, call: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        self._waiting[call] = at = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(at, self._ring)

    def leave(self, call: Callable[[], object]) -> None:
        self._waiting.pop(call, None)

    def _ring(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        due = [call for call, _ in takewhile(lambda waiting: waiting[1] <= now, self._waiting.items())]
        for call in due:
            del self._waiting[call]
        self._timer = loop.call_at(next(iter(self._waiting.values())), self._ring) if self._waiting else None
        for call in due:
            call()


class Limit:
    """Once it has run out the task is cancelled, and that, where nobody else cancels it, becomes a TimeoutError."""

    __slots__ = ("_cancelling", "_line", "_task", "has_run_out")

    def __init__(self, line: Line) -> None:
        self._line = line
        self.has_run_out = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a limit is for a task")
        self._task = task
        self._cancelling = task.cancelling()
        self._line.join(self)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._line.leave(self)
        is_ours = self.has_run_out and self._task.uncancel() <= self._cancelling
        if is_ours and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def __call__(self) -> None:
        """Its time is over."""
        self.has_run_out = True
        self._task.cancel()
