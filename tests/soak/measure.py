"""Figures over time: what a gateway used while it lived, how long answers took, and whether that stayed flat."""

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Generation", "Latency", "Sample", "lines", "whole"]

MIN_SAMPLES = 30
MIN_SECONDS = 600.0
"""A generation that lived shorter is shown, but says nothing about a trend."""
_STARTING_SECONDS = 30.0
"""What is measured before that is the start."""
_SLACK = {"memory": 8e6, "descriptors": 8, "threads": 4, "latency": 0.5, "control": float("inf"), "load": float("inf")}
"""Growth that says nothing: of a heap that settles, of a pool, of a machine with other work."""
_GROWTH = 1.15
_NEAR_SECONDS = 60.0
"""The control's latency at a moment is its median over so long before and after."""


class Sample(NamedTuple):
    at: float
    memory: int
    descriptors: int
    threads: int
    load: float = 0.0
    """Of the machine: how many processes want to compute."""


class Latency(NamedTuple):
    """How long somebody waited for an answer."""

    at: float
    """When they asked, in seconds since 1970."""
    seconds: float


@dataclass(kw_only=True)
class Generation:
    """One gateway process from its start to its end."""

    name: str
    began: float
    ended: float | None = None
    samples: list[Sample] = field(default_factory=list[Sample])

    @property
    def seconds(self) -> float:
        return (self.ended or self.samples[-1].at if self.samples else self.began) - self.began


class Trend(NamedTuple):
    """The medians of the first quarter and of the last."""

    first: float
    last: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Trend | None":
        quarter = len(values) // 4
        return cls(statistics.median(values[:quarter]), statistics.median(values[-quarter:])) if quarter else None

    @property
    def ratio(self) -> float:
        return self.last / self.first if self.first else 1.0

    def is_flat(self, kind: str) -> bool:
        return self.last <= max(self.first * _GROWTH, self.first + _SLACK[kind])


def whole(name: str, generations: Sequence[Generation]) -> Generation:
    """Return all generations of a place as one."""
    samples = [sample for generation in generations for sample in _warm(generation)]
    return Generation(name=name, began=generations[0].began, ended=generations[-1].ended, samples=samples)


def lines(
    generations: Sequence[Generation], latencies: Sequence[Latency], control: Sequence[Latency] = ()
) -> tuple[list[str], bool]:
    """One line for each generation that lived long enough, and whether all of them are flat.

    Latencies are as they would be on a machine that is always as busy as it usually was: divided by how much longer
    than usual the control took at the time.
    """
    asked, controls = _paced(sorted(latencies), sorted(control)), sorted(control)
    told: list[str] = []
    flat = True
    for generation in generations:
        if len(generation.samples) < MIN_SAMPLES:
            continue
        words, is_flat = _line(generation, _seconds(generation, asked), _seconds(generation, controls))
        flat = flat and (is_flat or generation.seconds < MIN_SECONDS)
        told.append(f"generation={generation.name} seconds={generation.seconds:.0f} {words}")
    return told, flat


def _between(latencies: Sequence[Latency], begin: float, end: float) -> list[float]:
    first, last = (bisect_left(latencies, (moment, 0.0)) for moment in (begin, end))
    return [latency.seconds for latency in latencies[first:last]]


def _seconds(generation: Generation, latencies: Sequence[Latency]) -> list[float]:
    return _between(latencies, generation.began, generation.ended or generation.samples[-1].at)


def _paced(latencies: Sequence[Latency], control: Sequence[Latency]) -> list[Latency]:
    usual = statistics.median(each.seconds for each in control) if control else 1.0
    paced: list[Latency] = []
    for at, seconds in latencies:
        near = _between(control, at - _NEAR_SECONDS, at + seconds + _NEAR_SECONDS)
        paced.append(Latency(at, seconds * usual / statistics.median(near) if near else seconds))
    return paced


def _warm(generation: Generation) -> list[Sample]:
    return [sample for sample in generation.samples if sample.at > generation.began + _STARTING_SECONDS]


def _line(generation: Generation, waited: Sequence[float], control: Sequence[float]) -> tuple[str, bool]:
    samples = _warm(generation)
    series: dict[str, tuple[Sequence[float], str]] = {
        "memory": ([sample.memory for sample in samples], "MB"),
        "descriptors": ([sample.descriptors for sample in samples], ""),
        "threads": ([sample.threads for sample in samples], ""),
        "latency": (waited, "ms"),
        "control": (control, "ms"),
        "load": ([sample.load for sample in samples], ""),
    }
    words: list[str] = []
    flat = True
    for kind, (values, unit) in series.items():
        trend = Trend.of(values)
        if trend is None:
            continue
        is_flat = trend.is_flat(kind)
        flat = flat and is_flat
        factor = {"MB": 1e-6, "ms": 1e3}.get(unit, 1)
        shown = "/".join(f"{value * factor:.0f}" for value in trend)
        words.append(f"{kind}={shown}{unit}({trend.ratio:.2f}{'' if is_flat else ', grows'})")
    return " ".join(words), flat
