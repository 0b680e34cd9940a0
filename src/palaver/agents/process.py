"""Programs as agents: a pool of processes that speak JSON lines, kept running or started for each turn."""

import asyncio
import ctypes
import errno
import logging
import os
import signal
import sys
from asyncio import Queue
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TextIO, cast

from msgspec.structs import replace

from palaver.agents.external import AgentError
from palaver.agents.wire import (
    MAX_LINE_BYTES,
    AgentRequest,
    Cancel,
    FromAgent,
    Hello,
    ProtocolError,
    Reply,
    WireApprovalNeeded,
    WireFailure,
    WireFinal,
    encode_line,
    parse_line,
)
from palaver.model.redact import redact
from palaver.model.text import one_line
from palaver.protocols.agent import FailureKind

log = logging.getLogger(__name__)

_EXIT_TIMEOUT_SECONDS = 2.0
"""How long to wait after closing its input, and again after SIGTERM."""
_DRAIN_SECONDS = 1.0
"""How long to read what an ended process left in its pipe, in case another process still holds the other end."""
_CANCEL_TIMEOUT_SECONDS = 2.0
"""How long it has to stop a cancelled turn before it is killed."""
_CLOSE_TIMEOUT_SECONDS = 8.0
"""How long to wait for idle processes; ending one takes less."""
_QUEUED_LINES = 8
"""How many lines of a turn are read ahead."""
_MAX_LOGGED_LINES = 200
_MAX_LOGGED_LENGTH = 300
_CHUNK_BYTES = 1 << 16
_TRANSIENT_ERRORS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def _end_with_gateway() -> None:
    """Have Linux kill this process when the gateway is killed: the next gateway runs the same turn again."""
    if _libc:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def home_folder() -> Path:
    """Return the default working folder: the one in which the gateway was started can belong to a stranger."""
    folder = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises where the user has none
    return folder if folder.is_absolute() and folder.is_dir() else Path("/")


async def end_group(process: asyncio.subprocess.Process) -> None:
    """Kill a process that leads a group, with all of it, and let go of its standard input and output."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    transport = cast("Any", process)._transport  # noqa: SLF001 - there is no other way
    # The wait would not end while more output waits to be read than there is room for.
    for stream in (0, 1):
        transport.get_pipe_transport(stream).close()
    await process.wait()
    transport.close()


class Process:
    """A process in its own session and group: nothing it starts outlives it, and our signals do not reach it."""

    def __init__(self, process: asyncio.subprocess.Process, limit: int) -> None:
        self._process, self._limit = process, limit
        self._tasks = [asyncio.create_task(self._log_stderr()), asyncio.create_task(self._clean_up_after_exit())]

    @classmethod
    async def start(cls, command: Sequence[str], environ: Mapping[str, str], folder: Path | None) -> "Process":
        """Start it. Raises AgentError."""
        try:
            return await cls.spawn(command, environ, folder)
        except (OSError, ValueError) as error:
            is_transient = getattr(error, "errno", None) in _TRANSIENT_ERRORS
            reason = getattr(error, "strerror", None) or type(error).__name__
            kind = FailureKind.TRANSIENT if is_transient else FailureKind.FATAL
            raise AgentError(kind, f"{command[0]} could not be started: {reason}") from error

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        environ: Mapping[str, str],
        folder: Path | None,
        *,
        stderr: int | TextIO = asyncio.subprocess.PIPE,
        limit: int | None = None,
    ) -> "Process":
        """Start it, and read lines of at most `limit` bytes. Raises OSError and ValueError."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            limit=limit or MAX_LINE_BYTES,
            env=environ,
            cwd=folder or home_folder(),
            start_new_session=True,
            preexec_fn=_end_with_gateway,
        )
        return cls(process, limit or MAX_LINE_BYTES)

    def write(self, line: bytes) -> None:
        """Write without waiting: a program that reads nothing can still have something to say.

        Writing to one that has ended or closed its input does nothing: reading tells how it ended.
        """
        if self._process.stdin and not self._process.stdin.is_closing():
            self._process.stdin.write(line)

    async def line(self) -> bytes | None:
        """Return the next line, or None at the end. Raises ProtocolError if it is too long."""
        if self._process.stdout is None:
            return None
        try:
            return await self._process.stdout.readline() or None
        except ValueError as error:
            raise ProtocolError(f"a line is longer than {self._limit} bytes") from error

    async def end(self, *, at_once: bool = False) -> int | None:
        """Close its input (unless `at_once`), then send SIGTERM, then SIGKILL. Return its exit code, if any."""
        try:
            if not at_once:
                await self._wait_after(self._close_stdin)
            await self._wait_after(lambda: self._signal(signal.SIGTERM))
        finally:
            # Also when cancelled: nothing of it survives.
            self._signal(signal.SIGKILL)
            for task in self._tasks:
                task.cancel()
            self._close_stdin()
            self._close_pipes()
        await self._wait_after(lambda: None)
        return self._process.returncode

    async def _wait_after(self, action: Callable[[], None]) -> None:
        if self._process.returncode is None:
            action()
            with suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_TIMEOUT_SECONDS):
                    await self._process.wait()

    def _close_stdin(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _close_pipes(self) -> None:
        """Close our ends: a process that left the group can hold the other ends for ever."""
        self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other way

    async def _clean_up_after_exit(self) -> None:
        """Once it exits, kill everything it started, and leave time to read what it left in its pipe."""
        await self._process.wait()
        self._signal(signal.SIGKILL)
        await asyncio.sleep(_DRAIN_SECONDS)
        self._close_pipes()

    async def _log_stderr(self) -> None:
        stderr, pid, lines = self._process.stderr, self._process.pid, 0
        while stderr and (piece := await stderr.read(_CHUNK_BYTES)):
            if not lines:
                log.info("agent process %d writes to its standard error", pid, extra={"action": "agent.stderr"})
            for line in piece.splitlines()[: max(0, _MAX_LOGGED_LINES - lines)]:
                lines += 1
                text = one_line(redact(line.decode(errors="replace")), _MAX_LOGGED_LENGTH)
                log.debug("agent process %d: %s", pid, text, extra={"action": "agent.stderr"})
            lines = lines or 1


_Line = FromAgent | AgentError | ProtocolError


class _TurnLines:
    """The lines of one turn that it has not read yet. Only the reader of the process waits, while they are too many."""

    def __init__(self) -> None:
        self._lines: Queue[_Line] = Queue()
        self._room = asyncio.Semaphore(_QUEUED_LINES)

    async def put(self, line: _Line) -> None:
        await self._room.acquire()
        self._lines.put_nowait(line)

    def add(self, line: _Line) -> None:
        """Add a line without waiting for room."""
        self._lines.put_nowait(line)

    async def get(self) -> _Line:
        line = await self._lines.get()
        self._room.release()
        return line

    def close(self) -> None:
        """Let the reader go on: nobody reads these lines any more, and at most one more is put."""
        self._room.release()


class Worker:
    """A process and its turns. It reads lines and passes each to the turn it belongs to."""

    def __init__(self, process: Process, *, reusable: bool, on_change: Callable[[], None]) -> None:
        self._process = process
        self._reusable = reusable
        """Keep it for the next turn."""
        self._on_change = on_change
        self._turns: dict[str, _TurnLines | None] = {}
        """The lines for each turn; None once the turn is cancelled."""
        self._ids = count(1)
        self._hello: Hello | None = None
        self._kill = asyncio.Event()
        self._stop = asyncio.Event()
        self._has_ended = False
        self.has_finished_turn = False
        self.task = asyncio.create_task(self._run())

    @property
    def has_capacity(self) -> bool:
        capacity = self._hello.at_once if self._hello and self._reusable else 1
        return len(self._turns) < capacity and not (self._has_ended or self._stop.is_set() or self._kill.is_set())

    @property
    def is_busy(self) -> bool:
        return any(self._turns.values())

    def begin(self, request: AgentRequest) -> "WorkerCall":
        turn = str(next(self._ids))
        self._turns[turn] = lines = _TurnLines()
        if self._hello:
            lines.add(self._hello)
        self._process.write(encode_line(replace(request, id=turn)))
        return WorkerCall(self, turn, lines)

    def reply(self, turn: str, reply: Reply) -> None:
        self._process.write(encode_line(replace(reply, id=turn)))

    def release(self, turn: str) -> None:
        """Stop listening to a turn, and cancel it if it is not done."""
        if self._turns.get(turn):
            self._turns[turn] = None
            self._process.write(encode_line(Cancel(id=turn)))
            asyncio.get_running_loop().call_later(_CANCEL_TIMEOUT_SECONDS, self._kill_if_running, turn)
        self._stop_if_idle()

    def retire(self) -> None:
        """Stop as soon as it is idle."""
        self._reusable = False
        self._stop_if_idle()

    def _kill_if_running(self, turn: str) -> None:
        if turn in self._turns:
            self._kill.set()

    def _stop_if_idle(self) -> None:
        if not self._reusable and not self.is_busy:
            self._stop.set()
        self._on_change()

    async def _run(self) -> None:
        reading = asyncio.create_task(self._read())
        signals = [asyncio.create_task(event.wait()) for event in (self._stop, self._kill)]
        try:
            await asyncio.wait({reading, *signals}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._has_ended = True
            for task in (reading, *signals):
                task.cancel()
            code = await self._process.end(at_once=not self._stop.is_set())
        ended = "the program does not end" if code is None else f"the program ended with code {code}"
        error = _reading_error(reading) or AgentError(FailureKind.TRANSIENT, ended)
        for lines in filter(None, self._turns.values()):
            lines.add(error)
        self._turns.clear()
        self._on_change()

    async def _read(self) -> None:
        while (raw := await self._process.line()) is not None:
            line = parse_line(raw)
            if isinstance(line, Hello):
                self._hello = line
                for lines in filter(None, list(self._turns.values())):
                    await lines.put(line)
            else:
                await self._pass_on(line)
            self._on_change()

    async def _pass_on(self, line: FromAgent) -> None:
        turn = line.id or next(iter(self._turns), "")
        if not line.id and self._reusable:
            raise ProtocolError("a line has no id, so the turn it belongs to is unknown")
        lines = self._turns.get(turn)
        if isinstance(line, WireFinal | WireFailure | WireApprovalNeeded):
            self._turns.pop(turn, None)
            self.has_finished_turn = True
        if lines:
            await lines.put(line)


def _reading_error(reading: "asyncio.Task[None]") -> ProtocolError | None:
    error = None if reading.cancelled() or not reading.done() else reading.exception()
    return error if isinstance(error, ProtocolError) else None


class WorkerCall:
    """One turn of a worker."""

    def __init__(self, worker: Worker, turn: str, lines: _TurnLines) -> None:
        self._worker = worker
        self._turn = turn
        self._lines = lines

    async def lines(self) -> AsyncGenerator[FromAgent]:
        while True:
            line = await self._lines.get()
            if isinstance(line, AgentError | ProtocolError):
                raise line
            yield line

    def reply(self, reply: Reply) -> None:
        self._worker.reply(self._turn, reply)

    def release(self) -> None:
        self._lines.close()
        self._worker.release(self._turn)


_FIRST_RESTART_SECONDS, _MAX_RESTART_SECONDS = 0.2, 30.0
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
            await asyncio.wait(idle, timeout=_CLOSE_TIMEOUT_SECONDS)

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
        process = await Process.start(self.command, self.environ, self.folder)
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
