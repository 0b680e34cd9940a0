"""Compare the files of entries, messages and sends with their hashes, and with the references that keep them."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Database, Row, Statements, transaction
from palaver.model.attachment import ID_LENGTH
from palaver.model.text import counted
from palaver.store.conversations.attachment_refs import referenced_files
from palaver.store.conversations.blob_store import SET_ASIDE, BlobStore, Condition
from palaver.store.damage.health_check import RESTORE_OR_SALVAGE, HealthCheck, listed
from palaver.store.damage.losses import known_losses
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
        fix=f"let this user read the files; {_RESTORE}" if unreadable else _RESTORE,
    )


_RESTORE = (
    "put the folder files of the data directory back, for example from a backup, or import an export with: palaver "
    "sessions import; to go on without them, run palaver doctor --salvage NEW_STORE"
)


async def check_references(database: Database) -> HealthCheck:
    """Find files of entries that nothing keeps: they would be removed as unused."""
    lost: dict[int, Sequence[str]] = {}
    known = await database.read(known_losses("attachments"))
    after = -1
    while page := await database.read(_page(after)):
        rows, kept = page
        after = rows[-1][0]
        for row, entry in zip(rows, entries_of(rows), strict=True):
            names = [
                name for name in file_digests(entry.files) if name not in kept.get(row[0], ()) and name not in known
            ]
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
        fix=RESTORE_OR_SALVAGE,
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
