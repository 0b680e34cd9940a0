"""Timing side by side: the thing and its bare counterpart in turns, the median of many rounds."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Figure", "compare", "once"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    name: str
    seconds: float
    bare_seconds: float | None = None
    bare_name: str = ""
    limit_seconds: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.seconds / self.bare_seconds if self.bare_seconds else None

    @property
    def kept(self) -> bool:
        return self.limit_seconds is None or self.seconds <= self.limit_seconds

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "seconds": self.seconds,
            "bare": self.bare_name,
            "bare_seconds": self.bare_seconds,
            "ratio": self.ratio,
            "limit_seconds": self.limit_seconds,
            "kept": self.kept,
            "note": self.note,
        }


def once(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(
    name: str,
    work: Callable[[], object],
    bare_name: str,
    bare: Callable[[], object],
    *,
    limit: float,
    calls: int,
    rounds: int = 31,
) -> Figure:
    """Both run in turns, so that what else the machine does falls on both."""

    def many(function: Callable[[], object]) -> Callable[[], None]:
        def loop() -> None:
            for _ in range(calls):
                function()

        return loop

    pairs = [(once(many(work)), once(many(bare))) for _ in range(rounds)]
    return Figure(
        name=name,
        seconds=statistics.median(pair[0] for pair in pairs) / calls,
        bare_name=bare_name,
        bare_seconds=statistics.median(pair[1] for pair in pairs) / calls,
        limit_seconds=limit,
    )
