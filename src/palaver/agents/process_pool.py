"""Programs as agents: a pool of processes that speak JSON lines, kept running or started for each turn."""

import asyncio
import errno
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from palaver.agents.external import AgentError
from palaver.agents.process import Process, Worker, WorkerCall
from palaver.agents.wire import AgentRequest
from palaver.protocols.agent import FailureKind

_FIRST_RESTART_SECONDS, _MAX_RESTART_SECONDS = 0.2, 30.0
_TRANSIENT_ERRORS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})
_SAFE_VARIABLES = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"})


def safe_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that any program can see. The configuration names all others."""
    return {name: value for name, value in environ.items() if name in _SAFE_VARIABLES or name.startswith("LC_")}


@dataclass(kw_only=True)
class ProcessPool:
    """Starts processes when needed and again after they end, with a growing delay after each useless start."""

    command: Sequence[str]
    environ: Mapping[str, str] = field(repr=False)
    folder: Path | None = None
    processes: int = 1
    per_turn: bool = False
    _workers: set[Worker] = field(default_factory=set[Worker], init=False)
    _queue: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Serves requests in their order."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _useless_starts: int = field(default=0, init=False)
    _is_retired: bool = field(default=False, init=False)

    @asynccontextmanager
    async def call(self, request: AgentRequest) -> AsyncGenerator[WorkerCall]:
        async with self._queue:
            call = (await self._free_worker()).begin(request)
        try:
            yield call
        finally:
            call.release()

    def retire(self) -> None:
        """End idle processes now and the others when they become idle. A late turn gets its own process."""
        self._is_retired = True
        for worker in self._workers:
            worker.retire()

    async def close(self) -> None:
        self.retire()
        if idle := [worker.task for worker in self._workers if not worker.is_busy]:
            await asyncio.wait(idle)

    async def _free_worker(self) -> Worker:
        while True:
            changed = self._changed
            if worker := next((worker for worker in self._workers if worker.has_capacity), None):
                return worker
            if len(self._workers) < self.processes:
                return await self._start()
            await changed.wait()

    async def _start(self) -> Worker:
        if self._useless_starts:
            delay = _FIRST_RESTART_SECONDS * 2 ** min(self._useless_starts, 20)
            await asyncio.sleep(min(_MAX_RESTART_SECONDS, delay))
        try:
            process = await Process.start(self.command, self.environ, self.folder)
        except (OSError, ValueError) as error:
            is_transient = getattr(error, "errno", None) in _TRANSIENT_ERRORS
            reason = getattr(error, "strerror", None) or type(error).__name__
            kind = FailureKind.TRANSIENT if is_transient else FailureKind.FATAL
            raise AgentError(kind, f"{self.command[0]} could not be started: {reason}") from error
        worker = Worker(process, reusable=not (self.per_turn or self._is_retired), on_change=self._notify)
        self._workers.add(worker)
        worker.task.add_done_callback(lambda _: self._remove(worker))
        return worker

    def _remove(self, worker: Worker) -> None:
        self._workers.discard(worker)
        self._useless_starts = 0 if worker.has_finished_turn else self._useless_starts + 1
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
