"""A process that speaks in lines, and how it is ended together with everything it has started."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from palaver.agents.wire import LONGEST_LINE, Rubbish
from palaver.domain.redact import redact
from palaver.domain.text import one_line

__all__ = ["Process", "home"]

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
                told = {"action": "agent.complains"}
                log.info("the agent's process %d writes to its standard error", self.number, extra=told)
            for line in piece.splitlines()[: max(0, _LOGGED - lines)]:
                lines += 1
                words = one_line(redact(line.decode(errors="replace")), _LONGEST_LOGGED)
                log.debug("the agent's process %d: %s", self.number, words, extra={"action": "agent.complains"})
            lines = lines or 1
