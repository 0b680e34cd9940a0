"""How the contents of files are stored: as they are under their hash, or sealed under a name that tells nothing."""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

SHA256 = re.compile(r"[0-9a-f]{64}")
STORED_NAME = re.compile(r"[0-9a-f]{64}(?:[0-9a-f]{32})?")
"""A hash, or the longer name of sealed content."""

SEALED_EXPORT = b"palaver sealed export\n"
"""How a sealed export begins."""


def has_sealed(folder: Path) -> bool:
    """Return whether a folder has contents that are sealed."""
    names = (each.name for each in folder.glob("??/*"))
    return any(STORED_NAME.fullmatch(name) and not SHA256.fullmatch(name) for name in names)


class ContentWriter(Protocol):
    def write(self, content: bytes, /) -> int: ...

    def finish(self) -> None: ...


class _PlainWriter:
    def __init__(self, target: IO[bytes]) -> None:
        self.write = target.write

    def finish(self) -> None:
        """Everything is written."""


class PlainContents:
    """Contents as they are, each named by its hash."""

    def name_of(self, sha256: str) -> str:
        """Return the name under which the content with this hash is stored."""
        return sha256

    def hash_of(self, name: str) -> str | None:
        """Return the hash of the content under a name; None if it is not ours."""
        return name if SHA256.fullmatch(name) else None

    def writer(self, target: IO[bytes]) -> ContentWriter:
        return _PlainWriter(target)

    def reader(self, source: IO[bytes], name: str) -> IO[bytes]:
        del name
        return source

    @contextmanager
    def readable(self, path: Path) -> Generator[Path]:
        """Yield the path of a file with the plain content."""
        yield path

    def is_intact(self, source: IO[bytes], name: str) -> bool:
        """Return whether the content is what its name says."""
        return hashlib.file_digest(self.reader(source, name), "sha256").hexdigest() == self.hash_of(name)  # pyright: ignore[reportArgumentType]


PLAIN = PlainContents()


@contextmanager
def in_memory(content: IO[bytes]) -> Generator[Path]:
    """Yield the path of a file with this content that is in memory only.

    Where the system has no such files, it is a temporary file that is gone afterwards.
    """
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile(prefix="palaver-") as file:
            shutil.copyfileobj(content, file, 1 << 20)
            file.flush()
            yield Path(file.name)
        return
    with os.fdopen(os.memfd_create("palaver"), "wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
        file.flush()
        yield Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")
