"""Start a supervisor, and talk to one that runs."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import IO, cast

import palaver
from palaver.model.value import value
from palaver.platforms.terminal.socket import connect
from palaver.processes.directory import SEGMENT_BYTES, SEGMENTS, ProcessDirectory

GRACE_SECONDS = 5.0
"""Between asking a process to end and killing it."""
_ROWS, _COLUMNS = 40, 120
_ANSWER_TIMEOUT_SECONDS = 5.0
_CLEANUP_SECONDS = 20.0
_POLL_SECONDS = 0.1
_ROOT = str(Path(palaver.__file__).parent.parent)


def program(module: str) -> str:
    """Return code that runs `main` of one of our modules in a Python without its packages."""
    return f"import sys; sys.path.insert(0, {_ROOT!r}); from {module} import main; main()"


_SUPERVISOR = program("palaver.processes.supervisor.main")


@value
class Launch:
    """A program for the supervisor to run on this machine."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    folder: str
    """Its working directory on this machine."""
    cleanup: tuple[str, ...] = ()
    """A program that ends what the command has started elsewhere. It runs when the process is killed.

    Its arguments stand in a file meanwhile, so there is no secret in them."""
    has_terminal: bool = False
    is_raw: bool = False
    """Its terminal passes everything on unchanged, because another terminal behind the program does the rest."""
    takes_input: bool = True
    """Whether its standard input is open; otherwise it is empty."""


class StartFailed(Exception):
    """The supervisor did not start the command."""


async def start(directory: ProcessDirectory, launch: Launch) -> None:
    """Start a supervisor in a new directory. When this returns, it runs the command.

    Raises OSError, StartFailed, and UnicodeEncodeError for half a character.
    """
    await asyncio.to_thread(_start, directory, launch)
    reap()


_children: set[int] = set()
"""Supervisors that this program started and has not reaped."""


def reap() -> None:
    """Reap the supervisors that have ended. Others go on after this program."""
    for pid in tuple(_children):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _children.discard(pid)


def _start(directory: ProcessDirectory, launch: Launch) -> None:
    lock = directory.make()
    try:
        spec = _spec(launch, lock)
        if launch.cleanup:
            directory.cleanup.write_bytes(b"\0".join(map(os.fsencode, launch.cleanup)))
        with (directory.path / "log").open("wb") as log:
            supervisor = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", "-c", _SUPERVISOR],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=directory.path,
                env={"PATH": os.defpath},
                pass_fds=[lock],
                start_new_session=True,
            )
    finally:
        os.close(lock)
    _children.add(supervisor.pid)
    supervisor.returncode = 0  # It is ours to reap.
    with cast("IO[bytes]", supervisor.stdin) as given:
        given.write(spec)
    with cast("IO[bytes]", supervisor.stdout) as said:
        is_ready = said.read() == b"ready\n"
    if not is_ready:
        raise StartFailed


def _spec(launch: Launch, lock: int) -> bytes:
    options = {
        "lock": lock,
        "terminal": int(launch.has_terminal),
        "raw": int(launch.is_raw),
        "input": int(launch.takes_input),
        "folder": launch.folder,
        "grace": GRACE_SECONDS,
        "rows": _ROWS,
        "columns": _COLUMNS,
        "segment_bytes": SEGMENT_BYTES,
        "segments": SEGMENTS,
    }
    lists: tuple[Sequence[str], ...] = (
        [f"{name}={option}" for name, option in options.items()],
        launch.argv,
        [f"{name}={text}" for name, text in launch.env.items()],
        launch.cleanup,
    )
    fields = [text for each in lists for text in (str(len(each)), *each)]
    return b"".join(text.encode("utf-8", "surrogateescape").replace(b"\0", b"") + b"\0" for text in fields)


class SupervisorLink:
    """A connection to a supervisor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._answers: asyncio.Queue[bool] = asyncio.Queue()
        self._ordering = asyncio.Lock()
        self.is_open = True
        self.changed = asyncio.Event()
        """Set after new output, a change of status, and the end of the connection. Clear it before you look."""
        self._reading = asyncio.create_task(self._read(), name="supervisor")

    @classmethod
    async def open(cls, directory: ProcessDirectory) -> "SupervisorLink":
        """Connect. Raises OSError if the supervisor has ended."""
        return cls(*await connect(directory.control))

    async def order(self, letter: bytes, payload: bytes = b"") -> bool:
        """Give an order, and return whether the supervisor accepted it."""
        async with self._ordering:
            self._writer.write(letter + len(payload).to_bytes(4, "big") + payload)
            try:
                async with asyncio.timeout(_ANSWER_TIMEOUT_SECONDS):
                    await self._writer.drain()
                    return self.is_open and await self._answers.get()
            except (OSError, TimeoutError):
                return False

    async def wait_for_end(self) -> None:
        await asyncio.shield(self._reading)

    def close(self) -> None:
        self._reading.cancel()
        self._writer.close()

    async def _read(self) -> None:
        with suppress(OSError):
            while data := await self._reader.read(4096):
                for byte in data:
                    if byte in b"+-":
                        self._answers.put_nowait(byte == ord("+"))
                if b"." in data:
                    self.changed.set()
        self.is_open = False
        self._answers.put_nowait(False)
        self.changed.set()


async def end_orphan(directory: ProcessDirectory) -> bool:
    """Kill what a supervisor has left that was killed itself, here and elsewhere. Return whether anything ran here."""
    if directory.is_supervised() or directory.status().ended is not None:
        return False
    has_run = await asyncio.to_thread(directory.kill_orphan)
    with suppress(OSError):  # there is nothing elsewhere, or the program is gone
        argv = directory.cleanup.read_bytes().split(b"\0")
        directory.cleanup.unlink()
        await _run_cleanup(argv)
    return has_run


async def _run_cleanup(argv: Sequence[bytes]) -> None:
    null = asyncio.subprocess.DEVNULL
    cleaner = await asyncio.create_subprocess_exec(*argv, stdin=null, stdout=null, stderr=null)
    try:
        async with asyncio.timeout(_CLEANUP_SECONDS):
            await cleaner.wait()
    except TimeoutError:
        cleaner.kill()


async def kill(directory: ProcessDirectory, grace: float = GRACE_SECONDS) -> bool:
    """Kill a process from outside the gateway that looks after it. Return whether there was anything to kill."""
    try:
        link = await SupervisorLink.open(directory)
    except OSError:
        if not directory.end_supervisor():
            return await end_orphan(directory)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS + _ANSWER_TIMEOUT_SECONDS):
                while directory.is_supervised():  # noqa: ASYNC110 - another program
                    await asyncio.sleep(_POLL_SECONDS)
        return True
    try:
        accepted = await link.order(b"k", str(grace).encode())
        with suppress(TimeoutError):
            async with asyncio.timeout(grace + _ANSWER_TIMEOUT_SECONDS):
                await link.wait_for_end()
    finally:
        link.close()
    return accepted
