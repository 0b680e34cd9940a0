"""Run the script of a job: a file in the configured folder, without the gateway's secrets and within a limit."""

import asyncio
import os
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import IO
from uuid import uuid4

from palaver.model.errors import BadArgument
from palaver.model.value import value

MAX_OUTPUT_BYTES = 32_000
_MARK = "PALAVER_RUN"
"""The variable by which all that a run has started is found."""
_DRAIN_SECONDS = 1.0
_MAX_KILLS = 20
_MAX_LISTED = 20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)


@value
class ScriptResult:
    output: str
    code: int | None
    """The exit code; None if it was stopped because it took too long."""


@value
class Scripts:
    folder: Path
    environ: Mapping[str, str] = field(repr=False)
    """The only variables that a script sees, besides `PALAVER_JOB` and `PALAVER_RUN`."""
    seconds: float = 120.0
    """How long a script can take."""

    def find(self, name: str, *, names_others: bool) -> Path:
        """Return the file of a script. Raises BadArgument if there is none that can be run.

        Without `names_others`, the error does not list the scripts that exist: in a group, everybody can read it.
        """
        if not self._has(name):
            names = ", ".join(self._names()) if names_others else ""
            allowed = names or "an executable file in the folder jobs.scripts of the configuration"
            raise BadArgument("There is no script called", found=name, allowed=allowed, example="report.sh")
        return self.folder / name

    def _has(self, name: str) -> bool:
        path = self.folder / name
        return bool(_NAME.fullmatch(name)) and path.is_file() and os.access(path, os.X_OK)

    def _names(self) -> list[str]:
        with suppress(OSError):
            return sorted(each.name for each in self.folder.iterdir() if self._has(each.name))[:_MAX_LISTED]
        return []

    async def run(self, name: str, job: int, workdir: str | None) -> ScriptResult:
        """Run a script to its end. Raises BadArgument or OSError if it cannot be started."""
        if not self._has(name):  # People who read along see why: names of others are not for them.
            raise BadArgument("There is no script called", found=name, allowed="", example="")
        path, mark = self.folder / name, uuid4().hex
        # The pipe is our own: asyncio would wait for everything that holds its end, however long it runs.
        ours, theirs = os.pipe()
        with os.fdopen(ours, "rb", buffering=0) as pipe:
            try:
                process = await asyncio.create_subprocess_exec(
                    str(path.absolute()),
                    cwd=workdir or self.folder,
                    env={**self.environ, "PALAVER_JOB": str(job), _MARK: mark},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=theirs,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                )
            finally:
                os.close(theirs)
            output = bytearray()
            reading = asyncio.create_task(_read(pipe, output))
            try:
                async with asyncio.timeout(self.seconds):
                    code = await process.wait()
            except TimeoutError:
                code = None
            finally:
                await asyncio.shield(_end(process, mark))
                await asyncio.wait({reading}, timeout=_DRAIN_SECONDS)
                reading.cancel()
                await asyncio.wait({reading})
        return ScriptResult(output=output.decode(errors="replace"), code=code)


async def _read(pipe: IO[bytes], output: bytearray) -> None:
    """Keep the beginning of what the script prints, and read the rest so that it does not wait."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while chunk := await reader.read(1 << 16):
            output += chunk[: MAX_OUTPUT_BYTES - len(output)]
    finally:
        transport.close()


async def _end(process: asyncio.subprocess.Process, mark: str) -> None:
    """End what the script has started with it: its process group, and what left it but has its environment."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await asyncio.to_thread(_kill_marked, f"{_MARK}={mark}".encode())
    await process.wait()


def _kill_marked(variable: bytes) -> None:
    """Kill until none is left: one can start another meanwhile."""
    for _ in range(_MAX_KILLS):
        found = [each for each in Path("/proc").glob("[0-9]*") if variable in _environment(each)]
        if not found:
            return
        for each in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(each.name), signal.SIGKILL)


def _environment(process: Path) -> Sequence[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # It has ended, or is somebody else's.
        return ()
