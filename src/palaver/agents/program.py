"""Programs as agents: processes in any language that speak JSON lines, kept at work or started for each turn."""

import asyncio
import errno
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from palaver.agents.external import Broken, Question
from palaver.agents.process import Process, Seat, Worker
from palaver.protocols.agent import FailureKind

__all__ = [
    "Program",
    "harmless",
]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0
_PASSING = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})
_HARMLESS = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"})


def harmless(environ: Mapping[str, str]) -> dict[str, str]:
    """What any program may see of our environment. Whatever else it needs, the configuration names."""
    return {name: value for name, value in environ.items() if name in _HARMLESS or name.startswith("LC_")}


@dataclass(kw_only=True)
class Program:
    """Started when it is first asked, and again after it has ended; after each time in vain, a little later."""

    command: Sequence[str]
    environ: Mapping[str, str] = field(repr=False)
    folder: Path | None = None
    processes: int = 1
    per_turn: bool = False
    _workers: set[Worker] = field(default_factory=set[Worker], init=False)
    _door: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Whoever came first is the next."""
    _news: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _in_vain: int = field(default=0, init=False)
    _is_retired: bool = field(default=False, init=False)

    @asynccontextmanager
    async def talk(self, question: Question) -> AsyncGenerator[Seat]:
        async with self._door:
            seat = (await self._free()).take(question)
        try:
            yield seat
        finally:
            seat.leave()

    def retire(self) -> None:
        """What is idle ends now, the rest as soon as it is; a turn that still comes has a process of its own."""
        self._is_retired = True
        for worker in self._workers:
            worker.retire()

    async def close(self) -> None:
        self.retire()
        if idle := [worker.task for worker in self._workers if not worker.is_heard]:
            await asyncio.wait(idle)

    async def _free(self) -> Worker:
        while True:
            news = self._news
            if worker := next((each for each in self._workers if each.has_room), None):
                return worker
            if len(self._workers) < self.processes:
                return await self._start()
            await news.wait()

    async def _start(self) -> Worker:
        if self._in_vain:
            await asyncio.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._in_vain, 20)))
        try:
            process = await Process.start(self.command, self.environ, self.folder)
        except (OSError, ValueError) as error:
            kind = FailureKind.TRANSIENT if getattr(error, "errno", None) in _PASSING else FailureKind.FATAL
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise Broken(kind, f"{self.command[0]} cannot be started: {reason}") from error
        worker = Worker(process, lasts=not (self.per_turn or self._is_retired), news=self._tell)
        self._workers.add(worker)
        worker.task.add_done_callback(lambda _: self._ended(worker))
        return worker

    def _ended(self, worker: Worker) -> None:
        self._workers.discard(worker)
        self._in_vain = 0 if worker.has_worked else self._in_vain + 1
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
