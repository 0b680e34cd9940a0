"""The archive of a backup: a tar file with the database, the configuration, files, and a manifest with checksums.

The manifest comes last, so an archive without one is incomplete. Files that are not in the archive are in the folder
`files` beside it, each under its hash: archives in one folder share them, so an unchanged file is stored once.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple

from palaver.db.private_files import PRIVATE_FILE
from palaver.model.errors import InvalidInput
from palaver.model.value import value
from palaver.store.clock import CLOCK_TOLERANCE
from palaver.store.encryption.contents import STORED_NAME

FORMAT = "palaver backup"
VERSION = 1
DATABASE = "palaver.db"
MANIFEST = "manifest.json"
FILES = "files"
_CHUNK = 1 << 20


class BadBackup(InvalidInput):
    """An archive is not a backup, incomplete or changed."""

    def __init__(self, file: Path, problem: str) -> None:
        super().__init__(problem, found="", allowed="another backup", example="palaver backup list")
        self.args = (f"The backup {file} cannot be used: {problem}. Use another one: palaver backup list",)

    def __str__(self) -> str:
        return str(self.args[0])


class Member(NamedTuple):
    """A part of an archive."""

    sha256: str
    size: int


@value
class Manifest:
    """What is in a backup."""

    made: datetime
    palaver: str
    """The version of Palaver that made it."""
    schema: int
    members: Mapping[str, Member]
    files: Mapping[str, int]
    """The hash of each file, with its size."""
    missing: tuple[str, ...] = ()
    """Files that the database names, but that were missing or damaged when it was made."""
    newest: datetime | None = None
    """When a conversation in it was used last; None if there is none, or an older Palaver made it."""

    @property
    def is_misdated(self) -> bool:
        """Whether something in it is from after it was made: a clock is or was wrong."""
        return self.newest is not None and self.newest > self.made + CLOCK_TOLERANCE

    def encode(self) -> bytes:
        times = {"made": self.made.isoformat(), "newest": self.newest and self.newest.isoformat()}
        fields = {"format": FORMAT, "version": VERSION, **asdict(self), **times}
        return json.dumps({**fields, "checksum": _checksum(fields)}, indent=1).encode()


def _checksum(fields: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def decode_manifest(file: Path, content: bytes) -> Manifest:
    try:
        fields = json.loads(content)
        checksum = fields.pop("checksum")
    except (ValueError, KeyError, AttributeError, TypeError):
        raise BadBackup(file, "its manifest cannot be read") from None
    if fields.get("format") != FORMAT:
        raise BadBackup(file, "it is not a backup of Palaver")
    if fields["version"] > VERSION:
        raise BadBackup(file, "a newer Palaver made it")
    if _checksum(fields) != checksum:
        raise BadBackup(file, "its manifest was changed")
    for name in fields["files"]:  # each becomes part of a path
        if not STORED_NAME.fullmatch(name):
            raise BadBackup(file, f"it names a file that is not of a backup: {name[:100]!r}")
    return Manifest(
        made=datetime.fromisoformat(fields["made"]),
        palaver=fields["palaver"],
        schema=fields["schema"],
        members={name: Member(*member) for name, member in fields["members"].items()},
        files=fields["files"],
        missing=tuple(fields["missing"]),
        newest=datetime.fromisoformat(newest) if (newest := fields.get("newest")) else None,
    )


# Write


class ArchiveWriter:
    def __init__(self, stream: IO[bytes]) -> None:
        self._tar = tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - closed in finish
        self.members: dict[str, Member] = {}

    def add(self, name: str, content: IO[bytes], size: int, at: datetime) -> str:
        """Add a part; return its hash."""
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = size, int(at.timestamp()), PRIVATE_FILE
        hashed = HashedReader(content)
        self._tar.addfile(info, hashed)
        return hashed.digest.hexdigest()

    def add_member(self, name: str, content: IO[bytes], size: int, at: datetime) -> None:
        self.members[name] = Member(self.add(name, content, size, at), size)

    def finish(self, manifest: Manifest) -> None:
        content = manifest.encode()
        self.add(MANIFEST, io.BytesIO(content), len(content), manifest.made)
        self._tar.close()


class HashedReader(io.RawIOBase):
    """Hashes what is read through it."""

    def __init__(self, content: IO[bytes]) -> None:
        self._content = content
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        chunk = self._content.read(size)
        self.digest.update(chunk)
        return chunk


# Read


def read_manifest(file: Path) -> Manifest:
    """Return what is in an archive; raise BadBackup for one that is incomplete."""
    with reading(file) as members:
        for info, content in members:
            if info.name == MANIFEST:
                return decode_manifest(file, content.read())
    raise BadBackup(file, "it is incomplete: it has no manifest")


@contextmanager
def reading(file: Path) -> Generator[Iterator[tuple[tarfile.TarInfo, IO[bytes]]]]:
    """Return the parts in order, each to be read before the next. Raise BadBackup if that fails."""
    try:
        stream = file.open("rb")
    except OSError as error:
        raise BadBackup(file, error.strerror or str(error)) from error
    try:
        with stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            yield _parts(file, tar)
    except tarfile.TarError as error:
        raise BadBackup(file, f"it is no complete archive ({error})") from error


def _parts(file: Path, tar: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    for info in tar:
        if info.issparse():  # a few bytes that unpack to any size
            raise BadBackup(file, f"it has a sparse part: {info.name[:100]!r}")
        if info.isreg() and (content := tar.extractfile(info)) is not None:
            yield info, content


def copy_hashed(content: IO[bytes], target: IO[bytes]) -> Member:
    """Copy, and return hash and size."""
    digest, size = hashlib.sha256(), 0
    while chunk := content.read(_CHUNK):
        digest.update(chunk)
        target.write(chunk)
        size += len(chunk)
    return Member(digest.hexdigest(), size)


def time_of(info: tarfile.TarInfo) -> datetime:
    return datetime.fromtimestamp(info.mtime, UTC)
