"""The disk that a database lies on: may it be written, is it full, and which of its refusals may pass."""

import errno
import os
import sqlite3
from pathlib import Path

__all__ = ["has_no_room", "may_pass", "may_write", "nearest"]

_PASSING = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR})
_PASSING_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE})


def may_pass(error: sqlite3.Error | OSError) -> bool:
    """It is not the fault of what was asked for: nothing was written, and later it may succeed."""
    if isinstance(error, OSError):
        return error.errno in _PASSING_ERRNOS
    code: int | None = getattr(error, "sqlite_errorcode", None)  # it has none where Python refused
    return code is not None and code & 0xFF in _PASSING


def may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=True)


def has_no_room(path: Path) -> bool:
    """It may be written, but there is no room for a byte more or, where that is counted, for another file."""
    folder = nearest(path.parent)
    found = os.statvfs(folder)
    return may_write(folder) and (not found.f_bavail or bool(found.f_files and not found.f_favail))


def nearest(path: Path) -> Path:
    """The path, or what there is of it."""
    return next((each for each in (path, *path.parents) if each.exists()), Path("/"))
