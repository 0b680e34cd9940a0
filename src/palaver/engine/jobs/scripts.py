"""Run the script of a job: a file in the configured folder, without the gateway's secrets and within a limit."""

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from palaver.model.errors import BadArgument
from palaver.model.value import value

MAX_OUTPUT_BYTES = 32_000
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
    """The only variables that a script sees, besides `PALAVER_JOB`."""
    seconds: float = 120.0
    """How long a script can take."""

    def find(self, name: str) -> Path:
        """Return the file of a script. Raises BadArgument if there is none that can be run."""
        path = self.folder / name
        if not _NAME.fullmatch(name) or not path.is_file() or not os.access(path, os.X_OK):
            raise BadArgument(
                "There is no script called",
                found=name,
                allowed="the name of an executable file in the folder of scripts",
                example="report.sh",
            )
        return path

    async def run(self, name: str, job: int, workdir: str | None) -> ScriptResult:
        """Run a script to its end. Raises BadArgument or OSError if it cannot be started."""
        path = self.find(name)
        process = await asyncio.create_subprocess_exec(
            str(path.absolute()),
            cwd=workdir or self.folder,
            env={**self.environ, "PALAVER_JOB": str(job)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        output = bytearray()
        try:
            async with asyncio.timeout(self.seconds):
                await _read(process, output)
                code = await process.wait()
        except TimeoutError:
            code = None
        finally:
            # What the script has started in the background ends with it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        return ScriptResult(output=output.decode(errors="replace"), code=code)


async def _read(process: asyncio.subprocess.Process, output: bytearray) -> None:
    """Keep the beginning of what the script prints, and read the rest so that it does not wait."""
    while process.stdout and (chunk := await process.stdout.read(1 << 16)):
        output += chunk[: MAX_OUTPUT_BYTES - len(output)]
