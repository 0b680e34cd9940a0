"""`palaver up` on the fake platform, in a process of its own, with a clock that can be set wrong from outside.

The module run as a program is that process; the rest is the other side, which starts, measures and ends it.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
from pydantic import BaseModel

from palaver.cli.main import run
from palaver.protocols.clock import SystemClock
from palaver.testkit.adapter import FAKE, FakeAdapter
from palaver.testkit.socket import SocketClient
from tests.soak.measure import Generation, Sample

__all__ = ["CLOCK", "FakeAccount", "Process", "plugin"]

ROOT = Path(__file__).parents[2]
CLOCK = "PALAVER_SOAK_CLOCK"
"""Names the file with the seconds by which the clock is off."""
_STOP_SECONDS = 60.0
"""A gateway that takes longer to end hangs."""
FAKE_PLATFORM = replace(FAKE, adapter="tests.soak.gateway:FakeAccount")


class FakeAccount:
    """The fake platform as a plugin."""

    platform = FAKE_PLATFORM

    class options(BaseModel):  # noqa: N801 - plugins call it so
        socket: str

    @staticmethod
    def make(account: str, options: "FakeAccount.options") -> FakeAdapter:
        return FakeAdapter(SocketClient(options.socket), account, concurrency=8)


def plugin(folder: Path) -> None:
    """As `pip install` would leave it."""
    facts = folder / "soak-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: soak\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[palaver.platforms]\nfake = tests.soak.gateway:FAKE_PLATFORM\n")


class _WrongClock:
    """Reads now and then how wrong it is."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ahead = timedelta()
        self._until = 0.0

    def now(self) -> datetime:
        if time.monotonic() > self._until:
            self._ahead = timedelta(seconds=float(self._file.read_text() or 0))
            self._until = time.monotonic() + 0.2
        return datetime.now(UTC) + self._ahead


def _set_clock_wrong(file: Path) -> None:
    clock = _WrongClock(file)

    def now(self: SystemClock) -> datetime:  # noqa: ARG001 - one for all
        return clock.now()

    SystemClock.now = now  # in a process of its own


# The other side


@dataclass(kw_only=True)
class Process:
    """A gateway that runs, and what was measured of it."""

    name: str
    process: asyncio.subprocess.Process
    generation: Generation = field(init=False)
    hung: bool = False

    def __post_init__(self) -> None:
        self.generation = Generation(name=self.name, began=time.time())
        self._watched = psutil.Process(self.process.pid)

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    def sample(self) -> None:
        with suppress(psutil.Error):
            with self._watched.oneshot():
                memory, descriptors = self._watched.memory_info().rss, self._watched.num_fds()
                threads = self._watched.num_threads()
            load, *_ = os.getloadavg()
            sample = Sample(at=time.time(), memory=memory, descriptors=descriptors, threads=threads, load=load)
            self.generation.samples.append(sample)

    async def kill(self) -> None:
        if self.is_alive:
            self.process.kill()
        await self._ended()

    async def stop(self) -> None:
        """As a service manager does: SIGTERM, and SIGKILL if it hangs."""
        if self.is_alive:
            self.process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self.process.wait(), _STOP_SECONDS)
            except TimeoutError:
                self.hung = True
                self.process.kill()
        await self._ended()

    async def _ended(self) -> None:
        await self.process.wait()
        self.generation.ended = time.time()


async def start(name: str, environment: Mapping[str, str], log: Path) -> Process:
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.soak.gateway", "up"),
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    return Process(name=name, process=process)


if __name__ == "__main__":
    if CLOCK in os.environ:
        _set_clock_wrong(Path(os.environ[CLOCK]))
    run()
