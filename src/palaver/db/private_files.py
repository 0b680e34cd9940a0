"""Make files and folders that only their owner can read.

What root makes belongs to the owner of the folder that it is in. So a command that you run with sudo in the data
directory of a service leaves nothing there that the service cannot use.
"""

import os
from contextlib import suppress
from pathlib import Path

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def open_private(path: Path, flags: int, mode: int = PRIVATE_FILE, *, replaces: Path | None = None) -> int:
    """Open a file, and make it if it does not exist. One that replaces another gets the owner of that."""
    try:
        handle = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, mode)
    # Only a file that this call made: another one could be a link to a file of root's.
    _give_to_owner_of(replaces if replaces and replaces.exists() else path.parent, handle)
    return handle


def touch_private(path: Path) -> None:
    os.close(open_private(path, os.O_WRONLY))


def make_private_folder(path: Path) -> None:
    """Make a folder with its parents, unless it exists."""
    if path.is_dir():
        return
    make_private_folder(path.parent)
    try:
        path.mkdir(mode=PRIVATE_FOLDER)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            _give_to_owner_of(path.parent, handle)
        finally:
            os.close(handle)


def _give_to_owner_of(place: Path, handle: int) -> None:
    """Give an open file the owner of a place, if this process can."""
    if os.geteuid() == 0:
        owner = place.stat()
        with suppress(OSError):  # a file system without owners
            os.fchown(handle, owner.st_uid, owner.st_gid)
