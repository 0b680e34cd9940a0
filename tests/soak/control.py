"""A bare program beside the gateways: how long the same small piece of work takes it tells how busy the machine is."""

import asyncio
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.measure import Latency

__all__ = ["Control", "control"]

_COMMITS = 8
"""About as many as a message needs."""
_ROUNDS = 20_000


@dataclass(kw_only=True)
class Control:
    process: asyncio.subprocess.Process
    latencies: list[Latency] = field(default_factory=list[Latency])

    async def measure(self) -> None:
        """Have it do its work once."""
        assert self.process.stdin
        assert self.process.stdout
        at, began = time.time(), time.monotonic()
        self.process.stdin.write(b"\n")
        await self.process.stdout.readline()
        self.latencies.append(Latency(at, time.monotonic() - began))


@asynccontextmanager
async def control(folder: Path) -> AsyncGenerator[Control]:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", __name__, str(folder / "control.db"))
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        yield Control(process=process)
    finally:
        process.kill()
        await process.wait()


def _work(database: sqlite3.Connection) -> int:
    for number in range(_COMMITS):
        database.execute("INSERT OR REPLACE INTO work VALUES (?, randomblob(500))", (number,))
        database.commit()
    return sum(number % 7 for number in range(_ROUNDS))


def _main(path: str) -> None:
    database = sqlite3.connect(path)
    database.executescript(
        "PRAGMA journal_mode = wal; PRAGMA synchronous = full; CREATE TABLE work (no PRIMARY KEY, body)"
    )
    for _ in sys.stdin:
        _work(database)
        sys.stdout.write("\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main(sys.argv[1])
