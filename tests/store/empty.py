"""New SQLite stores by copying an empty one: to create the tables again takes 150 ms of the processor each time."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from palaver.db import sqlite
from palaver.db.schema import SQLITE, known_migrations, migrate_step, pending_migrations
from palaver.db.sqlite import run_statements
from palaver.store import opening

__all__ = ["copied_stores", "empty_store", "write_empty_store"]

_VERSION_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'"


@cache
def empty_store() -> sqlite3.Connection:
    """A store in which nothing is, in memory."""
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA page_size = 2048")
    migrations = known_migrations()
    waiting = pending_migrations(migrations, _VERSION_TABLE)
    run_statements(db, iter(migrate_step(migrations, SQLITE, waiting)), set())
    return db


def write_empty_store(path: Path) -> None:
    path.write_bytes(empty_store().serialize())


@contextmanager
def copied_stores() -> Generator[None]:
    """Whenever Palaver makes a new file, put an empty store into it, unless the test changes the migrations."""
    connect, migrations = sqlite.connect, opening.known_migrations

    def connect_to_copy(
        path: Path, key: bytes | None = None, *, read_only: bool = False, new: bool = True
    ) -> sqlite3.Connection:
        is_new = not path.exists()
        db = connect(path, key, read_only=read_only, new=new)
        if is_new and key is None and opening.known_migrations is migrations:
            empty_store().backup(db)
        return db

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "connect", connect_to_copy)
        yield
