"""Background processes: a gigabyte of output through a supervisor, and two hundred of them at once."""

import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from bench.measure import Bare, Figure, at_most, ratio_at_least
from bench.workshop import Workshop
from palaver.processes.backends.base import LocalBackend, Order
from palaver.processes.directory import ProcessDirectory
from palaver.processes.launcher import kill, start
from palaver.processes.supervisor.process_table import stat_fields

__all__ = ["output", "two_hundred"]

SIZE = 1 << 30
ROUNDS = 3
MANY = 200
"""How many run at once."""
_PRINTS = f"head -c {SIZE} /dev/zero"
_numbers = count(1)


def output(workshop: Workshop) -> Iterable[Figure]:
    """Bytes per second from a command to the kept file, beside a reader that drops what it reads from a pipe."""
    folder = _folder(workshop)
    ours, bare = list[float](), list[float]()
    for _ in range(ROUNDS):
        ours.append(SIZE / asyncio.run(_through_supervisor(folder)))
        bare.append(SIZE / _through_pipe())
    megabyte = 1_000_000
    yield Figure(
        name="processes.output",
        value=statistics.median(ours) / megabyte,
        unit="MB/s",
        bare=Bare(name="pipe", value=statistics.median(bare) / megabyte),
        limit=ratio_at_least(0.3, 0.6),
    )


def _folder(workshop: Workshop) -> Path:
    folder = workshop.folder / "processes"
    folder.mkdir(exist_ok=True)
    return folder


async def _through_supervisor(folder: Path) -> float:
    """Return the seconds from the start of the command to its end, as the supervisor has recorded them."""
    directory = await _start(folder, _PRINTS)
    while directory.is_supervised():  # noqa: ASYNC110 - it ends outside this loop
        await asyncio.sleep(0.005)
    status = directory.status()
    assert status.exited is not None  # noqa: S101 - it has ended
    assert directory.size() == SIZE  # noqa: S101 - nothing is missing
    directory.remove()
    return status.exited.total_seconds()


async def _start(folder: Path, command: str) -> ProcessDirectory:
    directory = ProcessDirectory(folder / f"p{next(_numbers)}")
    order = Order(command=command, process="p", session="s")
    await start(directory, LocalBackend(folder=folder).launch(order))
    return directory


def _through_pipe() -> float:
    began = time.perf_counter()
    with subprocess.Popen(["/bin/sh", "-c", _PRINTS], stdout=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdout  # noqa: S101 - it is a pipe
        while os.read(process.stdout.fileno(), 1 << 16):
            pass
    return time.perf_counter() - began


def two_hundred(workshop: Workshop) -> Iterable[Figure]:
    """Start many processes that do nothing: the time that takes beside bare ones, and the memory of a supervisor."""
    folder = _folder(workshop)
    bare = _start_bare()
    took, shares = asyncio.run(_start_many(folder))
    yield Figure(name="processes.start_200", value=took, bare=Bare(name="sh alone", value=bare))
    # Its share, with pages that all of them use counted in part.
    yield Figure(name="processes.idle_memory", value=statistics.median(shares), unit="MB", limit=at_most(6.0, 4.5))


def _start_bare() -> float:
    began = time.perf_counter()
    started = [subprocess.Popen(["/bin/sh", "-c", "exec sleep 600"]) for _ in range(MANY)]
    took = time.perf_counter() - began
    for process in started:
        process.kill()
        process.wait()
    return took


async def _start_many(folder: Path) -> tuple[float, list[float]]:
    began = time.perf_counter()
    directories = [await _start(folder, "exec sleep 600") for _ in range(MANY)]
    took = time.perf_counter() - began
    try:
        return took, [_share(int(stat_fields(directory.status().pid or 0)[1])) for directory in directories]
    finally:
        for directory in directories:
            await kill(directory, 0)
            directory.remove()


def _share(pid: int) -> float:
    """Return the proportional set size in megabytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1_000_000
