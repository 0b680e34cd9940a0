"""Limits of what callers can use: connections, open requests, messages and failures."""

import math
import sys
from collections import Counter, deque
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass, field

from palaver.model.errors import PalaverError
from palaver.model.value import value
from palaver.protocols.recent import remember

if sys.platform != "win32":
    import resource
else:
    resource = None

_MAX_CALLERS = 10_000
_MAX_FILES = 65_536
_SHARE = 4
"""One login or token can use a quarter of all connections at once."""


@value
class WebLimits:
    connections: int
    idle_seconds: float
    """How long a connection can be without a request, or without its client reading."""
    body_seconds: float
    """How long a body can take to arrive."""


class TooManyRequests(PalaverError):
    """The caller sends too much, and can go on after some seconds."""

    def __init__(self, text: str, seconds: float) -> None:
        super().__init__(text)
        self.retry_after = max(1, math.ceil(seconds))


@dataclass
class RateLimiter:
    """Count events in a sliding window, per caller and in total. Times are seconds of a monotonic clock."""

    per_caller: int = 5
    total: int | None = 100
    """None if events of one caller do not count against others."""
    window: float = 60.0
    _all: deque[float] = field(default_factory=deque[float])
    _by_caller: dict[Hashable, deque[float]] = field(default_factory=dict[Hashable, deque[float]])

    def retry_after(self, caller: Hashable, now: float) -> float:
        """Return how many seconds this caller has to wait; 0 if it need not."""
        own = self._by_caller.get(caller, deque())
        return max(self._seconds_left(own, self.per_caller, now), self._seconds_left(self._all, self.total, now))

    def record(self, caller: Hashable, now: float) -> None:
        own = self._by_caller.get(caller, deque())
        remember(self._by_caller, caller, own, _MAX_CALLERS)
        for events, limit in ((own, self.per_caller), (self._all, self.total or 0)):
            events.append(now)
            while len(events) > limit:
                events.popleft()

    def _seconds_left(self, events: deque[float], limit: int | None, now: float) -> float:
        return max(0.0, events[0] + self.window - now) if limit and len(events) >= limit else 0.0


@dataclass
class OpenRequests:
    """The requests that are being answered, by login or token, so that no one of them takes every connection."""

    connections: int
    _open: Counter[int] = field(default_factory=Counter[int])

    @contextmanager
    def count(self, key: int) -> Generator[None]:
        if self._open[key] >= max(1, self.connections // _SHARE):
            raise TooManyRequests("Too many requests of this login or token are open. Close some of them.", 5.0)
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


def raise_file_limit() -> None:
    """Let this process open as many files and connections as the system allows."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def usable_connections(wanted: int) -> int:
    """Return how many of the wanted connections fit: a quarter of the files is for everything else."""
    if resource is None:
        return wanted
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, soft * 3 // 4)
