"""The write-ahead log stays small, also where no process lives long enough to write much."""

import shutil
from contextlib import AsyncExitStack
from pathlib import Path

from palaver.ports.work import Steps, work
from palaver.stores.opening import open_store

KILLS = 12
SMALL = 12 * 1024 * 1024
"""Half of what is written altogether."""


@work
def remember(text: str) -> Steps[None]:
    yield (
        "INSERT INTO meta (name, value) VALUES ('x', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (text,),
    )


def crash(path: Path, left: Path) -> Path:
    """The files as a process leaves them that is killed now."""
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{left}{suffix}")
    return left


def log_of(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


async def test_a_gateway_killed_again_and_again_leaves_no_endless_log(tmp_path: Path) -> None:
    path = tmp_path / "0.db"
    async with AsyncExitStack() as stack:
        for kill in range(1, KILLS + 1):
            store = await stack.enter_async_context(await open_store(str(path)))
            for number in range(10):
                await store.transact(remember(f"{number}" * 200_000))
            path = crash(path, tmp_path / f"{kill}.db")
    assert log_of(path) < SMALL
