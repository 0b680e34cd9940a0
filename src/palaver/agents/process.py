"""A process that speaks in lines, and how it is ended together with everything it has started."""

import asyncio
import logging
import os
import signal
from asyncio import Queue
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from palaver.agents.external import Broken, Question
from palaver.agents.wire import (
    LONGEST_LINE,
    ApprovalWanted,
    Cancel,
    Done,
    Failed,
    FromAgent,
    Hello,
    Reply,
    Rubbish,
    encoded,
    parsed,
)
from palaver.model.redact import redact
from palaver.model.text import one_line
from palaver.protocols.agent import FailureKind

__all__ = [
    "Process",
    "Seat",
    "Worker",
    "home",
]

log = logging.getLogger(__name__)

_PATIENCE = 2.0
"""For how many seconds it is waited for after each word that it is to end."""
_LAST_WORDS = 1.0
"""How long what it left in its pipe may take to read, should somebody else hold the other end."""
_LOGGED = 200
"""How many lines of its standard error are worth a line of the log."""
_LONGEST_LOGGED = 300
_CHUNK = 1 << 16


def home() -> Path:
    """Where a program runs that nobody has told where: where the gateway was started may be a stranger's folder."""
    folder = Path(os.path.expanduser("~"))  # noqa: PTH111 - nobody may know it
    return folder if folder.is_absolute() and folder.is_dir() else Path("/")


class Process:
    """Its own session and process group, so that nothing it starts outlives it and no signal for us reaches it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._tasks = [asyncio.create_task(self._log_complaints()), asyncio.create_task(self._watch())]

    @classmethod
    async def start(cls, command: Sequence[str], environ: Mapping[str, str], folder: Path | None) -> "Process":
        """Raises OSError where it cannot be started."""
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                *command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                limit=LONGEST_LINE,
                env=environ,
                cwd=folder or home(),
                start_new_session=True,
            )
        )

    @property
    def number(self) -> int:
        return self._process.pid

    def write(self, line: bytes) -> None:
        """Nobody waits until it is read: a program that reads nothing may still have something to say."""
        if self._process.stdin:
            self._process.stdin.write(line)

    async def line(self) -> bytes | None:
        """The next line; None where nothing more comes. Raises Rubbish for one that is too long."""
        if self._process.stdout is None:
            return None
        try:
            return await self._process.stdout.readline() or None
        except ValueError as error:
            raise Rubbish(f"a line is longer than {LONGEST_LINE} bytes") from error

    async def end(self, *, at_once: bool = False) -> int:
        """Ask it to end, tell it to, make it; gives its exit code. `at_once` does not ask."""
        try:
            if not at_once:
                await self._has_ended(self._hang_up)
            await self._has_ended(lambda: self._signal(signal.SIGTERM))
        finally:
            # Whether it has ended or not, and also where nobody waits any more: nothing of it stays.
            self._signal(signal.SIGKILL)
            for task in self._tasks:
                task.cancel()
            self._hang_up()
            self._let_go_of_pipes()
        return await self._process.wait()

    async def _has_ended(self, word: Callable[[], None]) -> None:
        if self._process.returncode is None:
            word()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _PATIENCE)

    def _hang_up(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _let_go_of_pipes(self) -> None:
        """Somebody who left the process group may hold the other ends for ever."""
        self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other way

    async def _watch(self) -> None:
        """Once it has ended by itself, so does everything it has started; what it left in its pipe can be read."""
        await self._process.wait()
        self._signal(signal.SIGKILL)
        await asyncio.sleep(_LAST_WORDS)
        self._let_go_of_pipes()

    async def _log_complaints(self) -> None:
        stderr, lines = self._process.stderr, 0
        while stderr and (piece := await stderr.read(_CHUNK)):
            if not lines:
                told = {"action": "agent.stderr"}
                log.info("the agent's process %d writes to its standard error", self.number, extra=told)
            for line in piece.splitlines()[: max(0, _LOGGED - lines)]:
                lines += 1
                words = one_line(redact(line.decode(errors="replace")), _LONGEST_LOGGED)
                log.debug("the agent's process %d: %s", self.number, words, extra={"action": "agent.stderr"})
            lines = lines or 1


_HEED = 2.0
"""How many seconds it has to let go of a turn that nobody waits for any more."""
_WAITING = 8
"""How many lines of a turn are read before somebody has taken the first."""

Heard = FromAgent | Broken | Rubbish


class Worker:
    def __init__(self, process: Process, *, lasts: bool, news: Callable[[], None]) -> None:
        self._process = process
        self._lasts = lasts
        """It is kept for the next turn."""
        self._news = news
        self._turns: dict[str, Queue[Heard] | None] = {}
        """What each turn is to hear; None where nobody listens any more."""
        self._numbers = count(1)
        self._hello: Hello | None = None
        self._at_once = asyncio.Event()
        self._quietly = asyncio.Event()
        self.is_over = False
        self.has_worked = False
        """It has brought a turn to an end."""
        self.task = asyncio.create_task(self._work())

    @property
    def has_room(self) -> bool:
        room = self._hello.at_once if self._hello and self._lasts else 1
        return len(self._turns) < room and not (self.is_over or self._quietly.is_set() or self._at_once.is_set())

    @property
    def is_heard(self) -> bool:
        return any(self._turns.values())

    def take(self, question: Question) -> "Seat":
        name = str(next(self._numbers))
        heard: Queue[Heard] = Queue(_WAITING)
        self._turns[name] = heard
        if self._hello:
            heard.put_nowait(self._hello)
        self._process.write(encoded(replace(question, id=name)))
        return Seat(self, name, heard)

    def reply(self, name: str, reply: Reply) -> None:
        self._process.write(encoded(replace(reply, id=name)))

    def leave(self, name: str) -> None:
        """Nobody listens to this turn any more; where it is not done yet, it is to be dropped."""
        if heard := self._turns.get(name):
            self._turns[name] = None
            self._process.write(encoded(Cancel(id=name)))
            asyncio.get_running_loop().call_later(_HEED, self._insist, name)
            # Whoever reads may be about to put something in.
            while not heard.empty():
                heard.get_nowait()
        self._rest()

    def retire(self) -> None:
        """From now on it is only waited for until it is idle."""
        self._lasts = False
        self._rest()

    def _insist(self, name: str) -> None:
        if name in self._turns:
            self._at_once.set()

    def _rest(self) -> None:
        if not self._lasts and not self.is_heard:
            self._quietly.set()
        self._news()

    async def _work(self) -> None:
        reading = asyncio.create_task(self._read())
        told = [asyncio.create_task(word.wait()) for word in (self._quietly, self._at_once)]
        try:
            await asyncio.wait({reading, *told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_over = True
            for task in (reading, *told):
                task.cancel()
            code = await self._process.end(at_once=not self._quietly.is_set())
        why = _why(reading, code)
        heard = [queue for queue in self._turns.values() if queue]
        self._turns.clear()
        self._news()
        await asyncio.gather(*(queue.put(why) for queue in heard))

    async def _read(self) -> None:
        while (line := await self._process.line()) is not None:
            said = parsed(line)
            if isinstance(said, Hello):
                self._hello = said
                for heard in filter(None, list(self._turns.values())):
                    await heard.put(said)
            else:
                await self._pass_on(said)
            self._news()

    async def _pass_on(self, said: FromAgent) -> None:
        name = said.id or next(iter(self._turns), "")
        if not said.id and self._lasts:
            raise Rubbish("a line does not say which turn it is about: it has no id")
        heard = self._turns.get(name)
        if isinstance(said, Done | Failed | ApprovalWanted):
            self._turns.pop(name, None)
            self.has_worked = True
        if heard:
            await heard.put(said)


def _why(reading: "asyncio.Task[None]", code: int) -> Broken | Rubbish:
    error = None if reading.cancelled() or not reading.done() else reading.exception()
    return error if isinstance(error, Rubbish) else Broken(FailureKind.TRANSIENT, f"the program ended with code {code}")


class Seat:
    """A turn with a process."""

    def __init__(self, worker: Worker, name: str, heard: Queue[Heard]) -> None:
        self._worker = worker
        self._name = name
        self._heard = heard

    async def said(self) -> AsyncGenerator[FromAgent]:
        while True:
            said = await self._heard.get()
            if isinstance(said, Broken | Rubbish):
                raise said
            yield said

    def reply(self, reply: Reply) -> None:
        self._worker.reply(self._name, reply)

    def leave(self) -> None:
        self._worker.leave(self._name)
