"""Three gateways on one PostgreSQL beside one: each is a process, and the platform is one more."""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path

from bench.measure import Bare, Figure, ratio_at_least
from bench.reads import FEW
from bench.workshop import ROOT, Workshop
from palaver.cli.loop import run
from palaver.db.transaction import Statements, transaction
from palaver.model.turn import Outbound
from palaver.protocols.clock import SystemClock
from palaver.store.opening import open_store
from palaver.testkit.platform import FakePlatform
from palaver.testkit.socket import serve

__all__ = ["workers"]

_ACCOUNTS = ("red", "green", "blue")
_PEOPLE = 1000
_ROUNDS = 3
_PATIENCE = 120.0
_AT_ONE, _AT_THREE = (_ACCOUNTS,), tuple((account,) for account in _ACCOUNTS)
"""Which accounts each worker serves. Turns of any account run on any worker."""


def workers(workshop: Workshop) -> Iterator[Figure]:
    """A message in each of a thousand conversations, all at once; both sides in turns, each on a store of its own."""
    path = workshop.conversations(FEW)
    seconds = {shares: list[float]() for shares in (_AT_ONE, _AT_THREE)}
    for _ in range(_ROUNDS):
        for shares, times in seconds.items():
            times.append(run(_flood(workshop.copy_on_postgres(path), shares)))
    one, three = (_PEOPLE / statistics.median(seconds[shares]) for shares in (_AT_ONE, _AT_THREE))
    note = f"{os.cpu_count()} cores for the workers, the platform and PostgreSQL"
    yield Figure(
        name="engine.workers",
        value=three,
        unit="/s",
        bare=Bare(name="one worker", value=one),
        limit=ratio_at_least(1),
        note=note,
    )


class _Town(FakePlatform):
    """Counts what was answered."""

    def __init__(self) -> None:
        super().__init__(clock=SystemClock())
        self.people = [self.person(f"person {number}") for number in range(_PEOPLE)]
        self._chats = [
            self.dm(person, account=name) for person, name in zip(self.people, cycle(_ACCOUNTS), strict=False)
        ]
        self._answered = 0

    async def send(self, account: str, outbound: Outbound, key: str) -> str:
        receipt = await super().send(account, outbound, key)
        self._answered += 1
        return receipt

    async def speak(self, text: str) -> None:
        """Everybody says something; until all of them are answered."""
        wanted = self._answered + _PEOPLE
        for person, chat in zip(self.people, self._chats, strict=True):
            await chat.say(person, text)
        while self._answered < wanted:  # noqa: ASYNC110 - an event for each answer would cost more
            await asyncio.sleep(0.005)


async def _flood(url: str, shares: Sequence[Sequence[str]]) -> float:
    """Seconds until everybody has an answer and the receipts are in the store."""
    town = _Town()
    with tempfile.TemporaryDirectory(prefix="palaver-bench-") as folder:
        socket = Path(folder) / "world"
        async with (
            asyncio.timeout(_PATIENCE),
            await open_store(url) as store,
            serve(town, socket),
            _started(url, socket, shares),
        ):
            await town.speak("hello")
            start = time.perf_counter()
            await town.speak("hello again")
            while await store.read(_owed()):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            return time.perf_counter() - start


@transaction
def _owed() -> Statements[int]:
    rows = yield "SELECT count(*) FROM outbox WHERE state IN ('due', 'claimed', 'sending')", ()
    return rows[0][0]


@asynccontextmanager
async def _started(url: str, socket: Path, shares: Sequence[Sequence[str]]) -> AsyncGenerator[None]:
    processes: list[Process] = []
    try:
        for number, accounts in enumerate(shares):
            command = (sys.executable, "-m", "bench.worker", url, str(socket), f"w{number}", *accounts)
            processes.append(await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE))
        yield
    finally:
        for process in processes:
            await process.communicate(b"")  # its input ends
