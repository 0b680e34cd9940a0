"""From the fake platform to the delivered receipt: how many messages, how fast, and what else it costs."""

import asyncio
import gc
import statistics
import time
import tracemalloc
from collections.abc import Iterator

from bench.gateway import Gateway, gateway
from bench.measure import Bare, Figure, Limit, at_most, not_taken, ratio_at_most
from bench.reads import FEW, MANY
from bench.workshop import Workshop

__all__ = ["growth", "idle_memory", "messages"]

_PEOPLE = 1000
_MESSAGES = 4000
_FLOOR = Limit(bound=800, goal=3000, from_below=True)
_ROUNDS = 5


def messages(workshop: Workshop) -> Iterator[Figure]:
    """Floods of one message after another over a thousand conversations, then half of that, evenly."""
    found = workshop.child("engine", workshop.folder / "engine.db")
    rate = found["rate"]
    yield Figure(name="engine.messages", value=rate, unit="/s", limit=_FLOOR)
    for name in ("p50", "p99"):
        yield Figure(name=f"engine.latency_{name}", value=found[name], note=f"at {rate / 2:,.0f} messages/s")
    if workshop.flush_counter is None:
        yield not_taken("engine.fsyncs", "there is no C compiler (cc), which is needed to count flushes")
    else:
        yield Figure(name="engine.fsyncs", value=found["flushes"], unit="", limit=at_most(1), note="per message")


async def measure(url: str) -> dict[str, float]:
    """Messages per second at full load, and the latencies at half of it."""
    async with gateway(url, _PEOPLE) as measured:
        await flood(measured, _PEOPLE, "warm")
        rate = _MESSAGES / await flood(measured, _MESSAGES, "full")
        latencies = sorted(await _evenly(measured, _MESSAGES // 2, rate / 2))
    return {
        "rate": rate,
        "p50": statistics.median(latencies),
        "p99": latencies[int(len(latencies) * 0.99)],
    }


async def flood(measured: Gateway, count: int, word: str) -> float:
    """Seconds until everything that was said at once is answered and the receipts are in the store."""
    start = time.perf_counter()
    done = asyncio.create_task(measured.until_delivered(count))
    for number in range(count):
        await measured.crowd.say(number, f"{word} {number}")
    await done
    return time.perf_counter() - start


async def _evenly(measured: Gateway, count: int, rate: float) -> list[float]:
    """Seconds from being said to being sent, of each message."""
    done = asyncio.create_task(measured.until_delivered(count))
    start, said = time.perf_counter(), dict[str, float]()
    for number in range(count):
        pause = start + number / rate - time.perf_counter()
        if pause > 0:
            await asyncio.sleep(pause)
        said[f"even {number}"] = time.perf_counter()
        await measured.crowd.say(number, f"even {number}")
    await done
    sent = {text.rpartition("even ")[2].strip("\"'. "): moment for text, moment in measured.adapter.sent.items()}
    return [sent[text.removeprefix("even ")] - moment for text, moment in said.items()]


def growth(workshop: Workshop) -> Iterator[Figure]:
    """The same flood with many sessions in the store, and with few."""
    seconds = {count: list[float]() for count in (FEW, MANY)}
    for _ in range(_ROUNDS):
        for count, times in seconds.items():
            times.append(asyncio.run(_flood_once(str(workshop.copy(workshop.conversations(count))))))
    many, few = (statistics.median(seconds[count]) / _PEOPLE for count in (MANY, FEW))
    bare = Bare(name="with 100 sessions", value=few)
    yield Figure(name="engine.growth", value=many, bare=bare, limit=ratio_at_most(1.3))


async def _flood_once(url: str) -> float:
    async with gateway(url, _PEOPLE) as measured:
        await flood(measured, 200, "warm")
        return await flood(measured, _PEOPLE, "grown")


def idle_memory(workshop: Workshop) -> Iterator[Figure]:
    """What a conversation leaves in memory when it is idle, over what ten times fewer leave."""
    few, many = (asyncio.run(_idle(str(workshop.folder / f"idle-{people}.db"), people)) for people in (200, 2000))
    yield Figure(
        name="engine.idle_memory",
        value=max(0.0, (many - few) / 1800),
        unit="B",
        limit=at_most(64),
        note="per idle session",
    )


async def _idle(url: str, people: int) -> int:
    """Bytes that the engine holds after each of so many people had a conversation."""
    async with gateway(url, people) as measured:
        await flood(measured, 50, "warm")
        await asyncio.sleep(0.2)
        own = ("*/palaver/engine/*", "*/palaver/stores/*", "*/palaver/domain/*", "*/asyncio/*")
        tracemalloc.start()
        try:
            await flood(measured, people, "idle")
            await asyncio.sleep(0.5)
            gc.collect()
            taken = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
    filters = [tracemalloc.Filter(inclusive=True, filename_pattern=pattern) for pattern in own]
    return sum(statistic.size for statistic in taken.filter_traces(filters).statistics("filename"))
