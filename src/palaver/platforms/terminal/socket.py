"""The terminal's socket: a file that only its owner may use, served by one gateway, found by every terminal."""

import asyncio
import hashlib
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from palaver.platforms.terminal.wire import LONGEST_LINE
from palaver.protocols import BadArgument, PlatformDown

__all__ = ["Streams", "dial", "give_back", "gone", "socket_path", "take"]

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_LONGEST_PATH = 100
"""What every system takes, with room for a name in the making."""
_LOOK_AGAIN = 2.0
_DESCRIPTORS = Path("/proc/self/fd")


def socket_path(folder: Path, store: str) -> Path:
    """In the data directory, one for each store."""
    return folder / f"terminal-{hashlib.sha256(store.encode()).hexdigest()[:8]}.sock"


async def dial(path: Path) -> Streams:
    """Raises OSError where no gateway answers."""
    return await asyncio.open_unix_connection(sock=_connected(path), limit=LONGEST_LINE)


def take(path: Path) -> socket.socket:
    """Listen there; what a gateway that died has left behind is replaced. Raises PlatformDown if one is alive."""
    if _answers(path):
        raise PlatformDown(f"another gateway serves {path}")
    # Nobody finds it before it is theirs alone to use.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished.unlink(missing_ok=True)
        with _reachable(unfinished) as name:
            listener.bind(name)
        unfinished.chmod(0o600)
        listener.listen()
        unfinished.replace(path)
    except OSError as error:
        listener.close()
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise PlatformDown(f"{path} cannot be served: {error}") from error
    return listener


async def gone(path: Path) -> None:
    """Returns soon after somebody has removed the file: nobody finds the listener any more."""
    while path.is_socket():  # noqa: ASYNC110, ASYNC240 - the file system tells nobody, and looking is quick
        await asyncio.sleep(_LOOK_AGAIN)


def give_back(path: Path, listener: socket.socket) -> None:
    """Take the file away, unless somebody else has put theirs in its place."""
    listener.close()
    if not _answers(path):
        path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    with suppress(OSError):
        _connected(path).close()
        return True
    return False


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _reachable(path) as name:
            connection.connect(name)
    except OSError:
        connection.close()
        raise
    return connection


@contextmanager
def _reachable(path: Path) -> Generator[str]:
    """A name for it that is short enough for a socket: where the path is not, through the open folder."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    if not _DESCRIPTORS.exists():
        raise BadArgument(
            "The path of the data directory is too long for a socket on this system:",
            found=str(path.parent),
            allowed=f"at most {_LONGEST_PATH - len(path.name)} bytes",
            example="PALAVER_HOME=~/palaver",
        )
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"{_DESCRIPTORS}/{folder}/{path.name}"
    finally:
        os.close(folder)
