"""Read every row of a damaged database that can be read: around bad pages, without an index, and without writing."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

from palaver.db.sqlite import connect
from palaver.db.tables import TableShape
from palaver.db.transaction import Database, Row, Statements, Value, transaction
from palaver.model.errors import StoreError, StoreUnavailable
from palaver.store.damage.raw_pages import row_keys, row_numbers
from palaver.store.transfer import read_counters

_ROWS_PER_PAGE = 1000


class Unread(NamedTuple):
    """Rows that cannot be read."""

    table: str
    rows: str
    reason: str


class DamagedSource(Protocol):
    """A database of which some rows cannot be read."""

    unread: list[Unread]

    async def columns(self, table: str) -> tuple[str, ...]:
        """Return the columns of a table; none if it is not there."""
        ...

    def pages(self, table: TableShape, columns: Sequence[str]) -> AsyncIterator[list[Row]]:
        """Yield the rows that can be read, each once, and note the others in `unread`."""
        ...

    async def counters(self) -> dict[str, int]:
        """Return the last number that was given in each table, as far as it can be read."""
        ...

    async def close(self) -> None: ...


# SQLite

_Gap = tuple[int, int]
"""The first and the last of the numbers in which no row was read yet."""
_FIRST, _LAST = -(1 << 62), 1 << 62
_UNREAD = "its page cannot be read"
_UNREADABLE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR})


class DamagedFile:
    """A SQLite file."""

    def __init__(self, path: Path, key: bytes | None = None) -> None:
        self.unread: list[Unread] = []
        self._path, self._key = path, key
        try:
            self._db = self._connect()
            found = self._db.execute("PRAGMA main.table_list").fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"nothing in the database {path} can be read: {error}. Restore a backup") from error
        self._is_clustered = {row[1]: bool(row[4]) for row in found if row[2] == "table"}

    def _connect(self) -> sqlite3.Connection:
        db = connect(self._path, self._key, read_only=True)
        db.text_factory = _decode
        db.execute("PRAGMA writable_schema = ON")  # A table whose definition is damaged costs no other.
        return db

    async def columns(self, table: str) -> tuple[str, ...]:
        return tuple(row[1] for row in self._db.execute(f"PRAGMA table_info({table})"))

    async def pages(self, table: TableShape, columns: Sequence[str]) -> AsyncIterator[list[Row]]:
        read = self._by_key if self._is_clustered[table.name] else self._by_rowid
        rows = read(table, columns)
        kinds = {row[1]: _KINDS[row[2]] for row in self._db.execute(f"PRAGMA table_info({table.name})")}
        expected = [kinds[name] for name in columns]
        while page := await asyncio.to_thread(lambda: list(islice(rows, _ROWS_PER_PAGE))):
            typed = [row for row in page if _is_typed(row, expected)]
            if len(typed) < len(page):
                self.unread.append(Unread(table.name, "some", "their values have other types"))
            yield typed

    async def counters(self) -> dict[str, int]:
        try:
            return dict(self._rows("SELECT name, seq FROM sqlite_sequence"))
        except _Stopped:
            return {}

    async def close(self) -> None:
        self._db.close()

    def _rows(self, sql: str, values: Sequence[Value] = ()) -> Iterator[Row]:
        """Yield rows; raise _Stopped at one that cannot be read."""
        try:
            yield from self._db.execute(sql, values)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in _UNREADABLE:
                raise
            if self._key is not None:  # A connection of SQLCipher that has met a bad page reads nothing more.
                self._db.close()
                self._db = self._connect()
            raise _Stopped(str(error)) from error

    # Tables whose rows have numbers

    def _by_rowid(self, table: TableShape, columns: Sequence[str]) -> Iterator[Row]:
        select = f"SELECT rowid, {', '.join(columns)} FROM {table.name} NOT INDEXED"
        between = "WHERE rowid BETWEEN ? AND ?"
        gap = yield from self._read_gap(f"{select} {between}", (_FIRST, _LAST))
        if gap is None:
            return
        low, high = gap
        unread: list[_Gap] = []
        found = {number for number in row_numbers(self._path, self._key) if low <= number <= high}
        for number in (*sorted(found), high + 1):
            rest = yield from self._read_gap(f"{select} {between}", (low, number - 1))
            unread += [rest] if rest else []
            if number <= high and not (yield from self._read_one(f"{select} WHERE rowid = ?", (number,), 1)):
                unread.append((number, number))
            low = number + 1
        self.unread += [Unread(table.name, _named(gap), _UNREAD) for gap in _joined(unread)]

    def _read_gap(self, select: str, gap: _Gap) -> Generator[Row, None, _Gap | None]:
        """Yield rows from both ends up to what cannot be read; return the gap that is left between them."""
        low, high = gap
        if low > high:
            return None
        try:
            for number, *row in self._rows(f"{select} ORDER BY rowid", (low, high)):
                if low <= number <= high:  # else its number is damaged
                    low = number + 1
                    yield tuple(row)
        except _Stopped:
            pass
        else:
            return None
        try:
            for number, *row in self._rows(f"{select} ORDER BY rowid DESC", (low, high)):
                if low <= number <= high:
                    high = number - 1
                    yield tuple(row)
        except _Stopped:
            return (low, high) if low <= high else None
        return None

    def _read_one(self, select: str, key: Row, width: int) -> Generator[Row, None, bool]:
        """Yield the row with a key, if there is one; return whether that can be read.

        Not even the row before one that cannot be read is returned where several are asked for.
        """
        try:
            for row in self._rows(select, key):
                yield row[width:]
        except _Stopped:
            return False
        return True

    # Tables whose rows are in the order of their key

    def _by_key(self, table: TableShape, columns: Sequence[str]) -> Iterator[Row]:
        key, width = ", ".join(table.key), len(table.key)
        select = f"SELECT {key}, {', '.join(columns)} FROM {table.name} NOT INDEXED"
        seen: set[Row] = set()
        try:
            for row in self._rows(f"{select} ORDER BY {key}"):
                seen.add(row[:width])
                yield row[width:]
        except _Stopped:
            pass
        else:
            return
        rest = {each for each in row_keys(self._path, self._key, width) if len(each) == width} - seen
        where = " AND ".join(f"{name} = ?" for name in table.key)
        for one in sorted(rest, key=repr):
            yield from self._read_one(f"{select} WHERE {where}", one, width)
        self.unread.append(Unread(table.name, "some", _UNREAD))


_KINDS: dict[str, type] = {"INTEGER": int, "TEXT": str, "BLOB": bytes}


def _is_typed(row: Row, kinds: Sequence[type]) -> bool:
    """A damaged page can hold values that SQLite would not have stored there."""
    return all(value is None or type(value) is kind for value, kind in zip(row, kinds, strict=True))


class _Stopped(Exception):
    """What comes next cannot be read."""


def _decode(text: bytes) -> str:
    """Return text that is not UTF-8 as the store shows it."""
    return text.decode(errors="replace")


def _joined(gaps: Sequence[_Gap]) -> Iterator[_Gap]:
    """Join gaps that touch each other."""
    joined: list[_Gap] = []
    for low, high in sorted(gaps):
        if joined and joined[-1][1] + 1 >= low:
            joined[-1] = joined[-1][0], high
        else:
            joined.append((low, high))
    return iter(joined)


def _named(gap: _Gap) -> str:
    low, high = gap
    if low == high:
        return str(low)
    if low == _FIRST:
        return "all" if high == _LAST else f"up to {high}"
    return f"{low} and above" if high == _LAST else f"{low} to {high}"


# PostgreSQL

_BLOCKS_PER_PAGE = 16
_MAX_ROWS_OF_BLOCK = 291
"""That fit into a block of PostgreSQL."""


class DamagedTables:
    """A database in PostgreSQL, read block by block."""

    def __init__(self, database: Database) -> None:
        self.unread: list[Unread] = []
        self._database = database

    async def columns(self, table: str) -> tuple[str, ...]:
        return await self._database.read(_columns_of(table))

    async def pages(self, table: TableShape, columns: Sequence[str]) -> AsyncIterator[list[Row]]:
        select = f"SELECT {', '.join(columns)} FROM {table.name}"
        first, count = 0, await self._database.read(_count_blocks(table.name))
        while first < count:
            end = min(first + _BLOCKS_PER_PAGE, count)
            async for page in self._blocks(table.name, select, first, end):
                yield page
            first = end

    async def counters(self) -> dict[str, int]:
        return await self._database.read(read_counters())

    async def close(self) -> None:
        await self._database.close()

    async def _blocks(self, table: str, select: str, first: int, end: int) -> AsyncIterator[list[Row]]:
        try:
            yield await self._database.read(_read_blocks(select, first, end))
        except StoreUnavailable:
            raise
        except StoreError as error:
            if end - first > 1:
                middle = (first + end) // 2
                for part in ((first, middle), (middle, end)):
                    async for page in self._blocks(table, select, *part):
                        yield page
                return
            async for page in self._rows_of_block(table, select, first, str(error)):
                yield page

    async def _rows_of_block(self, table: str, select: str, block: int, reason: str) -> AsyncIterator[list[Row]]:
        """Yield the rows of a block one by one: the block can be fine, and a long value elsewhere damaged."""
        unread = 0
        for number in range(1, _MAX_ROWS_OF_BLOCK + 1):
            try:
                yield await self._database.read(_read_row(select, block, number))
            except StoreUnavailable:
                raise
            except StoreError:
                unread += 1
        rows = f"block {block}" if unread == _MAX_ROWS_OF_BLOCK else f"{unread} of block {block}"
        self.unread.append(Unread(table, rows, reason))


@transaction
def _columns_of(table: str) -> Statements[tuple[str, ...]]:
    rows = yield (
        "SELECT column_name::text FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = ? ORDER BY ordinal_position",
        (table,),
    )
    return tuple(row[0] for row in rows)


@transaction
def _count_blocks(table: str) -> Statements[int]:
    rows = yield (
        "SELECT pg_relation_size(to_regclass(?)::oid) / CAST(current_setting('block_size') AS BIGINT)",
        (table,),
    )
    return rows[0][0]


@transaction
def _read_blocks(select: str, first: int, end: int) -> Statements[list[Row]]:
    yield "SET LOCAL enable_seqscan = off", ()  # It would read all blocks.
    rows = yield f"{select} WHERE ctid >= '({first},0)'::tid AND ctid < '({end},0)'::tid", ()
    return [tuple(row) for row in rows]


@transaction
def _read_row(select: str, block: int, number: int) -> Statements[list[Row]]:
    rows = yield f"{select} WHERE ctid = '({block},{number})'::tid", ()
    return [tuple(row) for row in rows]
