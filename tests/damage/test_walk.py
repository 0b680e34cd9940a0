"""Around bad pages, the walk reads every row that somebody can read who knows its key."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.db.cipher import open_file
from palaver.db.sqlite import connect
from palaver.db.tables import TableShape
from palaver.db.transaction import Row
from palaver.store.damage.walk import DamagedFile

KEY = b"thirty-two bytes for tests only!"
SHAPES = (
    TableShape(name="dense", columns=("no", "body"), key=("no",)),
    TableShape(name="sparse", columns=("id", "body"), key=("id",)),
    TableShape(name="named", columns=("name", "body"), key=("name",)),
    TableShape(name="clustered", columns=("one", "two", "body"), key=("one", "two")),
)
SCHEMA = """
    CREATE TABLE dense (no INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL) STRICT;
    CREATE TABLE sparse (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
    CREATE TABLE named (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
    CREATE TABLE clustered (one TEXT, two INTEGER, body TEXT NOT NULL, PRIMARY KEY (one, two)) STRICT, WITHOUT ROWID;
    CREATE INDEX clustered_by_two ON clustered (two);
"""


def write(path: Path, key: bytes | None = None) -> None:
    dice = random.Random(1)  # noqa: S311
    with closing(connect(path, key)) as db:
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        db.execute("BEGIN")
        for number in range(1, 81):
            body = "x" * dice.choice((50, 300, 3000))
            db.execute("INSERT INTO dense VALUES (?, ?)", (number, body))
            db.execute("INSERT INTO sparse VALUES (?, ?)", ((number // 40 << 24) + number, body))
            db.execute("INSERT INTO named VALUES (?, ?)", (f"name {number}", body))
            db.execute("INSERT INTO clustered VALUES (?, ?, ?)", (f"one {number % 7}", number, body[:300]))
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def overwrite(path: Path, seed: int, pages: int) -> None:
    """Overwrite some pages, but not those of the schema."""
    dice = random.Random(seed)  # noqa: S311
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[16:18], "big") if content.startswith(b"SQLite") else 4096
    for page in dice.sample(range(8, len(content) // size), pages):
        filling = dice.choice((b"\0" * size, b"\xff" * size, b"palaver!" * (size // 8)))
        content[page * size : page * size + size] = filling
    path.write_bytes(content)


@pytest.fixture(scope="module", params=[None, KEY], ids=["plain", "encrypted"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes | None]:
    path = tmp_path_factory.mktemp("walk") / "rows.db"
    write(path, request.param)
    return path, request.param


def open_leniently(path: Path, key: bytes | None) -> sqlite3.Connection:
    db = open_file(path, key)
    db.execute("PRAGMA writable_schema = ON")
    db.text_factory = partial(str, encoding="utf-8", errors="replace")
    return db


def row_by_row(path: Path, key: bytes | None, table: str, rows: dict[object, tuple[object, ...]]) -> Iterator[object]:
    """Yield what can be read by each key. SQLCipher reads nothing more on a connection that has met a bad page."""
    where = "one = ? AND two = ?" if table == "clustered" else "rowid = ?"
    db = open_leniently(path, key)
    for known, row in rows.items():
        try:
            values = row[:2] if table == "clustered" else (known,)
            yield from db.execute(f"SELECT * FROM {table} NOT INDEXED WHERE {where}", values)  # noqa: S608
        except sqlite3.DatabaseError:
            db.close()
            db = open_leniently(path, key)
    db.close()


def all_rows(path: Path, key: bytes | None) -> dict[str, dict[object, tuple[object, ...]]]:
    with closing(open_file(path, key)) as db:
        found = {table: db.execute(f"SELECT rowid, * FROM {table}") for table in ("dense", "sparse", "named")}  # noqa: S608
        rows: dict[str, dict[object, tuple[object, ...]]] = {
            table: {row[0]: tuple(row[1:]) for row in cursor} for table, cursor in found.items()
        }
        rows["clustered"] = {row[:2]: tuple(row) for row in db.execute("SELECT * FROM clustered")}
    return rows


async def walk(path: Path, key: bytes | None) -> tuple[dict[str, list[Row]], set[str]]:
    damaged = DamagedFile(path, key)
    try:
        found = {
            shape.name: [row async for page in damaged.pages(shape, shape.columns) for row in page] for shape in SHAPES
        }
    finally:
        await damaged.close()
    return found, {each.table for each in damaged.unread}


@given(seed=st.integers(0, 1 << 30), pages=st.sampled_from((1, 2, 5, 20)))
async def test_every_row_that_can_be_read_by_its_key_is_found_once(
    store: tuple[Path, bytes | None], seed: int, pages: int
) -> None:
    path, key = store
    whole = path.read_bytes()
    rows = all_rows(path, key)
    try:
        overwrite(path, seed, pages)
        found, unread = await walk(path, key)
        for table, expected in rows.items():
            assert len(found[table]) == len(set(found[table]))
            assert set(found[table]) == set(row_by_row(path, key, table, expected)), table
            assert table in unread or len(found[table]) == len(expected), "what is not there is named"
    finally:
        path.write_bytes(whole)


async def test_values_that_a_column_cannot_hold_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "odd.db"
    with closing(connect(path)) as db:
        db.execute("CREATE TABLE odd (no INTEGER PRIMARY KEY, at INTEGER)")  # not STRICT
        db.execute("INSERT INTO odd VALUES (1, 10), (2, 'ten'), (3, NULL)")
    damaged = DamagedFile(path)
    shape = TableShape(name="odd", columns=("no", "at"), key=("no",))
    assert [row async for page in damaged.pages(shape, shape.columns) for row in page] == [(1, 10), (3, None)]
    assert [each.table for each in damaged.unread] == ["odd"]
    await damaged.close()
