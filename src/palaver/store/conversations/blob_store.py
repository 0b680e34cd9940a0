"""Contents of files in a folder, each under its hash, written whole or not at all."""

import asyncio
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Generator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import IO, NamedTuple

from palaver.db.private_files import flush_folder, make_private_folder, naming, touch_private
from palaver.model.attachment import StoredBlob, TooLarge
from palaver.store.encryption.contents import PLAIN, SHA256, STORED_NAME, PlainContents

_HEAD_BYTES = 64
_PARTIAL_SUFFIX = ".part"
SET_ASIDE = "set-aside"
"""The folder of damaged contents, each under the hash that it does not match, kept like any other."""


class Condition(Enum):
    """Of the content of a file."""

    INTACT = "intact"
    DAMAGED = "damaged"
    """It does not match its hash."""
    MISSING = "missing"
    SET_ASIDE = "set aside"
    """It is missing, but what was damaged of it is in the folder `set-aside`."""
    UNREADABLE = "unreadable"
    """It is there, but this process cannot read it, for example because of its mode or a disk that fails."""


class StoredFile(NamedTuple):
    name: str
    """Its hash."""
    at: datetime
    """When it came, for the last time if it came several times."""
    size: int


class BlobStore:
    """Files are at `ab/ab12…`: two characters, then the whole hash. No input from outside is part of a path."""

    def __init__(self, folder: Path, contents: PlainContents = PLAIN) -> None:
        self._folder = folder
        self._contents = contents

    @property
    def contents(self) -> PlainContents:
        """How contents are written and named."""
        return self._contents

    def place(self, sha256: str) -> Path | None:
        if not SHA256.fullmatch(sha256):
            return None
        path = self._path(sha256)
        return path if path.is_file() else None

    @asynccontextmanager
    async def reading(self, sha256: str) -> AsyncGenerator[Path | None]:
        """Yield the path of the plain content for as long as it is read; None if it is not on this machine."""
        path = self.place(sha256)
        if path is None:
            yield None
            return
        opened = self._contents.readable(path)
        plain = await asyncio.to_thread(opened.__enter__)
        async with AsyncExitStack() as stack:
            stack.push(opened)
            yield plain

    async def keep(self, chunks: AsyncIterator[bytes], limit: int) -> StoredBlob:
        part = await asyncio.to_thread(self._begin)
        try:
            digest, size, head = hashlib.sha256(), 0, b""
            with naming(self._folder), part.open("wb") as file:
                writer = self._contents.writer(file)
                async for chunk in chunks:
                    size += len(chunk)
                    if size > limit:
                        raise TooLarge(f"more than {limit} bytes")
                    head += chunk[: _HEAD_BYTES - len(head)]
                    digest.update(chunk)
                    await asyncio.to_thread(writer.write, chunk)
                writer.finish()
                await asyncio.to_thread(_flush, file)
            await asyncio.to_thread(self._commit, part, digest.hexdigest())
            return StoredBlob(digest.hexdigest(), size, head)
        finally:
            part.unlink(missing_ok=True)

    async def tidy(self, held: Collection[str], older_than: timedelta) -> int:
        return await asyncio.to_thread(lambda: self._remove(self._unreferenced(held), older_than))

    async def examine(self, sha256: str) -> Condition:
        """Compare a content with its hash."""
        return await asyncio.to_thread(self._examine, sha256)

    def _examine(self, sha256: str) -> Condition:
        if not SHA256.fullmatch(sha256):
            return Condition.MISSING
        try:
            path = self._path(sha256)
            with path.open("rb") as file:
                is_intact = self._contents.is_intact(file, path.name)
        except FileNotFoundError:
            return Condition.SET_ASIDE if self._aside(sha256).is_file() else Condition.MISSING
        except OSError:
            return Condition.UNREADABLE
        return Condition.INTACT if is_intact else Condition.DAMAGED

    async def find(self, is_wanted: Callable[[str], bool]) -> list[str]:
        return await asyncio.to_thread(lambda: sorted(set(filter(is_wanted, map(self._hash, self._stored())))))

    async def list_files(self) -> list[StoredFile]:
        """Return all contents, the newest first."""
        return await asyncio.to_thread(lambda: sorted(self._facts(), key=lambda file: file.at, reverse=True))

    def _facts(self) -> Iterator[StoredFile]:
        for path in self._stored():
            with suppress(FileNotFoundError):
                facts = path.stat()
                yield StoredFile(self._hash(path), datetime.fromtimestamp(facts.st_mtime, UTC), facts.st_size)

    async def remove(self, names: Collection[str], older_than: timedelta) -> int:
        paths = [place(name) for name in names for place in (self._path, self._aside)]
        return await asyncio.to_thread(self._remove, paths, older_than)

    def _path(self, sha256: str) -> Path:
        name = self._contents.name_of(sha256)
        path, plain = self._folder / name[:2] / name, self._folder / sha256[:2] / sha256
        return plain if plain.is_file() and not path.is_file() else path

    def _aside(self, sha256: str) -> Path:
        return self._folder / SET_ASIDE / self._contents.name_of(sha256)

    def _hash(self, path: Path) -> str:
        return self._contents.hash_of(path.name) or path.name

    def _begin(self) -> Path:
        make_private_folder(self._folder)
        part = self._folder / f"{secrets.token_hex(16)}{_PARTIAL_SUFFIX}"
        touch_private(part)
        return part

    def _commit(self, part: Path, sha256: str) -> None:
        path = self._path(sha256)
        make_private_folder(path.parent)
        with self._locked():
            if path.is_file():
                os.utime(path)  # It counts as new, so that tidying up keeps it.
                return
            part.rename(path)
            for folder in (path.parent, self._folder):
                flush_folder(folder)

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Lock the folder for all processes: none removes a file that another has just found."""
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _remove(self, paths: Iterable[Path], older_than: timedelta) -> int:
        before = time.time() - older_than.total_seconds()
        removed = 0
        for path in paths:
            with self._locked():
                if path.is_file() and path.stat().st_mtime < before:
                    path.unlink()
                    removed += 1
        return removed

    def _unreferenced(self, held: Collection[str]) -> Iterator[Path]:
        yield from self._folder.glob(f"*{_PARTIAL_SUFFIX}")
        yield from (path for path in self._stored() if self._hash(path) not in held)

    def _stored(self) -> Iterator[Path]:
        """Return all contents but those sealed with a key that we do not have: nobody can tell who needs them."""
        for path in (*self._folder.glob("??/*"), *(self._folder / SET_ASIDE).glob("*")):
            if self._contents.hash_of(path.name) or not STORED_NAME.fullmatch(path.name):
                yield path


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
