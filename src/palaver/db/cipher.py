"""Open SQLite files, encrypted ones with SQLCipher, whose errors are those of `sqlite3`."""

import sqlite3
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import cast

from palaver.model.errors import StoreError

KEYS = "palaver.keys"
"""The file of the wrapped keys, beside an encrypted store."""
_PLAIN = b"SQLite format 3\0"
_CACHED_STATEMENTS = 512


def open_file(name: str | Path, key: bytes | None = None, *, uri: bool = False) -> sqlite3.Connection:
    """Connect with explicit transactions. The first statement fails if the `key` does not fit."""
    connect = sqlite3.connect if key is None else sqlcipher().connect
    opened = connect(
        str(name), uri=uri, isolation_level=None, check_same_thread=False, cached_statements=_CACHED_STATEMENTS
    )
    db = cast("sqlite3.Connection", opened)  # the same interface
    if key is not None:
        db.execute("PRAGMA cipher_log_level = NONE")  # it would write to standard error
        db.execute(f"PRAGMA key = \"x'{key.hex()}'\"")
    return db


def is_plain(path: Path) -> bool:
    """Return whether a file is a database that anybody can read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_PLAIN)) == _PLAIN
    except OSError:
        return False


def is_encrypted(path: Path) -> bool:
    """Return whether a file has content that is no plain database. A damaged one looks like that, too."""
    return path.is_file() and path.stat().st_size > 0 and not is_plain(path)


@cache
def sqlcipher() -> ModuleType:
    """Import SQLCipher, and derive its errors from those of `sqlite3`, so that who handles these handles both."""
    try:
        module = import_module("sqlcipher3.dbapi2")  # an extra
    except ModuleNotFoundError as error:
        from palaver.protocols.installation import install_line  # noqa: PLC0415 - slow to import, and rarely needed

        raise StoreError(
            f"an encrypted store needs SQLCipher, which is not installed: {install_line('encryption')}"
        ) from error
    for name in ("DatabaseError", "InterfaceError"):
        getattr(module, name).__bases__ = (module.Error, getattr(sqlite3, name))
    for name in ("IntegrityError", "OperationalError", "DataError", "InternalError", "ProgrammingError"):
        getattr(module, name).__bases__ = (module.DatabaseError, getattr(sqlite3, name))
    return module
