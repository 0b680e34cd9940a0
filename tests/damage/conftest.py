"""One store for all tests of a process, which they copy and damage."""

import asyncio
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from palaver.store.conversations.blob_store import BlobStore
from palaver.store.damage.checks import find_damage
from palaver.store.damage.losses import LostRow
from palaver.store.damage.salvage import Files, salvage
from palaver.store.opening import open_store
from palaver.store.store import Store
from tests.damage.template import build


async def failing(store: Store, files: Path | None = None) -> dict[str, str]:
    """What doctor finds in the rows and files of a store, by the name of the check."""
    checks = find_damage(store, files and BlobStore(files))
    return {check.name: check.found async for check in checks if not check.ok}


class NewStore(NamedTuple):
    """What a salvage made."""

    path: str
    files: Path
    left: tuple[LostRow, ...]


async def salvaged(database: Path, files: Path, key: bytes | None = None) -> NewStore:
    """Salvage a store into a folder beside its own. It does not change."""
    before = await asyncio.to_thread(database.read_bytes)
    folder = database.parent.with_name(f"{database.parent.name} salvaged")
    new = Files(BlobStore(files), folder / "files")
    done = await salvage(
        str(database), str(folder / "palaver.db"), "damaged", datetime.now(UTC), key=key, target_key=key, files=new
    )
    assert await asyncio.to_thread(database.read_bytes) == before
    return NewStore(str(folder / "palaver.db"), folder / "files", done.left)


@pytest.fixture
async def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.getbasetemp() / f"damage-{os.getpid()}"
    if not folder.exists():
        async with await open_store(str(folder / "palaver.db")) as store:
            await build(store, folder / "files")
            assert await failing(store, folder / "files") == {}
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """A copy of it: database, mark, search index and files."""
    copy = tmp_path / "copy"
    shutil.copytree(template, copy)
    return copy
