"""Figures, and timing side by side: the thing and its bare counterpart in turns, the median of many rounds."""

import gc
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = [
    "Bare",
    "Figure",
    "Limit",
    "Sides",
    "Verdict",
    "at_most",
    "compare",
    "median_of",
    "not_taken",
    "once",
    "p95",
    "p95_of",
    "ratio_at_least",
    "ratio_at_most",
    "resident",
    "set_aside",
    "side_by_side",
]


class Verdict(StrEnum):
    GOAL = "goal"
    """Within the limit, and as good as is aimed for where there is an aim beyond it."""
    KEPT = "ok"
    MISSED = "MISSED"
    INFORMS = "-"
    """There is no limit."""
    NOT_TAKEN = "NOT TAKEN"


@dataclass(frozen=True, kw_only=True)
class Bare:
    """The same rows without us, or the same work in the small: what a ratio is taken to."""

    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A bound on the value or on its ratio to the bare counterpart, from above or from below."""

    bound: float
    goal: float | None = None
    of_ratio: bool = False
    from_below: bool = False

    def keeps(self, number: float, bound: float) -> bool:
        return number >= bound if self.from_below else number <= bound


def at_most(bound: float, goal: float | None = None) -> Limit:
    return Limit(bound=bound, goal=goal)


def ratio_at_most(bound: float, goal: float | None = None) -> Limit:
    return Limit(bound=bound, goal=goal, of_ratio=True)


def ratio_at_least(bound: float, goal: float | None = None) -> Limit:
    return Limit(bound=bound, goal=goal, of_ratio=True, from_below=True)


@dataclass(frozen=True, kw_only=True)
class Figure:
    name: str
    value: float | None
    unit: str = "s"
    bare: Bare | None = None
    limit: Limit | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.bare.value if self.value is not None and self.bare else None

    @property
    def verdict(self) -> Verdict:
        if self.value is None:
            return Verdict.NOT_TAKEN
        if self.limit is None:
            return Verdict.INFORMS
        number = self.ratio if self.limit.of_ratio else self.value
        if number is None or not self.limit.keeps(number, self.limit.bound):
            return Verdict.MISSED
        goal = self.limit.goal
        return Verdict.GOAL if goal is not None and self.limit.keeps(number, goal) else Verdict.KEPT

    def to_json(self) -> dict[str, object]:
        limit = self.limit
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "bare": self.bare and self.bare.name,
            "bare_value": self.bare and self.bare.value,
            "ratio": self.ratio,
            "limit": limit and limit.bound,
            "limit_is": limit and f"{'ratio' if limit.of_ratio else 'value'} {'>=' if limit.from_below else '<='}",
            "goal": limit and limit.goal,
            "verdict": self.verdict.value,
            "note": self.note,
        }


def not_taken(name: str, why: str, limit: Limit | None = None) -> Figure:
    return Figure(name=name, value=None, limit=limit, note=why)


def set_aside() -> None:
    """What was made ready for the measurement is no memory of ours: the collector need not walk it meanwhile."""
    gc.collect()
    gc.freeze()


def resident() -> int:
    """Bytes of memory that this process has."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


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
        value=statistics.median(pair[0] for pair in pairs) / calls,
        bare=Bare(name=bare_name, value=statistics.median(pair[1] for pair in pairs) / calls),
        limit=at_most(limit),
    )


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Seconds of one round, mostly the median of all: ours and the other."""

    ours: float
    other: float


async def side_by_side(
    ours: Callable[[int], Awaitable[object]],
    other: Callable[[int], Awaitable[object]],
    *,
    rounds: int,
    between: Callable[[], object] = lambda: None,
    of: Callable[[list[float]], float] = statistics.median,
) -> Sides:
    """Both get the number of the round and run in turns, each first every second time; the first round warms up."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        order = ((ours, seconds[0]), (other, seconds[1]))
        for work, times in order if number % 2 else reversed(order):
            start = time.perf_counter()
            await work(number)
            times.append(time.perf_counter() - start)
        between()
    return Sides(ours=of(seconds[0][1:]), other=of(seconds[1][1:]))


async def median_of(work: Callable[[], Awaitable[object]], *, rounds: int) -> float:
    return statistics.median(await _times(work, rounds))


async def p95(work: Callable[[], Awaitable[object]], *, rounds: int) -> float:
    return p95_of(await _times(work, rounds))


def p95_of(times: list[float]) -> float:
    """The fastest of the slowest one in twenty."""
    return statistics.quantiles(times, n=20)[-1]


async def _times(work: Callable[[], Awaitable[object]], rounds: int) -> list[float]:
    times: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        await work()
        times.append(time.perf_counter() - start)
    return times
