"""The tables that the migrations make: their columns, keys and relations, in an order in which rows can be copied."""

import sqlite3
from contextlib import closing
from functools import lru_cache
from graphlib import TopologicalSorter

from palaver.db.schema import SQLITE, Migration, known_migrations, run_migration
from palaver.db.sqlite import run_statements
from palaver.model.value import value

_LAST = ("journal", "meta")
"""Readers of the journal look for the rows that it names."""


@value
class Relation:
    """A foreign key."""

    column: str
    table: str
    """The table it refers to."""
    key: str
    """The column there."""
    on_delete: str
    """`CASCADE`, `SET NULL` or `NO ACTION`."""
    is_own: bool
    """It refers to a row of its own table, which can be copied later: the row is written without it first."""


@value
class TableShape:
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    """The columns of the primary key."""
    relations: tuple[Relation, ...] = ()


def copy_order() -> tuple[TableShape, ...]:
    """Return every table after those that it refers to."""
    return _tables(known_migrations())


@lru_cache(1)
def _tables(migrations: tuple[Migration, ...]) -> tuple[TableShape, ...]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for migration in migrations:
            run_statements(db, iter(run_migration(migration, SQLITE)), set())
        rows = db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name"
        )
        shapes = {row[0]: _shape(db, row[0]) for row in rows.fetchall()}
    refers = {name: {each.table for each in shape.relations if not each.is_own} for name, shape in shapes.items()}
    order = TopologicalSorter(refers).static_order()
    return tuple(shapes[name] for name in (*(each for each in order if each not in _LAST), *_LAST))


def _shape(db: sqlite3.Connection, name: str) -> TableShape:
    rows = db.execute(f"PRAGMA table_info({name})").fetchall()
    key = tuple(row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5])
    relations = [
        Relation(
            column=column,
            table=table,
            key=to,
            on_delete=on_delete,
            is_own=table == name,
        )
        for _, _, table, column, to, _, on_delete, _ in db.execute(f"PRAGMA foreign_key_list({name})")
    ]
    return TableShape(name=name, columns=tuple(row[1] for row in rows), key=key, relations=tuple(relations))
