"""Files that SQLite itself finds damaged, and what can be done about them."""

import re
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from glob import escape
from pathlib import Path

from palaver.db.high_water import mark_path
from palaver.db.transaction import Database, Row, Statements, transaction
from palaver.model.errors import StoreError
from palaver.store.damage.health_check import HealthCheck, listed

_BACKUP = re.compile(r"\.schema-[0-9]+")


async def check_integrity(database: Database, path: Path) -> HealthCheck:
    try:
        found = await database.read(_integrity())
    except StoreError as error:  # SQLite does not even get to the end
        found = [f"{table} or one of its indexes cannot be read" async for table in _unreadable_tables(database)]
        found = [str(error), *found]
    is_ok = found == ["ok"]
    return HealthCheck(
        name="integrity",
        ok=is_ok,
        found="every page is intact" if is_ok else listed(found),
        public="every page is intact" if is_ok else f"{len(found)} problems",
        fix=recovery_steps(path),
    )


@transaction
def _integrity() -> Statements[list[str]]:
    return [str(row[0]) for row in (yield "PRAGMA integrity_check(20)", ())]


@transaction
def touch_tables() -> Statements[None]:
    """Read the first and last row of every table, and the start of every index: cheap at any size."""
    for _, table, kind, _, without_rowid, *_ in (yield "PRAGMA main.table_list", ()):
        if kind != "table":
            continue
        yield f'SELECT * FROM "{table}" LIMIT 1', ()
        if not without_rowid:
            yield f'SELECT * FROM "{table}" ORDER BY rowid DESC LIMIT 1', ()
        for _, index, _, _, is_partial in (yield f'PRAGMA index_list("{table}")', ()):
            if not is_partial:
                yield f'SELECT 1 FROM "{table}" INDEXED BY "{index}" LIMIT 1', ()


async def _unreadable_tables(database: Database) -> AsyncIterator[str]:
    for (name,) in await database.read(_query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")):
        try:
            await database.read(_query(f'PRAGMA integrity_check("{name}")'))
        except StoreError:
            yield name


@transaction
def _query(sql: str) -> Statements[list[Row]]:
    return (yield sql, ())


def is_corrupt(path: Path, error: BaseException) -> bool:
    """Return whether SQLite cannot read a file that was our database: its mark or search index is beside it."""
    cause = error if isinstance(error, sqlite3.Error) else error.__cause__
    code: int = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    is_ours = mark_path(path).exists() or path.with_name(f"{path.name}.search").exists()
    return is_ours and code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def recovery_steps(path: Path) -> str:
    """Return what to do about a corrupt file, naming the newest backup that an upgrade made."""
    found = (each for each in path.parent.glob(f"{escape(path.name)}.schema-*") if is_backup(each, path))
    copies = sorted(found, key=lambda copy: copy.stat().st_mtime)
    made = [f"{copy.name} of {datetime.fromtimestamp(copy.stat().st_mtime, UTC):%Y-%m-%d}" for copy in copies[-1:]]
    backup = f"restore a backup ({made[0]} was made before an upgrade)" if made else "restore a backup"
    salvage = "copy everything readable into a new store: palaver doctor --salvage NEW_STORE"
    return f"stop the gateway and {backup}, or {salvage}"


def is_backup(copy: Path, path: Path) -> bool:
    """Return whether a file is a finished backup of an upgrade: one that was killed has more in its name."""
    return _BACKUP.fullmatch(copy.name.removeprefix(path.name)) is not None
