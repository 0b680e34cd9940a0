"""A schema version that does not fit the tables: no migration can run, so the database cannot be opened."""

import sqlite3
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from palaver.db.schema import SQLITE, known_migrations, run_migration
from palaver.db.schema_check import Shape, compare_sqlite, expected_sqlite, read_sqlite
from palaver.db.sqlite import connect, run_statements
from palaver.store.damage.health_check import RESTORE_OR_SALVAGE, HealthCheck


def check_version(path: Path, key: bytes | None = None) -> HealthCheck | None:
    """Report a SQLite file whose version is not that of its tables; None if it is, or the file cannot be read.

    A version above ours is that of a newer Palaver, whose tables we do not know.
    """
    with suppress(sqlite3.Error, UnicodeDecodeError, OSError), closing(connect(path, key, read_only=True)) as db:
        version = _version_of(db)
        fits = _fitting_version(run_statements(db, iter(read_sqlite()), set()))
        said = f"schema {version}" if version else "no schema version"
        is_newer = version.isdecimal() and int(version) > known_migrations()[-1].number
        if version != fits and not is_newer:
            return HealthCheck(
                name="schema version",
                ok=False,
                found=f"the database says {said}, but its tables are those of schema {fits}",
                fix=RESTORE_OR_SALVAGE,
            )
    return None


def _version_of(db: sqlite3.Connection) -> str:
    if not lacks_meta(db):
        rows = db.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall()
        return str(rows[0][0]) if rows else ""
    return ""


def lacks_meta(db: sqlite3.Connection) -> bool:
    """Return whether a database of ours has lost the table that says so."""
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return tables >= {"entries", "inbox", "outbox", "turns"} and "meta" not in tables


def _fitting_version(found: Shape) -> str:
    """Return the version whose tables differ least from these, the newest of equals."""
    newest = known_migrations()
    if not compare_sqlite(found, expected_sqlite(newest)):
        return str(newest[-1].number)
    fits = [(len(compare_sqlite(found, shape)), -number) for number, shape in _shapes()]
    return str(-min(fits)[1])


@cache
def _shapes() -> list[tuple[int, Shape]]:
    """Return the shape of every version."""
    shapes: list[tuple[int, Shape]] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for migration in known_migrations():
            run_statements(db, iter(run_migration(migration, SQLITE)), set())
            shapes.append((migration.number, run_statements(db, iter(read_sqlite()), set())))
    return shapes
