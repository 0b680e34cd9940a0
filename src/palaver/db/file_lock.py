"""File lock: one gateway owns a SQLite file, on a file system whose locks can be trusted."""

import errno
import fcntl
import os
import socket
import sqlite3
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from shlex import quote
from typing import IO

from palaver.db.private_files import PRIVATE_FILE, open_private
from palaver.model.errors import StoreError, StoreInUse, StoreUnavailable

_TRANSIENT = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR})
_TRANSIENT_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE})


def is_transient(error: sqlite3.Error | OSError) -> bool:
    """Return whether nothing was written and the same transaction can succeed later."""
    if isinstance(error, OSError):
        return error.errno in _TRANSIENT_ERRNOS
    code: int | None = getattr(error, "sqlite_errorcode", None)  # errors that Python raises have none
    return code is not None and code & 0xFF in _TRANSIENT


def is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=True)


def is_mounted_read_only(path: Path) -> bool:
    """Return whether nobody can write to the file system of a path."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def is_disk_full(path: Path) -> bool:
    """Return whether the file is writable, but its disk has no free space or no free inode.

    Some file systems do not say how large they are, and some have no size, such as /proc.
    """
    folder = nearest_existing(path.parent)
    found = os.statvfs(folder)
    has_no_room = found.f_blocks and not found.f_bavail
    return is_writable(folder) and bool(has_no_room or (found.f_files and not found.f_favail))


def nearest_existing(path: Path) -> Path:
    """Return the path or its first parent that exists."""
    return next((each for each in (path, *path.parents) if each.exists()), Path("/"))


# File systems on which two hosts can both hold the lock.
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ncpfs", "glusterfs", "lustre", "ceph"})
_NETWORK_FUSE = ("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.davfs")


class FileLock:
    """A lock file beside the database, held while the gateway runs. The kernel releases it when the process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._file: IO[str] | None = None

    def take(self) -> None:
        file = self._lock(fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"pid {os.getpid()} on {socket.gethostname()}, {Path(sys.argv[0]).name}\n")
        file.flush()
        self._file = file

    @property
    def is_taken(self) -> bool:
        return self._file is not None

    @contextmanager
    def keep_free(self) -> Generator[None]:
        """Keep gateways from starting; raise StoreInUse if one runs. Several commands can do this at once."""
        with nullcontext() if self._file else self._lock(fcntl.LOCK_SH):
            yield

    def _lock(self, kind: int) -> IO[str]:
        try:
            file = self._open()
        except OSError as error:
            folder = self._path.parent
            closed = f"file {self._path}" if is_writable(folder) else f"folder {folder}"
            fix = "make room there" if is_disk_full(self._path) else "make it writable, or use another data directory"
            raise (StoreUnavailable if is_transient(error) else StoreError)(
                f"cannot write the {closed} ({error.strerror or error}), which is needed to lock the database: {fix}"
            ) from error
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            file.close()
            raise StoreInUse(
                f"the database {self._path.with_suffix('')} belongs to a running gateway ({owner}): stop it first, "
                "or use another data directory"
            ) from None
        return file

    def _open(self) -> IO[str]:
        """Open the file for its owner alone: who can read it can lock it, too."""
        handle = open_private(self._path, os.O_RDWR | os.O_APPEND, like=self._path.with_suffix(""))
        with suppress(OSError):  # it belongs to another user
            os.fchmod(handle, PRIVATE_FILE)
        return os.fdopen(handle, "a+")

    def release(self) -> None:
        if self._file:
            self._file.close()
            self._file = None


def refuse_hard_links(path: Path) -> None:
    """Refuse a file with hard links: lock and log belong to a name, so two writers would not see each other."""
    if not path.is_file() or not is_writable(path):
        return
    names = path.stat().st_nlink
    if names > 1:
        raise StoreError(
            f"the database {path} has {names} names (hard links), and writing it under two of them damages it: "
            f"keep one name and remove the others; to list them: find / -samefile {quote(str(path))}"
        )


def refuse_network_disk(folder: Path, mounts: str | None = None) -> None:
    """Raise on file systems where SQLite's locks do not work. `mounts` is the text of mountinfo."""
    table = Path("/proc/self/mountinfo")
    if mounts is None:
        if not table.exists():
            return
        mounts = table.read_text(errors="replace")
    kind = _kind_of(folder.resolve(), mounts)
    if kind in _NETWORK or kind.startswith(_NETWORK_FUSE):
        raise StoreError(
            f"{folder} is on a network file system ({kind}), where SQLite loses data: "
            "choose a local directory, or a postgresql:// store"
        )


def _kind_of(folder: Path, mounts: str) -> str:
    """Return the type of the file system of a folder: that of the longest mount point, the last of equals."""
    best, kind, places = -1, "", {str(each) for each in (folder, *folder.parents)}
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) > _MOUNT_POINT and right:
            point = fields[_MOUNT_POINT].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
            if point in places and len(point) >= best:
                best, kind = len(point), right.split(" ")[0]
    return kind


_MOUNT_POINT = 4
