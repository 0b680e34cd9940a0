"""A store for the rooms above it; on a server its tables are there already."""

import os
from pathlib import Path

import pytest

from tests.store.conftest import ENGINES, fresh_store

__all__ = ["store_url", "store_url_on_each"]

# Every statement runs on both engines in the tests of the store, and every command in the dialogues.
_WANTED = ENGINES if os.environ.get("PALAVER_ENGINES") == "all" else ENGINES[:1]


@pytest.fixture(params=_WANTED)
async def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return await _url(request, tmp_path)


@pytest.fixture(params=ENGINES, name="store_url")
async def store_url_on_each(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """For what depends on the engine: who listens, who leads, who is locked out."""
    return await _url(request, tmp_path)


async def _url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/palaver.db"
    return await fresh_store(request.getfixturevalue("postgres_server"))
