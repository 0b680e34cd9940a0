"""A real disk without room for a while: files that cannot grow, and a small file system that another file fills."""

import os
import resource
import subprocess
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from palaver.model.errors import StoreUnavailable
from palaver.store.backup.backups import Backups
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.opening import open_store
from palaver.store.status.invariants import violations
from tests.store.empty import write_empty_store
from tests.store.scenario import SCENARIO, take_picture
from tests.store.world import NOON

MOUNT_BYTES = 8 << 20


@contextmanager
def small_files(folder: Path) -> Generator[None]:
    """No file of this process can grow beyond the size of the log."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "palaver.db-wal").stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def no_room(folder: Path) -> Generator[None]:
    """Another file takes all the room there is."""
    eater = os.open(folder / "eater", os.O_WRONLY | os.O_CREAT)
    try:
        size = 1 << 20
        while size:
            try:
                os.write(eater, bytes(size))
            except OSError:
                size //= 2
        yield
    finally:
        os.close(eater)
        (folder / "eater").unlink()


@contextmanager
def small_disk(folder: Path) -> Generator[Path]:
    place = folder / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MOUNT_BYTES}", "palaver-test", str(place)]
    subprocess.run(mount, check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


async def go_through(folder: Path, shortage: Callable[[], AbstractContextManager[None]]) -> list[str]:
    """A step that finds no room is refused, nothing of it happens, and it can be repeated when there is.

    Return what was said.
    """
    refused = list[str]()
    async with await open_store(str(folder / "palaver.db")) as store:
        await SCENARIO[0].run(store)
        for step in SCENARIO[1:]:
            before = await store.read(take_picture())
            try:
                with shortage():
                    await step.run(store)  # what is small fits into what the log has already
            except StoreUnavailable as error:
                refused.append(str(error))
                assert step.name == "erase" or await store.read(take_picture()) == before, step.name
                await step.run(store)
        assert await store.read(violations()) == []
    assert len(refused) > 12
    return refused


async def test_files_that_cannot_grow(tmp_path: Path) -> None:
    write_empty_store(tmp_path / "palaver.db")
    await go_through(tmp_path, partial(small_files, tmp_path))


@pytest.mark.needs("mount")
async def test_a_disk_without_room(tmp_path: Path) -> None:
    with small_disk(tmp_path) as place:
        write_empty_store(place / "palaver.db")
        for said in await go_through(place, partial(no_room, place)):  # the database or its index
            assert str(place / "palaver.db") in said
            assert "Make room on its disk" in said
        with (
            no_room(place),
            pytest.raises(StoreUnavailable, match=r"its disk is full .* Make room there|make room there"),
        ):
            await open_store(str(place / "other.db"))
        backups = Backups(database=place / "palaver.db", files=place / "files", folder=place / "backups")
        with no_room(place), pytest.raises(StoreUnavailable, match=f"the disk of {place} is full. Make room"):
            backups.make_single(place / "copy.tar", {}, NOON)
        with pytest.raises(OSError, match=f"No space left on device: '{place / 'copy.tar'}'"):
            backups.make_single(place / "copy.tar", {"configuration.yaml": bytes(2 * MOUNT_BYTES)}, NOON)
        assert not list(place.glob("*copy.tar*"))
        with no_room(place), pytest.raises(OSError, match=f"No space left on device: '{place / 'files'}'"):
            await BlobStore(place / "files").keep(_chunks(), 100_000)


async def _chunks() -> AsyncIterator[bytes]:
    yield bytes(100_000)
