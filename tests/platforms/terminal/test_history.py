"""What was typed at the terminal goes with its owner, and with nobody else."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from palaver.platforms.terminal.files import history_eraser, history_file
from palaver.store.opening import open_store
from tests.store.world import World, dm


def test_the_lines_go_with_their_owner(tmp_path: Path) -> None:
    file = history_file(tmp_path)
    file.write_text("+a secret\n")
    forget = history_eraser(tmp_path)
    forget(frozenset({"telegram:7"}))
    assert file.read_text()
    forget(frozenset({"telegram:7", "terminal:owner"}))
    assert not file.read_text()


def test_an_erasure_tells_whom_it_has_forgotten(tmp_path: Path) -> None:
    async def forgotten() -> list[frozenset[str]]:
        told: list[frozenset[str]] = []
        async with await open_store(str(tmp_path / "store.db")) as store:
            now = datetime(2026, 3, 2, tzinfo=UTC)
            world = World(store)
            await world.say("hello", dm("owner", platform="terminal"))
            erasures = replace(store.erasures, erase_outside=[told.append])
            number = await store.transact(erasures.request("terminal:owner", now, by="operator"))
            await erasures.run(number, now)
        return told

    assert asyncio.run(forgotten()) == [frozenset({"terminal:owner"})]
