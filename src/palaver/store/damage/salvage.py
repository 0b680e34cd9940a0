"""Copy everything readable of a damaged store into a new one, and name what is left behind.

The damaged store stays as it is. Rows are copied around what cannot be read; then the checks of `palaver doctor` say
which of the copied rows are damaged or belong to a row that is missing, and these leave the new store again.
"""

import shutil
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from palaver.db.file_lock import FileLock
from palaver.db.private_files import make_private_folder
from palaver.db.schema import known_migrations
from palaver.db.tables import TableShape, copy_order
from palaver.db.transaction import Row, Statements, transaction
from palaver.model.errors import NewerSchema, StoreError, StoreUnavailable
from palaver.model.value import value
from palaver.store.conversations.attachment_refs import referenced_files
from palaver.store.conversations.blob_store import BlobStore, Condition
from palaver.store.conversations.transcript import write_journal
from palaver.store.damage.invariants import INVARIANTS, Invariant, count_on
from palaver.store.damage.losses import LostRow, list_losses, record_loss
from palaver.store.damage.lost_log import known_mark, skip_numbers
from palaver.store.damage.missing import find_missing_entries, find_missing_messages
from palaver.store.damage.rows import BadRow, TableCheck, read_table
from palaver.store.damage.tables import CHECKED_TABLES
from palaver.store.damage.walk import DamagedFile, DamagedSource, DamagedTables
from palaver.store.opening import open_store, sqlite_path
from palaver.store.records import SEQS
from palaver.store.store import Store
from palaver.store.transfer import Progress, insert_rows, prepare, without_gateways, write_counters, write_meta
from palaver.store.transfer_marks import copied_from, end_copy

_ENGINE_COLUMNS = frozenset({"xid"})
"""That only one of the engines has."""
_MAX_PASSES = 50
"""Each leaves out what belongs to the rows that the pass before left out."""


@value
class Salvaged:
    rows: int
    left: tuple[LostRow, ...]
    """What was left behind, and why."""


class Files(NamedTuple):
    """The files of a store, and where those of the new one go."""

    blobs: BlobStore
    target: Path | None
    """None if the new store has the same folder."""


async def salvage(
    source: str,
    target: str,
    name: str,
    now: datetime,
    *,
    key: bytes | None = None,
    target_key: bytes | None = None,
    files: Files | None = None,
    progress: Progress = lambda _what, _rows: None,
) -> Salvaged:
    """Copy the store of one URL into that of the other, which has to be empty or what is left of the same salvage.

    No gateway can run on either meanwhile. `name` says what the source is.
    """
    label = f"{name}, as far as it can be read"
    async with AsyncExitStack() as stack:
        damaged = await _open_damaged(source, key, stack)
        new = await stack.enter_async_context(await open_store(target, key=target_key, copies=True))
        await stack.enter_async_context(without_gateways(new.database))
        await prepare(new, label, restart=await new.read(copied_from()) == label)
        copy = _Salvage(damaged, new, now, progress)
        await copy.copy_rows()
        await copy.copy_meta()
        await copy.leave_out_damage()
        if files:
            await copy.copy_files(files)
        if path := sqlite_path(source):
            await new.transact(skip_numbers(known_mark(path.resolve(), key), now))
        await copy.record_missing()
        progress("index entries", await new.search.rebuild())
        await new.transact(end_copy(label))
        return Salvaged(rows=copy.count, left=tuple(await new.read(list_losses(copy.known))))


async def _open_damaged(url: str, key: bytes | None, stack: AsyncExitStack) -> DamagedSource:
    """Open a store without changing anything, and keep gateways from starting."""
    path = sqlite_path(url)
    if path:
        stack.enter_context(FileLock(path.resolve()).keep_free())
        damaged: DamagedSource = DamagedFile(path.resolve(), key)
    else:
        from palaver.db.postgres import PostgresDatabase  # noqa: PLC0415 - an extra

        database = PostgresDatabase(url)
        await database.open()
        damaged = DamagedTables(database)
        await stack.enter_async_context(without_gateways(database))
    stack.push_async_callback(damaged.close)
    return damaged


class _Salvage:
    def __init__(self, damaged: DamagedSource, new: Store, now: datetime, progress: Progress) -> None:
        self._damaged, self._new, self._now, self._progress = damaged, new, now, progress
        self._left: list[tuple[str, str, str]] = []
        """Table, row and reason of what was not copied."""
        self.count = 0
        """How many rows were copied."""
        self.known = 0
        """The number of the last loss that the source knew of."""

    # Copy

    async def copy_rows(self) -> None:
        for table in copy_order():
            if table.name != "meta":
                await self._copy_table(table)
        self.known = await self._new.read(_last_loss())
        await self._new.transact(_record(self._left, self._now))
        await self._new.transact(write_counters(await self._damaged.counters(), self._new.database))

    async def _copy_table(self, table: TableShape) -> None:
        found = await self._damaged.columns(table.name)
        columns = [name for name in table.columns if name in found]
        if not columns:
            self._left.append((table.name, "all", "the table is missing"))
            return
        missing = [name for name in table.columns if name not in found]
        self._left += [(table.name, "all", f"the column {name} is missing") for name in missing]
        unknown = [name for name in found if name not in table.columns and name not in _ENGINE_COLUMNS]
        self._left += [(table.name, "all", f"the column {name} is unknown") for name in unknown]
        count = 0
        async for page in self._damaged.pages(table, columns):
            count += await self._write(table, columns, page)
            self._progress(f"copy {table.name}", count)
        self.count += count
        self._left += [each for each in self._damaged.unread if each.table == table.name]

    async def _write(self, table: TableShape, columns: Sequence[str], rows: Sequence[Row]) -> int:
        """Write rows; halve them until those are left behind that the new store refuses."""
        if not rows:
            return 0
        try:
            await self._new.transact(insert_rows(table.name, columns, rows))
        except StoreUnavailable:
            raise
        except StoreError as error:
            if len(rows) > 1:
                middle = len(rows) // 2
                first = await self._write(table, columns, rows[:middle])
                return first + await self._write(table, columns, rows[middle:])
            values = dict(zip(columns, rows[0], strict=True))
            reason, *_ = str(error).splitlines()  # PostgreSQL says more, also what the row holds.
            self._left.append((table.name, " ".join(str(values.get(name)) for name in table.key), reason))
            return 0
        return len(rows)

    async def copy_meta(self) -> None:
        """Copy what the store knows of itself. Counting goes on where the journal says."""
        meta = next(table for table in copy_order() if table.name == "meta")
        rows: list[Row] = []
        if await self._damaged.columns(meta.name):
            rows = [row async for page in self._damaged.pages(meta, ("name", "value")) for row in page]
        version = dict(rows).get("schema", "")
        known = known_migrations()[-1].number
        if version.isdecimal() and int(version) > known:
            raise NewerSchema(int(version), known)
        await self._new.transact(write_meta(rows))
        await self._new.transact(count_on())

    # Leave out

    async def leave_out_damage(self) -> None:
        """Leave out rows that doctor finds damaged, and what belongs to them, until doctor finds nothing."""
        for _ in range(_MAX_PASSES):
            found = False
            for check in CHECKED_TABLES:
                bad = (await read_table(self._new.database, check)).bad
                found = found or bool(bad)
                await self._new.transact(_leave_out_bad(check, bad, self._now))
            for invariant in INVARIANTS:
                found = await self._new.transact(_keep_rule(invariant, self._now)) or found
            if not found:
                return
        raise StoreError("the rows that can be read contradict each other: restore a backup")

    async def record_missing(self) -> None:
        await self._new.transact(_record_missing(self._now))

    # Files

    async def copy_files(self, files: Files) -> None:
        """Copy files that are intact. References to the others are left out, unless another machine can have them."""
        is_here = files.target is not None
        for count, sha256 in enumerate(await self._new.read(referenced_files()), 1):
            condition = await files.blobs.examine(sha256)
            path = files.blobs.place(sha256)
            if condition is Condition.INTACT and path:
                if files.target:
                    _copy_file(path, files.target / path.parent.name / path.name)
            elif is_here or condition is Condition.DAMAGED:
                await self._new.transact(_leave_out_file(sha256, f"its file is {condition.value}", self._now))
            self._progress("files", count)


def _copy_file(path: Path, new: Path) -> None:
    make_private_folder(new.parent)
    part = new.with_name(f"{new.name}.part")
    shutil.copy2(path, part)
    part.replace(new)


@transaction
def _last_loss() -> Statements[int]:
    return (yield "SELECT coalesce(max(no), 0) FROM set_aside", ())[0][0]


@transaction
def _record(left: Sequence[tuple[str, str, str]], now: datetime) -> Statements[None]:
    for table, row, reason in left:
        yield from record_loss(table, row, reason, now)


@transaction
def _leave_out_bad(check: TableCheck, rows: Sequence[BadRow], now: datetime) -> Statements[None]:
    for bad in rows:
        yield from _leave_out(check.table, check.key, bad.row[: len(check.key)], bad.problem.value, now)


def _leave_out(table: str, key: Sequence[str], row: Row, reason: str, now: datetime) -> Statements[None]:
    yield f"DELETE FROM {table} WHERE {' AND '.join(f'{name} = ?' for name in key)}", tuple(row)
    yield from record_loss(table, " ".join(map(str, row)), reason, now, session=_session_of(table, row))


def _session_of(table: str, row: Row) -> int | None:
    match table:
        case "entries":
            return row[0] // SEQS
        case "sessions":
            return row[0]
        case _:
            return None


@transaction
def _keep_rule(invariant: Invariant, now: datetime) -> Statements[bool]:
    """Leave out the rows that break a rule, or what makes them break it; return whether there were any."""
    rows = yield invariant.offenders, ()
    keys = {table.name: table.key for table in copy_order()}
    for row in [tuple(each) for each in rows]:
        if not invariant.settle:
            yield from _leave_out(
                invariant.table, keys[invariant.table], row, f"it breaks a rule: {invariant.sentence}", now
            )
        elif invariant.table:
            yield from record_loss(invariant.table, " ".join(map(str, row)), invariant.action, now)
    for statement in invariant.settle if rows else ():
        yield statement, ()
    return bool(rows)


@transaction
def _record_missing(now: datetime) -> Statements[None]:
    """Record what others tell of and is not there, so that doctor does not name it again."""
    for each in (yield from find_missing_entries()):
        yield from record_loss(each.table, each.row, "it is missing", now, session=each.session)
        session = each.session or int(each.row)
        yield from write_journal("delete", session, each.seq or 1, each.seq or 1)
    for each in (yield from find_missing_messages()):
        yield from record_loss(each.table, each.row, "it is missing", now, session=each.session)


@transaction
def _leave_out_file(sha256: str, reason: str, now: datetime) -> Statements[None]:
    yield "DELETE FROM attachments WHERE sha256 = ?", (sha256,)
    yield from record_loss("attachments", sha256, reason, now)
