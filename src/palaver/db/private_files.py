"""Make files and folders that only their owner can read.

What root makes belongs to the owner of the folder that it is in. So a command that you run with sudo in the data
directory of a service leaves nothing there that the service cannot use.

That user can move folders and put links in their place meanwhile. So a file is made in a folder that is held open, and
belongs to the owner of that very folder.
"""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


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
