"""The shelf keeps content whole or not at all, once, and under nothing that came from outside."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.model.attachment import TooLarge
from palaver.store.conversations.blob_store import BlobStore

NONE = timedelta(seconds=-1)


async def pieces(*chunks: bytes, breaks: bool = False) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    if breaks:
        raise ConnectionError


def on_disk(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


async def test_content_is_kept_under_its_hash_once_and_only_for_its_owner(tmp_path: Path) -> None:
    shelf, sha = BlobStore(tmp_path / "files"), hashlib.sha256(b"hello").hexdigest()
    kept = await asyncio.gather(*(shelf.keep(pieces(b"hel", b"lo"), 5) for _ in range(5)))
    assert {(each.sha256, each.size, each.head) for each in kept} == {(sha, 5, b"hello")}
    assert on_disk(tmp_path / "files") == [sha]
    place = shelf.place(sha)
    assert place
    assert place.read_bytes() == b"hello"
    assert place.stat().st_mode & 0o077 == 0


async def test_what_is_too_large_or_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    shelf = BlobStore(tmp_path / "files")
    with pytest.raises(TooLarge):
        await shelf.keep(pieces(b"123", b"456"), 5)
    with pytest.raises(ConnectionError):
        await shelf.keep(pieces(b"123", breaks=True), 5)
    assert on_disk(tmp_path / "files") == []


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "ab", "AB" * 32, "ab" * 32 + "/x", "\0"])
def test_nothing_but_a_hash_is_looked_for(tmp_path: Path, name: str) -> None:
    assert BlobStore(tmp_path).place(name) is None


async def test_tidying_removes_what_nobody_has_and_what_a_crash_left_but_nothing_new(tmp_path: Path) -> None:
    shelf = BlobStore(tmp_path / "files")
    mine = await shelf.keep(pieces(b"mine"), 9)
    left = await shelf.keep(pieces(b"left"), 9)
    (tmp_path / "files" / "dead.part").write_bytes(b"half")
    assert await shelf.tidy({mine.sha256}, timedelta(hours=1)) == 0
    assert await shelf.tidy({mine.sha256}, NONE) == 2
    assert on_disk(tmp_path / "files") == [mine.sha256]
    assert shelf.place(left.sha256) is None


async def test_what_is_put_there_again_counts_as_new(tmp_path: Path) -> None:
    shelf = BlobStore(tmp_path / "files")
    kept = await shelf.keep(pieces(b"again"), 9)
    place = shelf.place(kept.sha256)
    assert place
    os.utime(place, (0, 0))
    await shelf.keep(pieces(b"again"), 9)
    assert await shelf.tidy((), timedelta(hours=1)) == 0
    assert await BlobStore(tmp_path / "nowhere").tidy((), NONE) == 0
