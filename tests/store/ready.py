"""A store for the rooms above it, on both engines; on a server its tables are there already."""

from pathlib import Path

import pytest

from tests.store.conftest import ENGINES, fresh_store

__all__ = ["store_url"]


@pytest.fixture(params=ENGINES)
async def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/palaver.db"
    return await fresh_store(request.getfixturevalue("postgres_server"))
