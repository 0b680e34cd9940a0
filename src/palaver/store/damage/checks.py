"""Find damage in a store."""

from collections.abc import AsyncIterator

from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Database
from palaver.model.text import counted
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.damage.corruption import check_integrity
from palaver.store.damage.files import check_contents, check_references
from palaver.store.damage.health_check import HealthCheck, listed, or_problem
from palaver.store.damage.invariants import INVARIANTS, check_rule, check_sums
from palaver.store.damage.losses import list_losses
from palaver.store.damage.lost_log import check_mark
from palaver.store.damage.missing import check_messages, check_transcripts
from palaver.store.damage.rows import check_table
from palaver.store.damage.schema import check_schema
from palaver.store.damage.tables import CHECKED_TABLES
from palaver.store.damage.text import check_text
from palaver.store.epochs import FAILOVER
from palaver.store.store import Store

_DISMISS = "once you have read this, run palaver doctor --dismiss: it ends the warning and deletes nothing"


async def find_damage(store: Store, blobs: BlobStore | None = None) -> AsyncIterator[HealthCheck]:
    """Yield every check. Files are read if `blobs` has them."""
    schema = await check_schema(store)
    yield schema
    async for check in _check_rest(store, blobs):
        # With another schema, checks fail for that reason alone.
        if schema.ok or not check.is_refused:
            yield check


async def _check_rest(store: Store, blobs: BlobStore | None) -> AsyncIterator[HealthCheck]:
    database = store.database
    if isinstance(database, SqliteDatabase):
        yield await or_problem("newest rows", check_mark(database))
        yield await check_integrity(database, database.path)
        yield await or_problem("text", check_text(database))
    for table in CHECKED_TABLES:
        yield await or_problem(table.table, check_table(database, table))
    yield await or_problem("transcripts", check_transcripts(database))
    yield await or_problem("messages", check_messages(database))
    for invariant in INVARIANTS:
        yield await or_problem(invariant.name, check_rule(database, invariant))
    yield await or_problem("usage", check_sums(database))
    if blobs:
        yield await or_problem("attachments", check_contents(database, blobs))
    yield await or_problem("attachments of entries", check_references(database))
    yield await or_problem("left behind", _check_losses(database))
    yield await or_problem(FAILOVER, _check_failover(database))


async def _check_failover(database: Database) -> HealthCheck:
    """A database that was promoted or restored can lack what somebody has seen."""
    rows = [row for row in await database.read(list_losses()) if row.table == FAILOVER]
    return HealthCheck(
        name=FAILOVER,
        ok=True,
        is_warning=bool(rows),
        found=f"commits can be missing: {listed(f'{row.row} ({row.reason})' for row in rows)}" if rows else "nothing",
        public=counted(len(rows), "row"),
        fix=_DISMISS,
    )


async def _check_losses(database: Database) -> HealthCheck:
    """The store goes on without these rows, but somebody may miss them."""
    rows = [row for row in await database.read(list_losses()) if row.table != FAILOVER]
    named = listed(f"{row.table} {row.row} ({row.reason})" for row in rows)
    return HealthCheck(
        name="left behind",
        ok=True,
        is_warning=bool(rows),
        found=f"a salvage left {counted(len(rows), 'row')} behind or changed: {named}" if rows else "nothing",
        public=counted(len(rows), "row"),
        fix=_DISMISS,
    )
