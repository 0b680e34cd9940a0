"""The check of `palaver doctor` on the files of a data directory: you can use them, and nobody else can read them."""

import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from palaver.db.cipher import KEYS
from palaver.db.file_lock import is_mounted_read_only
from palaver.store.damage.health_check import MAX_LISTED, HealthCheck

_GROUP_AND_OTHERS_BITS = 0o077
_FOLDERS = ("files", "processes", "output", "backups")
"""Folders of the data directory that hold what was said."""


def data_files(database: Path) -> Iterator[Path]:
    """Yield the database, the files beside it that hold the same content, keys, logs, and the folders with files."""
    yield from sorted(database.parent.glob(f"{database.name}*"))
    yield from database.parent.glob(KEYS)
    yield from sorted(database.parent.glob("*.log*"))
    yield from (folder for name in _FOLDERS if (folder := database.parent / name).is_dir())


def check_permissions(files: Iterable[Path]) -> HealthCheck:
    found = [each for each in files if each.exists()]
    unusable = [each for each in found if not os.access(each, _needed(each), effective_ids=True)]
    if unusable:
        return HealthCheck(
            name="permissions",
            ok=False,
            found=f"this user cannot read and write {_shown(unusable)}",
            public=f"files that this user cannot use: {len(unusable)}",
            fix=f"make them yours: sudo chown {os.geteuid()} {_shown(unusable)}",
        )
    readable = readable_by_others(found)
    return HealthCheck(
        name="permissions",
        ok=True,
        is_warning=bool(readable),
        found=f"others on this machine can read {_shown(readable)}" if readable else "only this user reads the files",
        public=f"files that others can read: {len(readable)}",
        fix=f"chmod go-rwx {shlex.join(map(str, readable))}",
    )


def _needed(file: Path) -> int:
    """Return the access that the owner can have: nobody writes to a read-only file system."""
    return os.R_OK if is_mounted_read_only(file) else os.R_OK | os.W_OK


def readable_by_others(files: Iterable[Path]) -> list[Path]:
    """Return the files that others can read. What a link points to is not in the data directory, so it is left out."""
    found = [each for each in files if each.exists() and not each.is_symlink()]
    return [each for each in found if each.stat().st_mode & _GROUP_AND_OTHERS_BITS]


def _shown(files: list[Path]) -> str:
    return shlex.join(str(each) for each in files[:MAX_LISTED])
