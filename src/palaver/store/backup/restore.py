"""Restore a backup into an empty place, and check one by restoring it elsewhere."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

from palaver.db.cipher import KEYS, open_file
from palaver.db.high_water import measure
from palaver.db.private_files import flush_folder, locked, make_private_folder, naming, open_private
from palaver.db.sqlite import run_statements
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import StoreError
from palaver.model.value import value
from palaver.store.backup.archive import (
    DATABASE,
    FILES,
    MANIFEST,
    BadBackup,
    Manifest,
    Member,
    copy_hashed,
    read_manifest,
    reading,
    time_of,
)
from palaver.store.encryption.contents import PLAIN, PlainContents
from palaver.store.epochs import begin_epoch
from palaver.store.opening import open_store
from palaver.store.status.invariants import violations

if TYPE_CHECKING:
    from palaver.store.encryption.vault import Vault

_STAGE = "restore.part"
_CONFIGURATION = "configuration.yaml"
_ADDED = (_CONFIGURATION, KEYS)
"""Parts besides the database and the files. Others stay in the archive."""
_OURS = (DATABASE, FILES, *_ADDED, _STAGE)
"""What a restore puts into the folder. While the stage is there, it has not ended, so the stage is removed last."""
_INSIDE = f"{FILES}/"
Progress = Callable[[int], None]


def restore(archive: Path, place: Path, key: bytes | None = None, *, progress: Progress = lambda _: None) -> Manifest:
    """Restore into a folder without anything in it. The database appears last, when all else is there and checked.

    If this fails, nothing stays behind. If it is killed, run it again: it begins anew. Your `key` opens an encrypted
    backup.
    """
    make_private_folder(place)
    with locked(place, f"another command restores into {place}: wait until it has ended"):
        return _restore(archive, place, key, progress)


def _restore(archive: Path, place: Path, key: bytes | None, progress: Progress) -> Manifest:
    stage = place / _STAGE
    # Nobody has opened the database: that leaves other files beside it.
    ours = _OURS if stage.exists() else ()
    if others := sorted({each.name for each in place.iterdir()}.difference(ours)):
        raise StoreError(
            f"the folder {place} is not empty ({', '.join(others[:3])}): restore into an empty one, for example with"
            " PALAVER_HOME=~/restored"
        )
    _remove(place, ours)
    try:
        make_private_folder(stage)
        manifest = _extract(archive, stage, key, progress)
        _open_configuration(stage, key)
        _begin_epoch(stage, key)
        _put_in_place(stage, place)
    except BaseException:
        with suppress(OSError):  # the first problem is the one to report; the next restore removes the rest
            _remove(place, _OURS)
        raise
    return manifest


def _begin_epoch(stage: Path, key: bytes | None) -> None:
    """The database that was backed up has gone on giving numbers: those that are given here get other ids."""
    with closing(open_file(stage / DATABASE, database_key(stage, key))) as db:
        run_statements(db, iter(_begin_if_any(datetime.now(UTC))), set())


@transaction
def _begin_if_any(now: datetime) -> Statements[None]:
    """Begin an epoch, unless the database is of a time before epochs: it begins one when it is opened."""
    rows = yield "SELECT 1 FROM meta WHERE name = 'epochs'", ()
    if rows:
        reached = yield from measure()
        yield from begin_epoch(now, after=reached, had=reached)


def _put_in_place(stage: Path, place: Path) -> None:
    for name in (FILES, *_ADDED, DATABASE):
        part = stage / name
        if part.exists():
            flush_folder(part if part.is_dir() else stage)
            part.rename(place / name)
            flush_folder(place)
    shutil.rmtree(stage)


def _remove(place: Path, names: Iterable[str]) -> None:
    for path in (place / name for name in names):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _extract(archive: Path, stage: Path, key: bytes | None, progress: Progress) -> Manifest:
    """Write everything into the stage, and compare it with the manifest."""
    manifest = read_manifest(archive)
    announced = {name: member.size for name, member in manifest.members.items()}
    announced |= {_inside(name): size for name, size in manifest.files.items()}
    found: dict[str, Member] = {}
    with reading(archive) as members:
        for info, content in members:
            if info.name == MANIFEST:
                continue
            target = stage / _checked(archive, info.name)
            if announced.get(info.name) != info.size:  # before anything of it is written
                raise BadBackup(archive, f"{info.name[:100]!r} in it has not the size that its manifest announces")
            found[info.name] = _write(target, content, time_of(info))
            progress(len(found))
    for name, member in manifest.members.items():
        if found.get(name) != member:
            raise BadBackup(archive, f"{name} in it is missing or was changed")
    contents = _contents(archive, stage, key)
    for count, (name, size) in enumerate(manifest.files.items(), 1):
        inside = _inside(name)
        kept = found.get(inside) or _take_from_pool(archive, name, stage / inside)
        if kept is None or kept.size != size or not _is_intact(stage / inside, contents):
            raise BadBackup(archive, f"the file {name[:16]} of it is missing or was changed")
        progress(count)
    return manifest


def _inside(name: str) -> str:
    return f"{_INSIDE}{name[:2]}/{name}"


def _vault(stage: Path, key: bytes) -> "Vault":
    from palaver.store.encryption.vault import open_vault  # noqa: PLC0415 - an extra

    return open_vault(stage / KEYS, key)


def _contents(archive: Path, stage: Path, key: bytes | None) -> PlainContents:
    """Return how the files in the backup are stored."""
    if not (stage / KEYS).exists():
        return PLAIN
    if key is None:
        raise StoreError(f"the backup {archive} is encrypted: set encryption.key_file to the file with its key")
    return _vault(stage, key).current.contents


def _is_intact(path: Path, contents: PlainContents) -> bool:
    with path.open("rb") as content:
        return contents.is_intact(content, path.name)


def _open_configuration(stage: Path, key: bytes | None) -> None:
    configuration = stage / _CONFIGURATION
    if key and (stage / KEYS).exists() and configuration.exists():
        configuration.write_bytes(_vault(stage, key).unseal(configuration.read_bytes()))


def database_key(place: Path, key: bytes | None) -> bytes | None:
    """Return the key of a restored database; None if it is not encrypted."""
    return _vault(place, key).current.database if key and (place / KEYS).exists() else None


def _checked(archive: Path, name: str) -> Path:
    """Return a path inside the stage: an archive can come from anywhere."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or (len(path.parts) > 1 and not name.startswith(_INSIDE)):
        raise BadBackup(archive, f"it has a part that is not of a backup: {name[:100]!r}")
    return path


def _take_from_pool(archive: Path, name: str, target: Path) -> Member | None:
    """Copy a file that is beside the archive."""
    kept = archive.parent / FILES / name[:2] / name
    try:
        with kept.open("rb") as content:
            at = datetime.fromtimestamp(os.fstat(content.fileno()).st_mtime).astimezone()
            return _write(target, content, at)
    except FileNotFoundError:
        return None


def _write(path: Path, content: IO[bytes], at: datetime) -> Member:
    make_private_folder(path.parent)
    handle = open_private(path, os.O_WRONLY | os.O_TRUNC)
    with naming(path), os.fdopen(handle, "wb") as target:
        member = copy_hashed(content, target)
        target.flush()
        os.fsync(target.fileno())
    os.utime(path, (at.timestamp(), at.timestamp()))
    return member


# Check


@value
class Verified:
    """What a test restore found."""

    manifest: Manifest
    conversations: int
    entries: int
    people: int
    problems: tuple[str, ...] = ()
    """What is wrong with the database."""


async def verify(archive: Path, key: bytes | None = None, *, progress: Progress = lambda _: None) -> Verified:
    """Restore into a temporary folder, open the store there and look at what it holds."""
    with tempfile.TemporaryDirectory(prefix="palaver-verify-") as folder:
        place = Path(folder) / "place"
        manifest = restore(archive, place, key, progress=progress)
        data_key = database_key(place, key)
        counts = _count(place / DATABASE, data_key)
        damage = _integrity(place / DATABASE, data_key)
        async with await open_store(str(place / DATABASE), key=data_key) as store:
            broken = await store.read(violations())
    problems = (*damage, *(f"{each.invariant.sentence}: {', '.join(each.examples)}" for each in broken))
    return Verified(manifest=manifest, conversations=counts[0], entries=counts[1], people=counts[2], problems=problems)


def _count(database: Path, key: bytes | None) -> list[int]:
    with closing(open_file(database, key)) as db:
        return [
            db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("sessions", "entries", "people")
        ]


def _integrity(database: Path, key: bytes | None) -> tuple[str, ...]:
    with closing(open_file(database, key)) as db:
        rows = db.execute("PRAGMA integrity_check(5)").fetchall()
    return tuple(f"the database is damaged: {row[0]}" for row in rows if row[0] != "ok")
