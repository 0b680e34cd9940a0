"""Copy a whole store to an empty one on the other database, compare them row by row, and continue after a crash."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, cast

from palaver.db.file_lock import FileLock
from palaver.db.sqlite import SqliteDatabase
from palaver.db.tables import TableShape, copy_order
from palaver.db.transaction import Database, Row, Statements, Transaction, Value, transaction
from palaver.model.errors import StoreError
from palaver.model.value import value
from palaver.store.epochs import SERVER
from palaver.store.meta import SET_META
from palaver.store.opening import open_store
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from palaver.store.transfer_marks import (
    COPY_OF,
    begin_copy,
    clear_copy,
    complete_copy_of,
    copied_from,
    end_copy,
    is_mark,
    position_in,
    record_position,
)

if TYPE_CHECKING:
    from palaver.db.postgres import PostgresDatabase  # an extra

_ROWS_PER_STEP = 1000
_OWN_META = frozenset({"schema", "starts", SERVER, COPY_OF})
"""What each database has for itself."""
Progress = Callable[[str, int], None]
"""Called with what is being done, and how many rows of it are."""


@value
class Copied:
    tables: int
    rows: int


class Differs(StoreError):
    """The copy is not what the source is."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the copy differs from its source: {what}. The source may have changed meanwhile: copy it anew with"
            " --restart"
        )


class CopyInUse(StoreError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"the target is a complete copy of {name}, and one of them was used since then. Use the target as it is;"
            " to copy again, use an empty database"
        )


async def transfer(
    source: str,
    target: str,
    name: str,
    *,
    key: bytes | None = None,
    restart: bool = False,
    progress: Progress = lambda _what, _rows: None,
) -> Copied:
    """Copy the store of one URL to that of the other, which has to be empty or what is left of the same copy.

    The source stays as it is. No gateway can run on either meanwhile. `name` says what the source is.
    """
    async with (
        await open_store(source, key=key) as old,
        await open_store(target, key=key, copies=True) as new,
        without_gateways(old.database),
        without_gateways(new.database),
    ):
        copy = _Copy(old.database, new.database, progress)
        if restart or not await _is_complete(new, name):
            await prepare(new, name, restart=restart)
            for table in copy.tables:
                await copy.copy(table)
            await copy.copy_counters()
            await copy.compare_all()
            await _compare_invariants(old, new)
            progress("index entries", await new.search.rebuild())
            await copy.finish(name)
        else:  # the command before was killed after its end, before it could say so
            try:
                await copy.compare_all()
            except Differs as differs:
                raise CopyInUse(name) from differs
        return Copied(tables=len(copy.tables), rows=await copy.count())


@asynccontextmanager
async def without_gateways(database: Database) -> AsyncGenerator[None]:
    """Keep gateways from starting; raise StoreInUse if one runs."""
    async with AsyncExitStack() as stack:
        if isinstance(database, SqliteDatabase):
            stack.enter_context(FileLock(database.path).keep_free())
        else:
            await stack.enter_async_context(cast("PostgresDatabase", database).keep_free())
        yield


async def _is_complete(new: Store, name: str) -> bool:
    return await new.read(copied_from()) is None and await new.read(complete_copy_of()) == name


async def prepare(new: Store, name: str, *, restart: bool) -> None:
    """Mark the target as an incomplete copy. Raise StoreError if it holds anything else."""
    before = await new.read(copied_from())
    if before is None:
        for table in copy_order():
            if table.name != "meta" and await new.read(_count(table)):
                raise StoreError(
                    f"the target is not empty: it has rows in {table.name}. If you copied to it before, that copy is"
                    " complete; otherwise use an empty database"
                )
    elif restart:
        await new.transact(_clear())
    elif before != name:
        raise StoreError(f"the target is an incomplete copy of {before}: finish that one, or copy anew with --restart")
    await new.transact(begin_copy(name))


@transaction
def _count(table: TableShape) -> Statements[int]:
    rows = yield f"SELECT count(*) FROM {table.name}", ()
    return rows[0][0]


@transaction
def _clear() -> Statements[None]:
    for table in reversed(copy_order()):
        if table.name != "meta":
            yield f"DELETE FROM {table.name}", ()
    yield from clear_copy()


async def _compare_invariants(old: Store, new: Store) -> None:
    before, after = await old.read(violations()), await new.read(violations())
    known = {(each.invariant.sentence, each.times) for each in before}
    broken = [each for each in after if (each.invariant.sentence, each.times) not in known]
    if broken:
        raise Differs(broken[0].invariant.sentence)


class _Copy:
    def __init__(self, old: Database, new: Database, progress: Progress) -> None:
        self._old, self._new, self._progress = old, new, progress
        self.tables = [table for table in copy_order() if table.name != "meta"]

    async def copy(self, table: TableShape) -> None:
        """Copy what is missing; each step records how far it is in the same transaction."""
        after, copied = await self._new.read(position_in(table.name)), 0
        while rows := await self._old.read(_page(table, after)):
            after = _key_of(table, rows[-1])
            await self._new.transact(_write(table, rows, after))
            copied += len(rows)
            self._progress(f"copy {table.name}", copied)

    async def compare_all(self) -> None:
        for table in self.tables:
            await self.compare(table)

    async def compare(self, table: TableShape) -> None:
        """Compare every row, and their number."""
        after, seen = None, 0
        while rows := await self._old.read(_page(table, after)):
            after = _key_of(table, rows[-1])
            found = await self._new.read(_find(table, [_key_of(table, row) for row in rows]))
            for row in rows:
                if found.get(_key_of(table, row)) != row:
                    raise Differs(f"{table.name} {_key_of(table, row)}")
            seen += len(rows)
            self._progress(f"compare {table.name}", seen)
        if seen != await self._new.read(_count(table)):
            raise Differs(f"{table.name} has rows that the source has not")

    async def count(self) -> int:
        return sum([await self._new.read(_count(table)) for table in self.tables])

    async def copy_counters(self) -> None:
        """Give no number twice, not even that of a row that was deleted."""
        await self._new.transact(write_counters(await self._old.read(read_counters()), self._new))

    async def finish(self, name: str) -> None:
        """Copy what the store knows of itself, and remove the marks: it is complete."""
        await self._new.transact(_finish(await self._old.read(_read_meta()), name))


@transaction
def _page(table: TableShape, after: tuple[Value, ...] | None) -> Statements[list[Row]]:
    key = ", ".join(table.key)
    where = f"WHERE ({key}) > ({', '.join('?' * len(table.key))})" if after else ""
    rows = yield (
        f"SELECT {', '.join(table.columns)} FROM {table.name} {where} ORDER BY {key} LIMIT {_ROWS_PER_STEP}",
        after or (),
    )
    return [tuple(row) for row in rows]


def _key_of(table: TableShape, row: Row) -> tuple[Value, ...]:
    return tuple(row[table.columns.index(name)] for name in table.key)


@transaction
def _write(table: TableShape, rows: Sequence[Row], last: tuple[Value, ...]) -> Statements[None]:
    yield from insert_rows(table.name, table.columns, rows)
    yield from record_position(table.name, last)


@transaction
def insert_rows(table: str, columns: Sequence[str], rows: Sequence[Row]) -> Statements[None]:
    places = ", ".join("?" * len(columns))
    yield f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", list(rows)


@transaction
def _find(table: TableShape, keys: Sequence[tuple[Value, ...]]) -> Statements[dict[tuple[Value, ...], Row]]:
    one = f"({', '.join('?' * len(table.key))})"
    rows = yield (
        f"SELECT {', '.join(table.columns)} FROM {table.name} WHERE ({', '.join(table.key)})"
        f" IN (/*pg --*/ VALUES\n {', '.join([one] * len(keys))})",
        tuple(part for key in keys for part in key),
    )
    return {_key_of(table, tuple(row)): tuple(row) for row in rows}


# Numbers that the databases give

_COUNTERS = (
    "SELECT /*pg c.table_name::text, pg_sequence_last_value(pg_get_serial_sequence(quote_ident(c.table_name),"
    " c.column_name)::regclass) FROM information_schema.columns c WHERE c.table_schema = current_schema()"
    " AND c.is_identity = 'YES' --*/ name, seq FROM sqlite_sequence\n"
)


@transaction
def read_counters() -> Statements[dict[str, int]]:
    """Return the last number that was given in each table."""
    return {row[0]: row[1] for row in (yield _COUNTERS, ()) if row[1] is not None}


def write_counters(given: Mapping[str, int], new: Database) -> Transaction[None]:
    """Go on after the last number that was given in each table."""
    return _write_to_sqlite(given) if isinstance(new, SqliteDatabase) else _write_to_postgres(given)


@transaction
def _write_to_sqlite(given: Mapping[str, int]) -> Statements[None]:
    for name, last in given.items():
        yield "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (last, name)
        yield (
            "INSERT INTO sqlite_sequence (name, seq) SELECT name, ? FROM sqlite_master WHERE name = ?"
            " AND sql LIKE '%AUTOINCREMENT%' AND NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?)",
            (last, name, name),
        )


@transaction
def _write_to_postgres(given: Mapping[str, int]) -> Statements[None]:
    """Continue after the rows that were copied, too: PostgreSQL did not number these."""
    counted = {row[0] for row in (yield _COUNTERS, ())}
    for table in [each for each in copy_order() if each.name in counted]:
        rows = yield f"SELECT coalesce(max({table.key[0]}), 0) FROM {table.name}", ()
        if last := max(given.get(table.name, 0), rows[0][0]):
            yield "SELECT setval(pg_get_serial_sequence(?, ?), ?)", (table.name, table.key[0], last)


@transaction
def _read_meta() -> Statements[list[Row]]:
    rows = yield "SELECT name, value FROM meta", ()
    return [tuple(row) for row in rows]


@transaction
def write_meta(rows: Sequence[Row]) -> Statements[None]:
    """Write what a store knows of itself, without what each database has for itself."""
    yield SET_META, [row for row in rows if row[0] not in _OWN_META and not is_mark(row[0])]


@transaction
def _finish(rows: Sequence[Row], name: str) -> Statements[None]:
    yield from write_meta(rows)
    yield from end_copy(name)
