"""Find damage in a store, and repair what can be repaired."""

from collections.abc import AsyncIterator
from datetime import datetime

from palaver.db.schema import refuse_running_gateways
from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Database, Statements, Transaction, transaction
from palaver.model.errors import StoreError
from palaver.model.text import counted
from palaver.model.value import value
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.damage.contents import ENTRIES, INBOX, OUTBOX
from palaver.store.damage.corruption import check_integrity
from palaver.store.damage.files import check_contents, check_references
from palaver.store.damage.health_check import HealthCheck, Transact, listed, or_problem
from palaver.store.damage.journal import check_journal
from palaver.store.damage.lost_log import check_mark
from palaver.store.damage.messages import check_messages
from palaver.store.damage.rows import check_table
from palaver.store.damage.rules import check_rule
from palaver.store.damage.schema import check_schema
from palaver.store.damage.set_aside import list_set_aside
from palaver.store.damage.structure import TABLES
from palaver.store.damage.text import check_text
from palaver.store.epochs import FAILOVER
from palaver.store.status.invariants import INVARIANTS
from palaver.store.store import Store

_MAX_PASSES = 5


async def find_damage(store: Store, blobs: BlobStore | None = None) -> AsyncIterator[HealthCheck]:
    """Yield every check in the order in which it is mended: a later one sees what the mends before it did."""
    schema = await check_schema(store)
    yield schema
    async for check in _check_rest(store, blobs):
        # With another schema, checks fail for that reason alone. They are made again once it is mended.
        if schema.ok or not check.is_refused:
            yield check


async def _check_rest(store: Store, blobs: BlobStore | None) -> AsyncIterator[HealthCheck]:
    database = store.database
    if isinstance(database, SqliteDatabase):
        yield await or_problem("newest rows", check_mark(database))
        yield await check_integrity(database, database.path)
        yield await or_problem("text", check_text(database))
    for table in (ENTRIES, INBOX, OUTBOX, *TABLES):
        yield await or_problem(table.table, check_table(database, table))
    yield await or_problem("transcripts", check_journal(database))
    yield await or_problem("messages", check_messages(database))
    for invariant in INVARIANTS:
        yield await or_problem(invariant.name, check_rule(database, invariant))
    if blobs:
        yield await or_problem("attachments", check_contents(database, blobs))
    yield await or_problem("attachments of entries", check_references(database))
    yield await or_problem("set aside", _check_set_aside(database))
    yield await or_problem("failover", _check_failover(database))


_DISMISS = "once you have read this, run palaver doctor --dismiss: it ends the warning and deletes nothing"


async def _check_failover(database: Database) -> HealthCheck:
    """A database that was promoted or restored can lack what somebody has seen."""
    rows = [row for row in await database.read(list_set_aside()) if row.table == FAILOVER]
    return HealthCheck(
        name=FAILOVER,
        ok=True,
        is_warning=bool(rows),
        found=f"commits can be missing: {listed(f'{row.row} ({row.reason})' for row in rows)}" if rows else "nothing",
        public=counted(len(rows), "row"),
        fix=_DISMISS,
    )


async def _check_set_aside(database: Database) -> HealthCheck:
    """Nothing reads these rows, but somebody may miss them."""
    rows = [row for row in await database.read(list_set_aside()) if row.table != FAILOVER]
    named = listed(f"{row.table} {row.row} ({row.reason})" for row in rows)
    found = f"{counted(len(rows), 'row was', 'rows were')} set aside, changed or missed by a repair: {named}"
    public = counted(len(rows), "row")
    return HealthCheck(
        name="set aside",
        ok=True,
        is_warning=bool(rows),
        found=found if rows else "nothing",
        public=public,
        fix=_DISMISS,
    )


# Repair


@value
class Repair:
    mended: tuple[str, ...]
    """What was mended, in this order."""
    failed: tuple[str, ...] = ()
    """What could not be mended, and why."""


async def repair(store: Store, now: datetime, blobs: BlobStore | None = None) -> Repair:
    """Mend what can be mended, until nothing changes any more. The gateway must not run."""
    mended: dict[str, None] = {}
    failed: dict[str, str] = {}
    for _ in range(_MAX_PASSES):
        is_changed = False
        async for check in find_damage(store, blobs):
            for mend in () if check.ok else check.mends:
                try:
                    await mend(_alone(store.database), now)
                    mended[f"{check.name}: {check.found}"] = None
                    is_changed = True
                    failed.pop(check.name, None)
                except StoreError as error:
                    failed[check.name] = str(error)
        if not is_changed:
            break
    if mended:
        await store.search.rebuild()
    return Repair(mended=tuple(mended), failed=tuple(f"{name}: {error}" for name, error in failed.items()))


def _alone(database: Database) -> Transact:
    """Refuse to mend while a gateway uses the database. A SQLite file is locked instead."""
    if isinstance(database, SqliteDatabase):
        return database.transact
    return lambda work: database.transact(_run_alone(work))


@transaction
def _run_alone(work: Transaction[None]) -> Statements[None]:
    yield from refuse_running_gateways()
    yield from work
