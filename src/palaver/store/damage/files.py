"""Compare the files of entries, messages and sends with their hashes, and with the references that keep them."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial

from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Database, Row, Statements, transaction
from palaver.model.attachment import ID_LENGTH
from palaver.model.errors import StoreError
from palaver.model.text import counted
from palaver.store.conversations.attachment_refs import add_refs, referenced_files
from palaver.store.conversations.blob_store import SET_ASIDE, BlobStore, Condition
from palaver.store.damage.health_check import HealthCheck, Mend, Transact, in_transaction, listed, repair_step
from palaver.store.records import entries_of, file_digests

_PAGE_ROWS = 1000


async def check_contents(database: Database, blobs: BlobStore) -> HealthCheck:
    """Examine every file. A missing one keeps its references: it may be in a backup, or on another machine."""
    names = await database.read(referenced_files())
    conditions = {name: await blobs.examine(name) for name in names}
    fine = {Condition.INTACT, Condition.SET_ASIDE}
    broken = [name for name, condition in conditions.items() if condition not in fine]
    counts = Counter(conditions.values())
    if not broken:
        orphans = len(await blobs.find(lambda name: name not in conditions))
        aside = counts[Condition.SET_ASIDE]
        found = f"{counted(counts[Condition.INTACT], 'file')}, complete and unchanged"
        found += f"; {counted(aside, 'damaged one is', 'damaged ones are')} in files/{SET_ASIDE}" if aside else ""
        found += f"; {counted(orphans, 'other is', 'others are')} not used and removed after a while" if orphans else ""
        return HealthCheck(name="attachments", ok=True, found=found, is_warning=bool(aside), public=found, fix=_RESTORE)
    bad = [name for name, condition in conditions.items() if condition is Condition.DAMAGED]
    is_only_missing = counts[Condition.MISSING] == len(broken)
    # The machines that share a database in PostgreSQL have their own files.
    is_elsewhere = is_only_missing and not isinstance(database, SqliteDatabase)
    unreadable = f", {counts[Condition.UNREADABLE]} cannot be read" if counts[Condition.UNREADABLE] else ""
    such = listed(name[:ID_LENGTH] for name in broken)
    place = " on this machine" if is_elsewhere else ""
    public = f"{counts[Condition.MISSING]} missing{place}, {len(bad)} damaged{unreadable}"
    return HealthCheck(
        name="attachments",
        ok=is_elsewhere,
        is_warning=is_elsewhere,
        found=f"{public}: {such}",
        public=public,
        fix=f"{_RESTORE}; if you have neither, {repair_step(f'moves damaged ones to files/{SET_ASIDE}')}"
        if bad
        else f"let this user read the files; {_RESTORE}"
        if unreadable
        else _RESTORE,
        mends=tuple(_set_aside(blobs, name) for name in bad),
    )


_RESTORE = (
    "put the folder files of the data directory back, for example from a backup, or import an export with: palaver "
    "sessions import"
)


def _set_aside(blobs: BlobStore, name: str) -> Mend:
    async def mend(_: Transact, _now: datetime) -> None:
        try:
            await blobs.set_aside(name)
        except OSError as error:
            raise StoreError(f"a file could not be moved: {error}") from error

    return mend


async def check_references(database: Database) -> HealthCheck:
    """Find files of entries that nothing keeps: they would be removed as unused."""
    lost: dict[int, Sequence[str]] = {}
    after = -1
    while page := await database.read(_page(after)):
        rows, kept = page
        after = rows[-1][0]
        for row, entry in zip(rows, entries_of(rows), strict=True):
            names = [name for name in file_digests(entry.files) if name not in kept.get(row[0], ())]
            if names:
                lost[row[0]] = names
    return HealthCheck(
        name="attachments of entries",
        ok=not lost,
        found=f"{counted(len(lost), 'entry has a file', 'entries have files')} that nothing keeps: "
        f"{listed(name[:ID_LENGTH] for names in lost.values() for name in names)}"
        if lost
        else "all are kept",
        public=f"not kept: {len(lost)}",
        fix=repair_step("keeps them again"),
        mends=(in_transaction(partial(_keep, lost)),) if lost else (),
    )


@transaction
def _page(after: int) -> Statements[tuple[list[Row], Mapping[int, Collection[str]]] | None]:
    rows = yield f"SELECT id, body FROM entries WHERE id > ? ORDER BY id LIMIT {_PAGE_ROWS}", (after,)
    if not rows:
        return None
    held = yield (
        "SELECT holder, sha256 FROM attachments WHERE kind = 'entry' AND holder > ? AND holder <= ?",
        (after, rows[-1][0]),
    )
    kept: dict[int, set[str]] = {}
    for holder, name in held:
        kept.setdefault(holder, set()).add(name)
    return rows, kept


@transaction
def _keep(lost: Mapping[int, Sequence[str]], _: datetime) -> Statements[None]:
    yield from add_refs("entry", lost)
