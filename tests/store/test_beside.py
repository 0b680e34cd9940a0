"""Several processes at one file: who makes it, who changes it, and who has to wait."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from palaver.db.schema import Migration, known_migrations
from palaver.model.errors import StoreInUse
from palaver.store import opening
from palaver.store.opening import open_store
from palaver.store.status.invariants import violations
from tests.forkserver import start_module
from tests.store.world import World

ROOT = Path(__file__).parents[2]
TODAY = known_migrations()
NEWER = Migration(TODAY[-1].number + 1, "newer", "ALTER TABLE inbox ADD COLUMN mood TEXT;")


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From here on, everything is opened by a newer Palaver."""
    return lambda: monkeypatch.setattr(opening, "known_migrations", lambda: [*TODAY, NEWER])


def schema_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()[0])


def backups(path: Path) -> list[str]:
    return [copy.name for copy in path.parent.glob("*.schema-*")]


async def test_a_newer_command_leaves_the_file_of_a_running_gateway_alone(
    tmp_path: Path, upgrade: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "palaver.db"
    monkeypatch.setattr(opening, "_GATEWAY_START_SECONDS", 0.1)
    async with await open_store(str(path), exclusive=True) as gateway:
        world = World(gateway)
        await world.exchange("before")
        upgrade()
        with pytest.raises(StoreInUse, match=r"older than this Palaver's.*running gateway \(pid \d+.*stop it"):
            await open_store(str(path))
        assert (schema_of(path), backups(path)) == (TODAY[-1].number, [])
        await world.exchange("after")
    async with await open_store(str(path)) as store:
        assert await store.read(violations()) == []
    assert (schema_of(path), backups(path)) == (NEWER.number, [f"palaver.db.schema-{TODAY[-1].number}"])


async def test_a_newer_gateway_changes_its_own_file_and_commands_wait_for_it(
    tmp_path: Path, upgrade: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "palaver.db"
    await (await open_store(str(path))).close()
    upgrade()
    back_up = opening.back_up
    opened: list[asyncio.Task[Any]] = []
    loop = asyncio.get_running_loop()

    def slowly(where: Path, version: int, key: bytes | None) -> None:
        """While the gateway makes its backup, a command comes."""
        opened.append(loop.create_task(open_store(str(path))))
        back_up(where, version, key)

    monkeypatch.setattr(opening, "back_up", slowly)
    async with await open_store(str(path), exclusive=True), await opened[0]:
        pass
    assert (schema_of(path), len(opened)) == (NEWER.number, 1)


@pytest.mark.parametrize(("processes", "rounds"), [(4, 5)])
def test_processes_that_open_a_new_file_at_once_make_one(tmp_path: Path, processes: int, rounds: int) -> None:
    with ExitStack() as stack:
        children = [
            stack.enter_context(start_module("tests.store.opener", str(tmp_path), str(rounds), cwd=ROOT, stdout=PIPE))
            for _ in range(processes)
        ]
        for number in range(-1, rounds):
            if number >= 0:
                (tmp_path / f"go {number}").touch()
            for child in children:
                assert child.stdout
                assert child.stdout.readline()
        assert [child.wait() for child in children] == [0] * processes
    for number in range(rounds):
        assert schema_of(tmp_path / f"{number}.db") == TODAY[-1].number


async def test_a_backup_is_nobody_elses_business(tmp_path: Path, upgrade: Callable[[], None]) -> None:
    path = tmp_path / "palaver.db"
    await (await open_store(str(path))).close()
    upgrade()
    await (await open_store(str(path))).close()
    assert [(path.parent / name).stat().st_mode & 0o077 for name in backups(path)] == [0]
