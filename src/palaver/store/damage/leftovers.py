"""Files beside a database: what an earlier one left behind, and the copies that are made of it."""

import fcntl
import os
import re
import shutil
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

from palaver.db.cipher import open_file
from palaver.db.high_water import mark_path
from palaver.db.private_files import open_private
from palaver.db.sqlite import connect
from palaver.model.errors import StoreError
from palaver.store.encryption.contents import STORED_NAME

FILES = "files"
"""The folder of attachments in a data directory."""


# An earlier database


def refuse_leftovers(path: Path) -> None:
    """Raise StoreError instead of creating a database where another one was."""
    if problem := describe_leftovers(path):
        raise StoreError(problem)


def describe_leftovers(path: Path) -> str | None:
    """Say what is left of a database that is missing or empty, and what to do; None if there is nothing."""
    left = _leftovers(path)
    # Looked at last: a process that creates a database just now makes the file first, then its journal and the rest.
    if path.exists():
        left = [] if path.stat().st_size else [name for name in left if not name.endswith("-journal")]
    if not left:
        return None
    names = f"{', '.join(left[:-1])} and {left[-1]}" if len(left) > 1 else left[0]
    return (
        f"the database {path} is {'empty' if path.exists() else 'missing'}, but {names} of an earlier one "
        f"{'are' if len(left) > 1 else 'is'} left in its folder: put the database back, for example from a backup, or "
        f"move {names} away to start over"
    )


def _leftovers(path: Path) -> list[str]:
    logs = (path.with_name(f"{path.name}{ending}") for ending in ("-wal", "-shm", "-journal"))
    others_of_it = (path.with_name(f"{path.name}.search"), mark_path(path))
    found = [each.name for each in logs if each.is_file() and each.stat().st_size]
    found += [each.name for each in others_of_it if each.is_file()]
    others = [each for each in path.parent.glob("*.mark") if each != mark_path(path) and each.with_suffix("").exists()]
    # Files are shared by the databases of a folder. Alone, they can be those of a database in PostgreSQL.
    return [*found, FILES] if found and not others and _has_contents(path.parent / FILES) else found


def _has_contents(folder: Path) -> bool:
    return any(STORED_NAME.fullmatch(each.name) for each in folder.glob("??/*"))


# Copies


def copy_database(path: Path, copy: Path, version: int | None = None, *, key: bytes | None = None) -> bool:
    """Copy a database with its log, for its owner alone to read. The copy appears when it is complete.

    With a `version` only a database of that schema is copied; return whether it was.
    """
    remove_unfinished_copies(path)
    part = copy.with_name(f"{copy.name}.{os.getpid()}.{threading.get_ident()}")
    handle = open_private(part, os.O_RDWR)
    try:
        # Held, so that nobody takes it for one that a killed process left.
        fcntl.flock(handle, fcntl.LOCK_EX)
        is_wanted = _copy(path, part, version, key)
        os.fsync(handle)
        if is_wanted:
            part.replace(copy)
    finally:
        os.close(handle)
        part.unlink(missing_ok=True)
    return is_wanted


def _copy(path: Path, part: Path, version: int | None, key: bytes | None) -> bool:
    source, target = connect(path, key, read_only=True), open_file(part, key)
    found: object = None
    try:
        source.backup(target)
        # Another process may have migrated meanwhile: then its backup counts, not this one.
        found = target.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
    except sqlite3.DatabaseError:
        if version is not None:
            raise
        shutil.copyfile(path, part)  # as damaged as it is
    finally:
        source.close()
        target.close()
    return version is None or found == (str(version),)


def is_copy(file: Path, path: Path) -> bool:
    """Return whether a file is a copy of a database, by a migration or a backup, or what is left of one."""
    return file.name.startswith(tuple(f"{path.name}.{why}-" for why in ("schema", "backup")))


def remove_unfinished_copies(path: Path) -> None:
    """Remove what a killed process left of a copy. One that is being made is locked."""
    unfinished = re.compile(re.escape(path.name) + r"\.(schema|backup)-\w+\.[0-9]+\.[0-9]+(-journal)?")
    for part in [each for each in path.parent.iterdir() if unfinished.fullmatch(each.name)]:
        with suppress(OSError), part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
