"""Marks in a store that is being copied from another one: where from, and how far each table is."""

from palaver.db.transaction import Statements, Value, transaction
from palaver.store.records import from_json, json_text

_SOURCE = "copied from"
_TABLE = "copied "
SET_META = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


@transaction
def copied_from() -> Statements[str | None]:
    """Return what this store is an incomplete copy of; None if it is complete."""
    rows = yield "SELECT value FROM meta WHERE name = ?", (_SOURCE,)
    return rows[0][0] if rows else None


@transaction
def begin_copy(source: str) -> Statements[None]:
    yield SET_META, (_SOURCE, source)


@transaction
def position_in(table: str) -> Statements[tuple[Value, ...] | None]:
    """Return the key of the last row that was copied; None before the first."""
    rows = yield "SELECT value FROM meta WHERE name = ?", (f"{_TABLE}{table}",)
    return tuple(from_json(rows[0][0])) if rows else None


@transaction
def record_position(table: str, key: tuple[Value, ...]) -> Statements[None]:
    yield SET_META, (f"{_TABLE}{table}", json_text(key))


@transaction
def end_copy() -> Statements[None]:
    yield "DELETE FROM meta WHERE name LIKE ?", (f"{_TABLE}%",)


def is_mark(name: str) -> bool:
    return name.startswith(_TABLE)
