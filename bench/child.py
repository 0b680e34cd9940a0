"""Measurements that need a process of their own: `python -m bench.child WHAT PATH …` prints them as JSON."""

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.engine import measure
from bench.engines import sqlite
from bench.measure import resident
from bench.populate import NOON, RULE, answer_of, key, running_turns, source
from bench.postgres import flood_rate
from bench.turns import sixty_four
from bench.workshop import Workshop
from palaver.cli.loop import run
from palaver.store.opening import open_store
from tests.store.opened import open_session

__all__: list[str] = []

_WARM, _MEASURED = 10, 50


async def _turn_io(path: Path) -> dict[str, float]:
    """Flushes and bytes of a turn; few enough turns that no checkpoint comes between."""
    async with await open_store(str(path)) as store:
        works = [answer_of(turn) for turn in running_turns(path)[: _WARM + _MEASURED]]
        for work in works[:_WARM]:
            await store.transact(work)
        before = _flushed(), _written()
        for work in works[_WARM:]:
            await store.transact(work)
        flushed, written = _flushed() - before[0], _written() - before[1]
    return {"flushes": flushed / _MEASURED, "bytes": written / _MEASURED}


def _flushed() -> int:
    library = ctypes.CDLL(None)
    return library.bench_flushed() if hasattr(library, "bench_flushed") else 0


def _written() -> int:
    """Bytes given to write(2) and its kin."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


async def _turns_64(path: Path, other: Path) -> dict[str, float]:
    with Workshop() as workshop:
        sides = await sixty_four(sqlite(workshop), running_turns(path), str(path), str(other))
    return {"ours": sides.ours, "other": sides.other}


async def _open(path: Path) -> dict[str, float]:
    start = time.perf_counter()
    store = await open_store(str(path))
    seconds = time.perf_counter() - start
    await store.transact(open_session(key(50), source(50), NOON, RULE))
    memory = resident()
    await store.close()
    return {"seconds": seconds, "resident": memory}


async def _engine(path: Path) -> dict[str, float]:
    return await measure(str(path), _flushed)


if __name__ == "__main__":
    what = {"turn_io": _turn_io, "turns_64": _turns_64, "open": _open, "engine": _engine, "flood": flood_rate}[
        sys.argv[1]
    ]
    paths: list[Any] = [each if "://" in each else Path(each) for each in sys.argv[2:]]
    print(json.dumps(run(what(*paths))))
