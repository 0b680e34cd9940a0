"""The terminal's socket: a file that only its owner can use, served by one gateway."""

import asyncio
import hashlib
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from palaver.platforms.terminal.wire import MAX_LINE_BYTES
from palaver.protocols import BadArgument, PlatformDown

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_MAX_PATH_BYTES = 100
"""Works on every system, with room for a temporary suffix."""
_CHECK_SECONDS = 2.0
_DESCRIPTORS = Path("/proc/self/fd")


def socket_path(folder: Path, store: str) -> Path:
    """Return the path in the data directory, one per store."""
    return folder / f"terminal-{hashlib.sha256(store.encode()).hexdigest()[:8]}.sock"


async def connect(path: Path) -> Streams:
    """Raise OSError if no gateway listens."""
    return await asyncio.open_unix_connection(sock=_connected(path), limit=MAX_LINE_BYTES)


def listen(path: Path) -> socket.socket:
    """Listen on the path; replace the file of a dead gateway. Raises PlatformDown if one is alive."""
    if _is_served(path):
        raise PlatformDown(f"Another gateway serves {path}.")
    # Set the permissions before anybody can find it.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished.unlink(missing_ok=True)
        with _short_name(unfinished) as name:
            listener.bind(name)
        unfinished.chmod(0o600)
        listener.listen()
        unfinished.replace(path)
    except OSError as error:
        listener.close()
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise PlatformDown(f"Cannot listen on {path}: {error}") from error
    return listener


async def wait_until_removed(path: Path) -> None:
    """Wait until somebody has removed the file: then no terminal finds the listener."""
    while path.is_socket():  # noqa: ASYNC110, ASYNC240 - there is no notification, and the check is quick
        await asyncio.sleep(_CHECK_SECONDS)


def close_listener(path: Path, listener: socket.socket) -> None:
    """Remove the file, unless another gateway has replaced it."""
    listener.close()
    if not _is_served(path):
        path.unlink(missing_ok=True)


def _is_served(path: Path) -> bool:
    with suppress(OSError):
        _connected(path).close()
        return True
    return False


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _short_name(path) as name:
            connection.connect(name)
    except OSError:
        connection.close()
        raise
    return connection


@contextmanager
def _short_name(path: Path) -> Generator[str]:
    """Yield a name that is short enough for a socket: for a long path, through the open folder."""
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        yield str(path)
        return
    if not _DESCRIPTORS.exists():
        raise BadArgument(
            "The path of the data directory is too long for a socket:",
            found=str(path.parent),
            allowed=f"at most {_MAX_PATH_BYTES - len(path.name)} bytes",
            example="PALAVER_HOME=~/palaver",
        )
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"{_DESCRIPTORS}/{folder}/{path.name}"
    finally:
        os.close(folder)
