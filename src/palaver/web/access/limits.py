"""Limits on guessing: how often a login or a call may fail, for one address and for all together."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field

__all__ = ["Attempts"]

_MOST_ADDRESSES = 10_000


@dataclass
class Attempts:
    """Failures of the last minute. Times are seconds of any clock that never goes back."""

    each: int = 5
    everybody: int | None = 100
    """None where those at one address do not count against those at another."""
    window: float = 60.0
    _all: deque[float] = field(default_factory=deque[float])
    _by_address: "OrderedDict[str, deque[float]]" = field(default_factory=OrderedDict)

    def wait(self, address: str, now: float) -> float:
        """For how many seconds whoever fails at this address is told to wait; 0 where they need not."""
        own = self._by_address.get(address, deque())
        return max(self._left(own, self.each, now), self._left(self._all, self.everybody, now))

    def failed(self, address: str, now: float) -> None:
        own = self._by_address.setdefault(address, deque())
        self._by_address.move_to_end(address)
        while len(self._by_address) > _MOST_ADDRESSES:
            self._by_address.popitem(last=False)
        for failures, most in ((own, self.each), (self._all, self.everybody or 0)):
            failures.append(now)
            while len(failures) > most:
                failures.popleft()

    def _left(self, failures: deque[float], most: int | None, now: float) -> float:
        return max(0.0, failures[0] + self.window - now) if most and len(failures) >= most else 0.0
