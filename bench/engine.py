"""From the fake platform to the delivered receipt: how many messages, how fast, and what else it costs."""

import asyncio
import gc
import sqlite3
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from bench.gateway import Gateway, gateway
from bench.measure import Bare, Figure, Limit, at_most, not_taken, ratio_at_most, set_aside
from bench.reads import FEW, MANY
from bench.replay import recording, replay_seconds
from bench.workshop import Workshop
from palaver.cli.loop import run
from palaver.engine.turns.agent import RecentPrompts

__all__ = ["growth", "idle_memory", "messages"]

_PEOPLE = 1000
_FLOOD = 2000
_FLOODS = 5
_FLOOR = Limit(bound=800, goal=3000, from_below=True)
_PROCESSES = 3
_ROUNDS = 5
_AT_ONCE = 50
_FEW_IDLE, _MANY_IDLE = 2000, 5000


def messages(workshop: Workshop) -> Iterator[Figure]:
    """Floods over a thousand conversations, then half of what they came to, evenly.

    In several processes, and the median of each: where a process has its memory changes the replay by a third.
    """
    runs = [workshop.child("engine", workshop.folder / f"engine-{number}.db") for number in range(_PROCESSES)]
    found = {name: statistics.median(each[name] for each in runs) for name in runs[0]}
    rate = found["rate"]
    yield Figure(name="engine.messages", value=rate, unit="/s", limit=_FLOOR)
    main = f"processor time per message, {found['main'] * 1e3:.2f} ms of it in the thread of the event loop"
    bare = Bare(name="bare sqlite3, the same statements", value=found["replay"])
    yield Figure(name="engine.cpu", value=found["cpu"], bare=bare, note=main)
    for name in ("p50", "p99"):
        yield Figure(name=f"engine.latency_{name}", value=found[name], note=f"at {rate / 2:,.0f} messages/s")
    if workshop.flush_counter is None:
        yield not_taken("engine.fsyncs", "there is no C compiler (cc), which is needed to count flushes", at_most(1))
    else:
        yield Figure(name="engine.fsyncs", value=found["flushes"], unit="", limit=at_most(1), note="per message")


async def measure(url: str, flushed: Callable[[], int]) -> dict[str, float]:
    """What a message costs at full load, and the latencies at half of it."""
    async with gateway(url, _PEOPLE) as measured:
        await flood(measured, _PEOPLE)
        set_aside()
        before = time.process_time(), time.thread_time(), flushed()
        seconds = [await flood(measured, _FLOOD) for _ in range(_FLOODS)]
        after = time.process_time(), time.thread_time(), flushed()
        cpu, main, flushes = ((late - early) / _FLOOD / _FLOODS for early, late in zip(before, after, strict=True))
        rate = _FLOOD / statistics.median(seconds)
        latencies = await _evenly(measured, 2 * _FLOOD, rate / 2)
        replay = await _replay(measured, Path(url))
    p50, p99 = (statistics.quantiles(latencies, n=100)[place - 1] for place in (50, 99))
    return {"rate": rate, "cpu": cpu, "main": main, "flushes": flushes, "p50": p50, "p99": p99, "replay": replay}


async def _replay(measured: Gateway, path: Path) -> float:
    """Processor time per message of the same statements with nothing around them."""
    before = path.with_name(f"{path.name}-before")
    with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(before)) as copy:
        db.backup(copy)
    with recording(measured.database) as found:
        await flood(measured, _FLOOD)
    return replay_seconds(before, found) / _FLOOD


async def flood(measured: Gateway, count: int, *, first: int = 0) -> float:
    """Seconds until everything that was said at once is answered and the receipts are in the store."""
    start = time.perf_counter()
    done = asyncio.create_task(measured.until_delivered(count))
    for number in range(first, first + count):
        await measured.crowd.say(number, f"message {number}")
    await done
    return time.perf_counter() - start


async def _evenly(measured: Gateway, count: int, rate: float) -> list[float]:
    """Seconds to the answer of each message, from when it was to be said: being late with it is no excuse."""
    done = asyncio.create_task(measured.until_delivered(count))
    start, said = time.perf_counter(), dict[tuple[str, str | None], float]()
    for number in range(count):
        moment = start + number / rate
        await asyncio.sleep(max(0.0, moment - time.perf_counter()))
        said[await measured.crowd.say(number, f"message {number}")] = moment
    await done
    return [measured.adapter.answered[message] - moment for message, moment in said.items()]


def growth(workshop: Workshop) -> Iterator[Figure]:
    """The same flood with many sessions in the store, and with few."""
    seconds = {count: list[float]() for count in (FEW, MANY)}
    for _ in range(_ROUNDS):
        for count, times in seconds.items():
            times.append(run(_flood_once(str(workshop.copy(workshop.conversations(count))))))
    many, few = (statistics.median(seconds[count]) / _PEOPLE for count in (MANY, FEW))
    bare = Bare(name="with 100 sessions", value=few)
    yield Figure(name="engine.growth", value=many, bare=bare, limit=ratio_at_most(1.3))


async def _flood_once(url: str) -> float:
    async with gateway(url, _PEOPLE) as measured:
        await flood(measured, 200)
        return await flood(measured, _PEOPLE)


def idle_memory(workshop: Workshop) -> Iterator[Figure]:
    """What a conversation leaves in memory when it is idle, over what fewer leave that have filled the caches."""
    few, many = (run(_idle(str(workshop.folder / f"idle-{people}.db"), people)) for people in (_FEW_IDLE, _MANY_IDLE))
    yield Figure(
        name="engine.idle_memory",
        value=max(0.0, (many - few) / (_MANY_IDLE - _FEW_IDLE)),
        unit="B",
        limit=at_most(64),
        note="per idle session",
    )


async def _idle(url: str, people: int) -> int:
    """Bytes that the engine holds after each of so many people had a conversation, as many at once as ever."""
    async with gateway(url, people) as measured:
        await flood(measured, _AT_ONCE)
        await asyncio.sleep(0.2)
        tracemalloc.start()
        try:
            for first in range(0, people, _AT_ONCE):
                await flood(measured, _AT_ONCE, first=first)
            await measured.search.catch_up()
            await asyncio.sleep(1)
            _forget(measured)
            taken = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
    own = ("*/palaver/engine/*", "*/palaver/store/*", "*/palaver/db/*", "*/palaver/model/*", "*/asyncio/*")
    filters = [tracemalloc.Filter(inclusive=True, filename_pattern=pattern) for pattern in own]
    return sum(statistic.size for statistic in taken.filter_traces(filters).statistics("filename"))


def _forget(measured: Gateway) -> None:
    """What is not the engine's: the memory of the platform, and caches, which do not grow with the conversations."""
    measured.crowd.forget()
    measured.adapter.answered.clear()
    gc.unfreeze()  # what an earlier measurement has set aside
    for each in gc.get_objects():
        if isinstance(each, _CACHE):
            each.cache_clear()
        elif isinstance(each, RecentPrompts):
            each.forget_old(datetime.max.replace(tzinfo=UTC))
    gc.collect()


_CACHE = type(lru_cache(len))
