"""Removing the traces of deleted rows from the database: owed until it succeeds."""

from palaver.db.transaction import Database, Notify, Statements, transaction
from palaver.store.meta import read_meta

SCRUBS = "scrubs"
"""The topic that announces deleted rows."""
_OWED = "scrub owed"


@transaction
def owe_scrub() -> Statements[None]:
    """Have the traces of what this transaction deletes removed."""
    yield (
        "INSERT INTO meta (name, value) VALUES (?, '1')"
        " ON CONFLICT (name) DO UPDATE SET value = CAST(CAST(meta.value AS BIGINT) + 1 AS TEXT)",
        (_OWED,),
    )
    yield Notify(SCRUBS)


@transaction
def owed_scrubs() -> Statements[str | None]:
    """Return how many deletions left traces; None if there are none."""
    return (yield from read_meta(_OWED))


async def scrub(database: Database) -> None:
    """Remove the traces. Raises StoreError; then they are still owed."""
    owed = await database.transact(owed_scrubs())
    await database.scrub()
    if owed is not None:
        await database.transact(_settle(owed))


@transaction
def _settle(owed: str) -> Statements[None]:
    # What was deleted meanwhile is owed another time.
    yield "DELETE FROM meta WHERE name = ? AND value = ?", (_OWED, owed)
