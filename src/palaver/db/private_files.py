"""Make files and folders that only their owner can read.

What root makes belongs to the owner of the folder that it is in. So a command that you run with sudo in the data
directory of a service leaves nothing there that the service cannot use.

That user can move folders and put links in their place meanwhile. So a file is made in a folder that is held open, and
belongs to the owner of that very folder.
"""

import errno
import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from palaver.model.errors import StoreInUse

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


def open_private(path: Path, flags: int, mode: int = PRIVATE_FILE, *, like: Path | None = None) -> int:
    """Open a file, never through a link, and make it if it does not exist.

    With `like` it gets the owner of another file of the same folder, if that exists.
    """
    flags |= os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with _opened(path.parent) as folder:
        try:
            handle = os.open(path.name, flags | os.O_EXCL, mode, dir_fd=folder)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            return os.open(path.name, flags, mode, dir_fd=folder)
        _give_away(handle, _owner(folder, like))
    return handle


def touch_private(path: Path) -> None:
    """Make a file unless it exists. A link can say where."""
    os.close(open_private(path.resolve(), os.O_WRONLY))


def make_private_folder(path: Path) -> None:
    """Make a folder with its parents, unless it exists."""
    if path.is_dir():
        return
    make_private_folder(path.parent)
    with _opened(path.parent) as parent:
        try:
            os.mkdir(path.name, PRIVATE_FOLDER, dir_fd=parent)
        except FileExistsError as error:
            if not path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error
        else:
            handle = os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
            try:
                _give_away(handle, os.fstat(parent))
            finally:
                os.close(handle)


@contextmanager
def _opened(folder: Path) -> Generator[int]:
    # A user who cannot list a folder can still make files in it.
    handle = os.open(folder, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    except OSError as error:  # it names the file within the folder that is held open
        if isinstance(error.filename, str):
            error.filename = str(folder / error.filename)
        raise
    finally:
        os.close(handle)


def _owner(folder: int, like: Path | None) -> os.stat_result:
    if like is not None:
        with suppress(FileNotFoundError):
            return os.stat(like.name, dir_fd=folder, follow_symlinks=False)
    return os.fstat(folder)


def _give_away(handle: int, owner: os.stat_result) -> None:
    """Give an open file to an owner, if this process can."""
    if os.geteuid() == 0:
        with suppress(OSError):  # a file system without owners
            os.fchown(handle, owner.st_uid, owner.st_gid)


@contextmanager
def naming(file: Path) -> Generator[None]:
    """Name a file or folder for which the disk has no room: the system does not say which it is."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            error.filename = error.filename or str(file)
        raise


# Files that appear complete


@contextmanager
def appearing(final: Path) -> Generator[IO[bytes]]:
    """Write a file for its owner alone, which appears under its name when it is complete and on disk.

    Raises StoreInUse if another process writes the same file.
    """
    part = final.with_name(f".{final.name}.part")
    with naming(final), os.fdopen(_open_alone(part, final), "w+b") as stream:
        try:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            part.replace(final)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    flush_folder(final.parent)


def _open_alone(part: Path, final: Path) -> int:
    """Open a file, empty and locked, or take over what a killed process left of it."""
    while True:
        handle = open_private(part, os.O_RDWR, like=final)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), part.stat()):
                os.ftruncate(handle, 0)
                return handle
        except BlockingIOError:
            os.close(handle)
            raise StoreInUse(f"another command writes {final}: wait until it has ended") from None
        except FileNotFoundError:
            pass
        os.close(handle)  # the other process has just ended, and its file has its final name or is gone


@contextmanager
def locked(folder: Path, problem: str) -> Generator[None]:
    """Lock a folder for all processes; raise StoreInUse with the problem if another one has it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreInUse(problem) from None
        yield
    finally:
        os.close(handle)


def flush_folder(folder: Path) -> None:
    """Bring to disk which files a folder has."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
