"""What only a SQLite file shows: flushes and bytes of a turn, a slow disk, opening, memory."""

import statistics
from collections.abc import Iterator

from bench.engines import sqlite
from bench.measure import Bare, Figure, Sides, at_most, not_taken, ratio_at_most
from bench.reads import FEW, MANY
from bench.turns import ALONE, AT_ONCE, rate
from bench.workshop import Workshop

__all__ = ["open_100k", "slow_disk", "turn_io"]

_NO_COMPILER = "there is no C compiler (cc), which is needed to count and slow down flushes"
_MICROSECONDS = 2000


def turn_io(workshop: Workshop) -> Iterator[Figure]:
    found = workshop.child("turn_io", workshop.copy(workshop.running(ALONE)))
    once = at_most(1)
    if workshop.flush_counter is None:
        yield not_taken("store.turn_fsyncs", _NO_COMPILER, once)
    else:
        yield Figure(name="store.turn_fsyncs", value=found["flushes"], unit="", limit=once)
    yield Figure(name="store.turn_bytes", value=found["bytes"], unit="B", limit=at_most(30_000))


def slow_disk(workshop: Workshop) -> Iterator[Figure]:
    name = "store.turns_64_slow"
    if workshop.flush_counter is None:
        yield not_taken(name, _NO_COMPILER, sqlite(workshop).at_once)
        return
    path = workshop.running(AT_ONCE)
    found = workshop.child("turns_64", workshop.copy(path), workshop.copy(path), microseconds=_MICROSECONDS)
    sides = Sides(ours=found["ours"], other=found["other"])
    yield rate(name, sqlite(workshop), sides, note="2 ms added to every fsync")


def open_100k(workshop: Workshop) -> Iterator[Figure]:
    paths = {count: workshop.conversations(count) for count in (FEW, MANY)}
    found = {count: [workshop.child("open", path) for _ in range(5)] for count, path in paths.items()}
    seconds, resident = (
        {count: statistics.median(each[name] for each in runs) for count, runs in found.items()}
        for name in ("seconds", "resident")
    )
    yield Figure(
        name="store.open_100k",
        value=seconds[MANY],
        bare=Bare(name="of 100 sessions", value=seconds[FEW]),
        limit=at_most(0.3),
    )
    yield Figure(
        name="store.open_memory",
        value=resident[MANY],
        unit="B",
        bare=Bare(name="with 100 sessions", value=resident[FEW]),
        limit=ratio_at_most(1.1),
    )
