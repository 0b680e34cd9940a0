"""Install the packages of an extra into the environment that runs, one installation at a time."""

import asyncio
import fcntl
import importlib
import os
import re
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from palaver.db.private_files import open_private
from palaver.model.errors import PalaverError
from palaver.model.redact import redact
from palaver.model.text import one_line
from palaver.protocols.installation import Installation, MissingPackages, find_installation

_LIMIT_S = 900.0
_LOCK_INTERVAL_S = 0.2
_MAX_LINE, _MAX_READ = 100, 2000
_MAX_OUTPUT = 1 << 20
_LOCK_FILE = ".palaver-install.lock"
_VARIABLES = frozenset({"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "NO_PROXY", "HTTP_PROXY", "HTTPS_PROXY"})
_PREFIXES = ("LC_", "PIP_", "UV_", "PIPX_", "XDG_", "SSL_", "REQUESTS_")
"""What an installer needs. The gateway's secrets are none of its business: it runs code of packages."""
_CAUSES = (
    (r"No space left on device|disk quota", "the disk is full"),
    (r"Permission denied|Read-only file system|Operation not permitted", "the environment cannot be written"),
    (
        (
            r"NewConnectionError|Name or service not known|name resolution|Network is unreachable|Connection refused|"
            r"ConnectTimeout|ReadTimeout|ProxyError|dns error|error sending request|client error \(Connect\)"
        ),
        "the package index cannot be reached. Check the network",
    ),
    (
        r"No matching distribution found|No solution found|not found in the package registry|conflicting dependencies",
        "the package index has no versions that fit",
    ),
)


class NotInstalled(PalaverError):
    """The packages could not be installed; says why, and the command to run."""

    def __init__(self, missing: MissingPackages, why: str) -> None:
        super().__init__(
            f"{', '.join(missing.packages)} could not be installed: {why}. Run it yourself: {missing.line}"
        )
        self.why = why


async def install(missing: MissingPackages, show: Callable[[str], None]) -> None:
    """Install what is missing and show what goes on. Raises NotInstalled."""
    here = find_installation()
    if here.obstacle:
        raise NotInstalled(missing, here.obstacle)
    command = here.command(missing.extra, missing.needs)
    try:
        async with asyncio.timeout(_LIMIT_S), _locked(here, show) as lock:
            lines = await _run(command, lock, show)
    except TimeoutError:
        raise NotInstalled(missing, f"it took longer than {_LIMIT_S / 60:.0f} minutes") from None
    except OSError as error:
        raise NotInstalled(missing, f"{command[0]} cannot be started ({error.strerror})") from error
    if lines:
        raise NotInstalled(missing, explain_failure(lines))
    importlib.invalidate_caches()


@asynccontextmanager
async def _locked(here: Installation, show: Callable[[str], None]) -> AsyncGenerator[int]:
    """Hold the lock of this environment. The installer inherits it: it goes on if Palaver is killed."""
    lock = open_private(here.packages / _LOCK_FILE, os.O_RDWR)
    try:
        while not _try_lock(lock):
            show("Waiting for another installation")
            await asyncio.sleep(_LOCK_INTERVAL_S)
        yield lock
    finally:
        os.close(lock)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _run(command: Sequence[str], lock: int, show: Callable[[str], None]) -> list[str]:
    """Run an installer; return what it printed if it failed, else nothing."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=installer_environment(os.environ),
        start_new_session=True,
        pass_fds=(lock,),
        limit=_MAX_OUTPUT,
    )
    lines: list[str] = []
    try:
        assert process.stdout is not None  # noqa: S101
        async for line in process.stdout:
            # A cause can stand at the end of a long line.
            lines.append(text := one_line(redact(line.decode(errors="replace")), _MAX_READ))
            show(one_line(text, _MAX_LINE))
        code = await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return (lines or [f"it ended with code {code}"]) if code else []


def installer_environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in environ.items() if name.upper() in _VARIABLES or name.startswith(_PREFIXES)}
    return {
        "PIP_RETRIES": "2",
        **kept,
        "PIP_NO_INPUT": "1",
        "NO_COLOR": "1",
        "UV_NO_PROGRESS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def explain_failure(lines: Sequence[str]) -> str:
    """Say in one sentence why an installer failed."""
    text = "\n".join(lines)
    for pattern, cause in _CAUSES:
        if re.search(pattern, text):
            return cause
    errors = [line for line in lines if line.lower().startswith("error")]
    return one_line((errors or list(lines))[-1], _MAX_LINE).rstrip(".")
