"""One store for all tests of a process, which they copy and damage."""

import os
import shutil
from pathlib import Path

import pytest

from palaver.store.conversations.blob_store import BlobStore
from palaver.store.damage.repair import find_damage
from palaver.store.opening import open_store
from palaver.store.store import Store
from tests.damage.template import build


async def failing(store: Store, files: Path | None = None) -> dict[str, str]:
    """What doctor finds in the rows and files of a store, by the name of the check."""
    checks = find_damage(store, files and BlobStore(files))
    return {check.name: check.found async for check in checks if not check.ok}


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
