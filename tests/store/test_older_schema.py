"""A store of an older schema is recognised, stays as it is, and is copied into a new one."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from palaver.model.errors import OlderSchema
from palaver.store.opening import open_store
from palaver.store.status.invariants import violations
from palaver.store.transfer import transfer
from tests.store.conftest import fresh_database
from tests.store.older import make_older
from tests.store.test_forgetting import live
from tests.store.test_transfer import contents
from tests.store.world import World, dm

Fresh = Callable[[], Awaitable[str]]


@pytest.fixture
async def filled(tmp_path: Path) -> Path:
    """A store in which a lot has happened."""
    path = tmp_path / "filled.db"
    async with await open_store(str(path)) as store:
        await live(store)
    return path


@pytest.fixture(params=["sqlite", "postgres"])
async def older(request: pytest.FixtureRequest, tmp_path: Path, filled: Path) -> str:
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    url = await fresh_database(server) if server else str(tmp_path / "older.db")
    await make_older(filled, url)
    return url


async def test_an_older_store_is_refused_with_what_to_do(older: str) -> None:
    for exclusive in (False, True):
        with pytest.raises(OlderSchema, match=r"palaver migrate sqlite:///new\.db.* schema 70 .*schema 100"):
            await open_store(older, exclusive=exclusive)


async def test_every_row_of_an_older_store_is_copied(older: str, filled: Path, tmp_path: Path) -> None:
    new = str(tmp_path / "new.db")
    done = await transfer(older, new, "old")
    assert done.left == ()
    assert await contents(new) == await contents(str(filled))
    async with await open_store(new, exclusive=True) as store:
        assert await store.read(violations()) == []
        await World(store).exchange("after the move", source=dm("99"))
    with pytest.raises(OlderSchema):
        await open_store(older)
