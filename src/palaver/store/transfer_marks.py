"""Marks in a store that is being copied from another one: where from, how far each table is, and what was left out."""

from palaver.db.transaction import Statements, Value, transaction
from palaver.store.meta import SET_META, read_meta
from palaver.store.records import from_json, json_text

_SOURCE = "copied from"
_TABLE = "copied "
_LEFT = "copied without "
COPY_OF = "copy of"
"""What a complete copy was made from."""


@transaction
def copied_from() -> Statements[str | None]:
    """Return what this store is an incomplete copy of; None if it is complete."""
    return (yield from read_meta(_SOURCE))


@transaction
def begin_copy(source: str) -> Statements[None]:
    yield SET_META, (_SOURCE, source)


@transaction
def position_in(table: str) -> Statements[tuple[Value, ...] | None]:
    """Return the key of the last row that was copied; None before the first."""
    found = yield from read_meta(f"{_TABLE}{table}")
    return None if found is None else tuple(from_json(found))


@transaction
def record_position(table: str, key: tuple[Value, ...]) -> Statements[None]:
    yield SET_META, (f"{_TABLE}{table}", json_text(key))


@transaction
def record_left(table: str, key: tuple[Value, ...], reason: str) -> Statements[None]:
    yield SET_META, (f"{_LEFT}{table} {json_text(key)}", reason)


@transaction
def left_in(table: str) -> Statements[dict[tuple[Value, ...], str]]:
    """Return the keys of rows that were left out or changed, with the reasons."""
    name = f"{_LEFT}{table} "
    rows = yield "SELECT name, value FROM meta WHERE substr(name, 1, ?) = ? ORDER BY name", (len(name), name)
    return {tuple(from_json(row[0].removeprefix(name))): row[1] for row in rows}


@transaction
def clear_copy() -> Statements[None]:
    yield "DELETE FROM meta WHERE name LIKE ?", (f"{_TABLE}%",)


@transaction
def end_copy(source: str) -> Statements[None]:
    yield from clear_copy()
    yield SET_META, (COPY_OF, source)


@transaction
def complete_copy_of() -> Statements[str | None]:
    return (yield from read_meta(COPY_OF))


def is_mark(name: str) -> bool:
    return name.startswith(_TABLE)
