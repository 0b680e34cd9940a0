"""Make backups in a folder: consistent, incremental for files, and only as many as are to be kept."""

import io
import os
import re
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from palaver import __version__
from palaver.db.cipher import KEYS, open_file
from palaver.db.file_lock import is_disk_full
from palaver.db.private_files import appearing, flush_folder, locked, make_private_folder, open_private
from palaver.db.sqlite import connect
from palaver.model.errors import StoreError, StoreUnavailable
from palaver.model.value import value
from palaver.store.backup.archive import (
    DATABASE,
    FILES,
    ArchiveWriter,
    BadBackup,
    Manifest,
    copy_hashed,
    read_manifest,
)
from palaver.store.conversations.attachment_refs import REFERENCED_FILES
from palaver.store.encryption.contents import PLAIN, PlainContents
from palaver.store.records import instant

if TYPE_CHECKING:
    from palaver.store.encryption.vault import Vault

_NAME = re.compile(r"palaver-([0-9]{8}T[0-9]{6})Z(?:-([0-9]{1,9}))?\.tar", re.ASCII)
_TIME = "%Y%m%dT%H%M%S"
Progress = Callable[[int], None]


class _NotIntact(Exception):
    """A file is not what its name says."""


@value
class Backup:
    """An archive in the folder."""

    path: Path
    at: datetime
    size: int
    number: int = 1
    """Of those made within the same second."""


@value
class Backups:
    """Backups of one SQLite database and its files."""

    database: Path
    files: Path
    """The folder of attachments."""
    folder: Path
    """Where the archives go."""
    vault: "Vault | None" = None
    """The keys of an encrypted store, whose backups are as encrypted as it is."""

    @property
    def _contents(self) -> PlainContents:
        return self.vault.current.contents if self.vault else PLAIN

    @property
    def _key(self) -> bytes | None:
        return self.vault.current.database if self.vault else None

    def list_all(self) -> list[Backup]:
        """Return the complete archives, the newest first."""
        found = [(path, _NAME.fullmatch(path.name)) for path in self.folder.glob("palaver-*.tar")]
        backups = [
            Backup(
                path=path,
                at=datetime.strptime(name[1], _TIME).replace(tzinfo=UTC),
                size=path.stat().st_size,
                number=int(name[2] or 1),
            )
            for path, name in found
            if name
        ]
        return sorted(backups, key=lambda backup: (backup.at, backup.number), reverse=True)

    def make(
        self, extra: Mapping[str, bytes], now: datetime, *, keep: int | None = None, progress: Progress = lambda _: None
    ) -> tuple[Backup, Manifest]:
        """Add an archive; files that the folder has already are not copied again. Keep the newest `keep` archives."""
        with self._alone():
            at = now.astimezone(UTC).replace(microsecond=0)
            number = 1 + max((each.number for each in self.list_all() if each.at == at), default=0)
            path = self.folder / f"palaver-{at:{_TIME}}Z{f'-{number}' if number > 1 else ''}.tar"
            pool = self.folder / FILES
            manifest = self._write(path, extra, now, lambda _, name: self._pool(pool, name), progress)
            if keep is not None:
                self._prune(keep, now)
        return Backup(path=path, at=at, size=path.stat().st_size, number=number), manifest

    def make_single(
        self, path: Path, extra: Mapping[str, bytes], now: datetime, *, progress: Progress = lambda _: None
    ) -> Manifest:
        """Write one archive with all files in it."""
        return self._write(path, extra, now, self._add_file, progress)

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Lock the folder, and remove what a killed backup left in it."""
        make_private_folder(self.folder)
        with locked(self.folder, f"another backup to {self.folder} is running"):
            for part in (*self.folder.glob(".palaver-*.tar*.part"), *(self.folder / FILES).glob("??/.*.part")):
                part.unlink()
            yield

    def _write(
        self,
        path: Path,
        extra: Mapping[str, bytes],
        now: datetime,
        keep_file: "Callable[[ArchiveWriter, str], int | None]",
        progress: Progress,
    ) -> Manifest:
        staged = path.with_name(f".{path.name}.db.part")
        with appearing(path) as stream:
            archive = ArchiveWriter(stream)
            try:
                schema, newest, names = self._copy_database(staged)
                with staged.open("rb") as content:
                    archive.add_member(DATABASE, content, staged.stat().st_size, now)
            finally:
                staged.unlink(missing_ok=True)
            for name, text in self._parts(extra).items():
                archive.add_member(name, io.BytesIO(text), len(text), now)
            files: dict[str, int] = {}
            missing: list[str] = []
            for count, name in enumerate(names, 1):
                size = keep_file(archive, name)
                if size is None:
                    missing.append(name)
                else:
                    files[name] = size
                progress(count)
            manifest = Manifest(
                made=now.astimezone(UTC).replace(microsecond=0),
                palaver=__version__,
                schema=schema,
                members=archive.members,
                files=files,
                missing=tuple(missing),
                newest=newest,
            )
            archive.finish(manifest)
        return manifest

    def _parts(self, extra: Mapping[str, bytes]) -> Mapping[str, bytes]:
        if self.vault is None:
            return extra
        sealed = {name: self.vault.seal(text) for name, text in extra.items()}
        return {**sealed, KEYS: self.vault.file_content()}

    def _copy_database(self, staged: Path) -> tuple[int, datetime | None, list[str]]:
        """Copy the database as it is at one moment. Return its schema, its last use and the files it refers to."""
        os.close(open_private(staged, os.O_WRONLY | os.O_TRUNC))
        try:
            with (
                closing(connect(self.database, self._key, read_only=True)) as source,
                closing(open_file(staged, self._key)) as copy,
            ):
                # It is only read again here: neither a crash nor a journal matters.
                copy.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF")
                source.backup(copy)
                schema = copy.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
                names = copy.execute(REFERENCED_FILES).fetchall()
                newest = copy.execute("SELECT max(last_active) FROM sessions").fetchone()[0]
                return int(schema[0]), _time(newest), [self._stored_name(row[0]) for row in names]
        except sqlite3.Error as error:
            problem = f"the database {self.database} could not be copied"
            for full in filter(is_disk_full, (staged, self.database)):
                raise StoreUnavailable(f"{problem}: the disk of {full.parent} is full. Make room there") from error
            raise StoreError(f"{problem}: {error}") from error

    # Files

    def _stored_name(self, sha256: str) -> str:
        name = self._contents.name_of(sha256)
        return name if self._source(name).is_file() else sha256

    def _add_file(self, archive: ArchiveWriter, name: str) -> int | None:
        """Put a file into the archive. The reader checks its hash, which is its name."""
        try:
            with self._source(name).open("rb") as content:
                facts = os.fstat(content.fileno())
                if not self._contents.is_intact(content, name):
                    return None
                content.seek(0)
                at = datetime.fromtimestamp(facts.st_mtime, UTC)
                archive.add(f"{FILES}/{name[:2]}/{name}", content, facts.st_size, at)
        except FileNotFoundError:
            return None
        return facts.st_size

    def _pool(self, pool: Path, name: str) -> int | None:
        """Copy a file into the folder beside the archives, unless it is there."""
        kept = pool / name[:2] / name
        if kept.is_file() and self._is_whole(kept):
            return kept.stat().st_size
        try:
            return self._copy_file(name, kept)
        except (FileNotFoundError, _NotIntact):
            return None

    def _copy_file(self, name: str, kept: Path) -> int:
        with self._source(name).open("rb") as content:
            facts = os.fstat(content.fileno())
            make_private_folder(kept.parent)
            with appearing(kept) as target:
                copy_hashed(content, target)
                target.seek(0)
                if not self._contents.is_intact(target, name):
                    raise _NotIntact
                os.utime(target.fileno(), (facts.st_mtime, facts.st_mtime))
        return facts.st_size

    def _is_whole(self, kept: Path) -> bool:
        """Return whether a file beside the archives is as long as the one that it is a copy of, if that is there."""
        source = self._source(kept.name)
        return not source.is_file() or source.stat().st_size == kept.stat().st_size

    def _source(self, name: str) -> Path:
        return self.files / name[:2] / name

    # Keep some

    def _prune(self, keep: int, now: datetime) -> None:
        """Remove the oldest archives, and the files that no other needs. What cannot be read keeps its files.

        Those of a time to come count as the oldest: a clock was wrong, and they would displace every new one.
        """
        backups = sorted(self.list_all(), key=lambda backup: backup.at > now)
        for backup in backups[max(keep, 1) :]:
            backup.path.unlink()
        flush_folder(self.folder)
        try:
            needed = {name for backup in backups[: max(keep, 1)] for name in read_manifest(backup.path).files}
        except BadBackup:
            return
        for path in (self.folder / FILES).glob("??/*"):
            if path.name not in needed:
                path.unlink()


def _time(stored: object) -> datetime | None:
    """Return a stored time; None if there is none, or it is damaged."""
    try:
        return instant(stored) if isinstance(stored, int) else None
    except OverflowError:
        return None


def backups_that_hold(folder: Path) -> Sequence[Path]:
    """Return the archives in a folder: they still hold what was deleted since."""
    return sorted(folder.glob("palaver-*.tar"))
