"""Many people try everything, from seeds: nobody is shown what they may not see. `PALAVER_LEAKS` seeds."""

import os
from pathlib import Path

import pytest

from palaver.db.transaction import Statements, transaction
from tests.leaks.walk import Leak, Walk, walk
from tests.store.ready import store_url_on_each

__all__ = ["store_url_on_each"]

SEEDS = int(os.environ.get("PALAVER_LEAKS", "1"))
STEPS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_nobody_is_shown_what_they_cannot_see(store_url: str, tmp_path: Path, seed: int) -> None:
    taken = await walk(seed, store_url, tmp_path / "files", STEPS)
    assert taken.number > 0


async def test_the_oracle_sees_a_leak(tmp_path: Path) -> None:
    """Anyone who takes part behind the back of everybody is found out by their first look."""
    taken = Walk(1, f"sqlite:///{tmp_path}/p.db", tmp_path / "files")
    await taken.start()
    try:
        ann, ben = taken.town.people[:2]
        mine, his = taken.town.spots[:2]
        assert "I know" in await taken.ask(ann, mine, taken.plant())
        assert "Nothing found" in await taken.ask(ben, his, "/search note")
        await taken.here.store.transact(_let_in(ben.identity))
        with pytest.raises(Leak, match="was shown"):
            await taken.ask(ben, his, "/search note")
    finally:
        await taken.stop()


async def test_the_oracle_sees_a_note_that_crosses_people(tmp_path: Path) -> None:
    taken = Walk(1, f"sqlite:///{tmp_path}/p.db", tmp_path / "files")
    await taken.start()
    try:
        ann, ben = taken.town.people[:2]
        mine, his = taken.town.spots[:2]
        await taken.ask(ann, mine, taken.plant())
        await taken.ask(ann, mine, "!use remember")
        assert "u1u" in await taken.ask(ann, mine, "/memory")
        await taken.ask(ben, his, "hello")
        await taken.here.store.transact(_give_notes_to(ben.identity))
        with pytest.raises(Leak, match="was shown"):
            await taken.ask(ben, his, "hello")
    finally:
        await taken.stop()


@transaction
def _give_notes_to(identity: str) -> Statements[None]:
    yield "UPDATE memory_notes SET identity = ?", (identity,)


@transaction
def _let_in(identity: str) -> Statements[None]:
    yield "INSERT INTO participants (identity, session_no) SELECT ?, no FROM sessions", (identity,)
