"""The soak: mixed load for a long time, compressed. `python -m bench.soak [--minutes N]`; a minute counts as twelve.

Many people speak in direct chats and groups, command, start anew, fall silent; answers stream; the platform repeats,
reorders, refuses, loses and cuts. The gateway is ended and started again in the same process, in good order or not.
In the middle it lives for most of the time, and there it is looked at whether it grows.
"""

import argparse
import asyncio
import logging
import random
import selectors
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.gateway import SETTINGS
from bench.lines import line
from bench.measure import Bare, Figure, Verdict, at_most, ratio_at_most, resident
from bench.workshop import Workshop, say
from palaver.agents.echo import EchoAgent
from palaver.commands.builtin import builtin_commands
from palaver.db.transaction import Statements, transaction
from palaver.engine.engine import Engine
from palaver.model.key import ScopedSetting
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.store.opening import open_store
from palaver.store.status.invariants import violations
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.chat import Chat
from palaver.testkit.faults import Faults
from palaver.testkit.platform import FakePlatform, LoopClock
from palaver.testkit.updates import Person
from tests.settings import change

__all__ = ["soak"]

_MINUTES = 5.0
_HASTE = 12
_RATE = 25.0
"""Messages per second, by the clock on the wall."""
_LIVES = (1, 1, 1, 1, 12, 1, 1, 1, 1)
"""How long each gateway lives, beside the others."""
_LONG = _LIVES.index(max(_LIVES))
_WAVE = 900.0
"""Seconds after which other people speak."""
_BACKLOG = 200
_REMEMBERED = 10
"""So many messages of a chat the platform remembers."""
_FAULTS = Faults(
    duplicate=0.02,
    reorder=0.05,
    disconnect=0.001,
    refused=0.002,
    busy=0.01,
    busy_for=0.5,
    lost_before=0.002,
    lost_after=0.002,
    delay=0.1,
)
_SETTINGS = change(
    SETTINGS,
    acknowledges=True,
    resets=ScopedSetting(default=ResetPolicy(mode=ResetMode.IDLE, idle_minutes=10)),
    crash_limit=1_000_000,
)
_WORDS = (
    *(("a sentence of ordinary length that somebody might have said",) * 70),
    *(("!tool look that up",) * 10),
    *(("!slow 2 think about it",) * 3),
    *(("!busy 1 try that again",) * 2),
    *(("!fail at this",) * 2),
    *(("/status", "/new", "/stop") * 2),
    *("/help", "/back", "/nonsense"),
)


class _Complaints(logging.Handler):
    """Collects log records of what must not happen under any load."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "action", None) != "turn.failed":
            self._found.append(record.getMessage())


class _HurriedSelector(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(timeout and timeout / _HASTE)


class _HurriedLoop(asyncio.SelectorEventLoop):
    """Its time runs faster than the clock on the wall, and with it every pause, lease and limit."""

    def __init__(self) -> None:
        super().__init__(_HurriedSelector())

    def time(self) -> float:
        return super().time() * _HASTE


@dataclass(kw_only=True)
class _Town:
    world: FakePlatform
    chance: random.Random
    chats: list[tuple[Chat, Sequence[Person]]] = field(default_factory=list[tuple[Chat, Sequence[Person]]])
    said: int = 0

    def settle(self) -> None:
        for number in range(50):
            if number % 5:
                person = self.world.person(f"person {number}")
                self.chats.append((self.world.dm(person), (person,)))
            else:
                people = [self.world.person(f"person {number}.{each}") for each in range(3)]
                self.chats.append((self.world.group(f"group {number}", *people), people))

    async def speak(self) -> None:
        """Run until cancelled; a person who gets no answer stops writing."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.chance.expovariate(1) * _HASTE / _RATE)
            if len(self.world.unacknowledged()) < _BACKLOG:
                awake = self.chats[int(loop.time() // _WAVE) % 2 :: 2]
                chat, people = self.chance.choice(awake)
                self.said += 1
                await chat.say(self.chance.choice(people), f"{self.chance.choice(_WORDS)} {self.said}")

    def forget(self) -> None:
        """A platform that remembers everything is no part of what is looked at."""
        for chat, _ in self.chats:
            del chat.messages[:-_REMEMBERED]
            chat.typing.clear()


@dataclass(frozen=True, kw_only=True)
class _Life:
    """What was found when a gateway had ended."""

    said: int
    stored: int
    descriptors: int
    tasks: int
    """Those that it has left behind."""
    memory: Sequence[int]
    """While it lived, over and over."""


@dataclass(kw_only=True)
class _Soak:
    folder: Path
    seconds: float
    town: _Town
    lives: list[_Life] = field(default_factory=list[_Life])
    broken: list[str] = field(default_factory=list[str])
    _known: "set[asyncio.Task[object]]" = field(default_factory=set["asyncio.Task[object]"])

    async def run(self) -> None:
        self.town.settle()
        speaking = asyncio.create_task(self.town.speak())
        self._known = asyncio.all_tasks()
        try:
            for number, share in enumerate(_LIVES):
                await self._live(self.seconds * share / sum(_LIVES) * _HASTE, in_order=bool(number % 2))
                newest = self.lives[-1]
                say(f"life {number + 1} of {len(_LIVES)}: {newest.said:,} messages, {newest.memory[-1] / 1e6:.1f} MB")
        finally:
            speaking.cancel()
        await self._live(0, in_order=True)

    async def _live(self, seconds: float, *, in_order: bool) -> None:
        """A gateway for so long; without a time, until there is nothing left to do."""
        async with await open_store(str(self.folder / "palaver.db")) as store:
            engine = Engine(
                store=store,
                adapters=[FakeAdapter(self.town.world, concurrency=16)],
                agent=EchoAgent(streams=True, delay=0.1),
                commands=builtin_commands(store),
                settings=_SETTINGS,
                clock=LoopClock(),
                worker=f"life {len(self.lives)}",
                alone=True,
            )
            serving = asyncio.create_task(engine.serve())
            memory = await self._watch(seconds)
            while not seconds and (self.town.world.unacknowledged() or await store.read(_is_unfinished())):  # noqa: ASYNC110
                await asyncio.sleep(1)
            if in_order:
                await engine.drain()
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
            self.broken += [found.invariant.sentence for found in await store.read(violations())]
        self.lives.append(
            _Life(
                said=self.town.said,
                stored=sum(file.stat().st_size for file in self.folder.iterdir()),
                descriptors=_descriptors(),
                tasks=len(asyncio.all_tasks() - self._known),
                memory=memory,
            )
        )

    async def _watch(self, seconds: float) -> list[int]:
        memory = [resident()]
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(_HASTE)
            self.town.forget()
            memory.append(resident())
        return memory


@transaction
def _is_unfinished() -> Statements[bool]:
    rows = yield _UNFINISHED, ()
    return bool(rows)


_UNFINISHED = (
    "SELECT no FROM inbox WHERE state = 'waiting'"
    " UNION ALL SELECT no FROM turns WHERE state IN ('running', 'interrupted')"
    " UNION ALL SELECT id FROM outbox WHERE state IN ('due', 'claimed', 'sending') LIMIT 1"
)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def soak(_workshop: Workshop | None = None, minutes: float = _MINUTES) -> Iterator[Figure]:
    before, began = _held(), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="palaver-soak-") as folder:
        town = _Town(world=FakePlatform(faults=_FAULTS, seed=1), chance=random.Random(1))  # noqa: S311
        run = _Soak(folder=Path(folder), seconds=minutes * 60, town=town)
        logging.basicConfig(handlers=[_Complaints(run.broken)], force=True)
        with asyncio.Runner(loop_factory=_HurriedLoop) as runner:
            runner.run(run.run())
    left = sum(max(0, late - early) for early, late in zip(before, _held(), strict=True))
    yield from _figures(run, left, time.perf_counter() - began)


def _held() -> tuple[int, int]:
    """Threads and descriptors."""
    return threading.active_count(), _descriptors()


def _figures(run: _Soak, left: int, seconds: float) -> Iterator[Figure]:
    first, before, long, last = run.lives[0], run.lives[_LONG - 1], run.lives[_LONG], run.lives[-1]
    quarter = len(long.memory) // 4
    early, late = long.memory[quarter : 2 * quarter], long.memory[-quarter:]
    yield Figure(
        name="soak.memory",
        value=statistics.median(late),
        unit="B",
        bare=Bare(name="in its second quarter", value=statistics.median(early)),
        limit=ratio_at_most(1.1),
        note=f"last quarter of the long life; {last.said:,} messages in {seconds / 60:.1f} minutes",
    )
    predicted = (before.stored - first.stored) / (before.said - first.said)
    yield Figure(
        name="soak.bytes",
        value=(long.stored - before.stored) / (long.said - before.said),
        unit="B",
        bare=Bare(name="in the lives before", value=predicted),
        limit=ratio_at_most(1.25),
        note=f"per message, in the long life; {last.stored / 1e6:.1f} MB at the end",
    )
    left += sum(life.tasks for life in run.lives) + max(0, last.descriptors - first.descriptors)
    note = "tasks, threads and descriptors"
    yield Figure(name="soak.left_behind", value=left, unit="", limit=at_most(0), note=note)
    broken = ", ".join(sorted(set(run.broken))) or "no invariant, and nothing in the log"
    yield Figure(name="soak.broken", value=len(run.broken), unit="", limit=at_most(0), note=broken)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=_MINUTES, help="by the clock on the wall; %(default)g if left out"
    )
    missed = False
    for figure in soak(minutes=parser.parse_args().minutes):
        print(line(figure), flush=True)
        missed |= figure.verdict is Verdict.MISSED
    return int(missed)


if __name__ == "__main__":
    sys.exit(_main())
