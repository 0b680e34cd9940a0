"""Whole messages on PostgreSQL beside SQLite, in turns, and the processor time that each side takes for one."""

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench.engine import flood
from bench.gateway import gateway
from bench.measure import Bare, Figure, ratio_at_least, set_aside
from bench.workshop import Workshop

__all__ = ["flood_rate", "messages"]

_PEOPLE = 1000
_FLOOD = 1000
_FLOODS = 3
_ROUNDS = 3
_TICK = os.sysconf("SC_CLK_TCK")


def messages(workshop: Workshop) -> Iterator[Figure]:
    """One gateway, a message in each of a thousand conversations at once; each round on a new store."""
    ours, other = list[dict[str, float]](), list[dict[str, float]]()
    server = list[float]()
    for number in range(_ROUNDS):
        other.append(workshop.child("flood", workshop.folder / f"flood-{number}.db"))
        before, url = _server_seconds(workshop.postmaster), workshop.new_on_postgres()
        ours.append(workshop.child("flood", url))
        server.append((_server_seconds(workshop.postmaster) - before) / (_PEOPLE + _FLOOD * _FLOODS))
    rate, bare = (statistics.median(each["rate"] for each in side) for side in (ours, other))
    yield Figure(
        name="pg.messages",
        value=rate,
        unit="/s",
        bare=Bare(name="SQLite", value=bare),
        limit=ratio_at_least(0.6, goal=1),
    )
    cpu, bare = (statistics.median(each["cpu"] for each in side) for side in (ours, other))
    yield Figure(
        name="pg.cpu", value=cpu, bare=Bare(name="SQLite", value=bare), note="processor time of the gateway per message"
    )
    note = "processor time of PostgreSQL per message, with what it does in the background"
    yield Figure(name="pg.server_cpu", value=statistics.median(server), note=note)


async def flood_rate(url: Path | str) -> dict[str, float]:
    async with gateway(str(url), _PEOPLE) as measured:
        await flood(measured, _PEOPLE)
        set_aside()
        before = time.process_time()
        seconds = [await flood(measured, _FLOOD) for _ in range(_FLOODS)]
        cpu = (time.process_time() - before) / _FLOOD / _FLOODS
    return {"rate": _FLOOD / statistics.median(seconds), "cpu": cpu}


def _server_seconds(postmaster: int) -> float:
    """Processor time of the server so far: of its processes, and of those that have ended."""
    return sum(_ticks(process, postmaster) for process in Path("/proc").glob("[0-9]*")) / _TICK


def _ticks(process: Path, postmaster: int) -> int:
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0
    if int(process.name) == postmaster:
        return sum(map(int, fields[11:15]))
    return sum(map(int, fields[11:13])) if int(fields[1]) == postmaster else 0
