"""Compare the schema of a database with the one that the migrations make."""

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import lru_cache
from typing import NamedTuple

from palaver.db.schema import SQLITE, Migration, run_migration
from palaver.db.sqlite import run_statements
from palaver.db.transaction import Statements, transaction


class Part(NamedTuple):
    """A part of a schema."""

    kind: str
    """`table`, `column`, `constraint`, `index` or `trigger`."""
    table: str
    name: str
    definition: str
    is_unique: bool = False
    """An index that refuses equal values."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.table, self.name

    @property
    def text(self) -> str:
        return f"{self.kind} {self.table if self.kind == 'table' else f'{self.table}.{self.name}'}"


class Difference(NamedTuple):
    text: str
    """`index inbox.inbox_waiting is missing`."""
    mend: tuple[str, ...]
    """Statements that make it as it should be; none if only a person can tell what is right."""
    lost: str = ""
    """The definition of what they remove."""


class Shape(dict[tuple[str, str, str], Part]):
    """The parts of a schema by their key."""

    def __init__(self, parts: Iterable[Part]) -> None:
        super().__init__((part.key, part) for part in parts)

    def parts(self, kind: str, table: str | None = None) -> list[Part]:
        return [part for part in self.values() if part.kind == kind and table in {None, part.table}]


def problem(part: Part, found: Shape) -> str:
    """Return what is wrong with a part; nothing if it is as expected."""
    if part.key not in found:
        return f"{part.text} is missing"
    return "" if is_same(found[part.key], part) else f"{part.text} differs"


def is_same(found: Part, expected: Part) -> bool:
    return _plain(found.definition) == _plain(expected.definition)


def _plain(sql: str) -> str:
    """Leave out the quotes that some versions of SQLite put around names."""
    return re.sub(r'[\s"]+', "", sql)


def unexpected(found: Shape, expected: Shape) -> Iterator[Part]:
    """Yield triggers, which change what is written, and what refuses it. Other indexes and tables do no harm."""
    tables = {part.name for part in expected.parts("table")}
    for part in found.values():
        is_strict = part.is_unique or part.kind in {"trigger", "constraint"}
        if is_strict and part.table in tables and part.key not in expected:
            yield part


# SQLite

_PARTS = (
    "SELECT m.type, m.tbl_name, m.name, coalesce(m.sql, ''), m.type = 'index' AND (SELECT l.[unique]"
    " FROM pragma_index_list(m.tbl_name) l WHERE l.name = m.name) FROM sqlite_master m"
    " WHERE m.name NOT LIKE 'sqlite!_%' ESCAPE '!' AND m.type <> 'view' ORDER BY m.name"
)
_COLUMNS = (
    "SELECT 'column', ?, name, type || ' ' || [notnull] || ' ' || coalesce(dflt_value, '') FROM pragma_table_info(?)"
)


@transaction
def read_sqlite() -> Statements[Shape]:
    rows = yield _PARTS, ()
    parts = [Part(*row[:4], is_unique=bool(row[4])) for row in rows]
    for table in [part.name for part in parts if part.kind == "table"]:
        parts += [Part(*row) for row in (yield _COLUMNS, (table, table))]
    return Shape(parts)


@lru_cache(1)
def expected_sqlite(migrations: tuple[Migration, ...]) -> Shape:
    """Run the migrations on an empty database in memory."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for migration in migrations:
            run_statements(db, iter(run_migration(migration, SQLITE)), set())
        return run_statements(db, iter(read_sqlite()), set())


def compare_sqlite(found: Shape, expected: Shape) -> list[Difference]:
    differences: list[Difference] = []
    for table in expected.parts("table"):
        if text := _table_problem(table, found, expected):
            strange = [part.name for part in found.parts("column", table.name) if part.key not in expected]
            if strange:  # of a newer Palaver, or somebody's own: to make the table anew would drop what they hold
                differences.append(Difference(f"table {table.name} has unknown columns: {', '.join(strange)}", ()))
                continue
            differences.append(Difference(text, tuple(_remake(table, found, expected))))
            continue
        for index in expected.parts("index", table.name):
            if text := problem(index, found):
                drop = (f'DROP INDEX "{index.name}"',) if index.key in found else ()
                differences.append(Difference(text, (*drop, index.definition)))
    for part in unexpected(found, expected):
        drop = f'DROP {part.kind.upper()} "{part.name}"'
        differences.append(Difference(f"{part.text} is unexpected", (drop,), lost=part.definition))
    return differences


def _table_problem(table: Part, found: Shape, expected: Shape) -> str:
    text = problem(table, found)
    if text and table.key in found:
        columns = (problem(column, found) for column in expected.parts("column", table.name))
        return next(filter(None, columns), f"{table.text} has other columns or constraints")
    return text


def _remake(table: Part, found: Shape, expected: Shape) -> Iterator[str]:
    """Make a table anew, with the values of the columns that there are."""
    indexes = [index.definition for index in expected.parts("index", table.name)]
    if table.key not in found:
        yield from (table.definition, *indexes)
        return
    name, new = table.name, f"{table.name}_new"
    columns = expected.parts("column", name)
    kept = {column.name: column.name for column in columns if column.key in found}
    added = {column.name: _nothing(column) for column in columns if column.key not in found and _nothing(column)}
    values = kept | added
    yield re.sub(rf'^CREATE TABLE "?{name}"?', f"CREATE TABLE {new}", table.definition)
    yield f"INSERT INTO {new} ({', '.join(values)}) SELECT {', '.join(values.values())} FROM {name}"
    if "AUTOINCREMENT" in table.definition:  # Numbers of deleted rows are not given again.
        yield f"DELETE FROM sqlite_sequence WHERE name = '{new}'"
        yield f"UPDATE sqlite_sequence SET name = '{new}' WHERE name = '{name}'"
    yield f"DROP TABLE {name}"
    yield f"ALTER TABLE {new} RENAME TO {name}"
    yield from indexes


def _nothing(column: Part) -> str:
    """Return what a column gets that must not be NULL and has no default."""
    kind, must_be_given, default = column.definition.split(" ", 2)
    return {"TEXT": "''", "BLOB": "x''"}.get(kind, "0") if must_be_given == "1" and not default else ""
