"""The write-ahead log stays small: where no process lives long enough to write much, and where one never rests."""

import asyncio
import shutil
import sqlite3
import threading
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from palaver.db import sqlite
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import StoreError, StoreUnavailable
from palaver.store.opening import open_store
from palaver.store.scrub import owe_scrub, owed_scrubs
from palaver.store.store import Store

KILLS = 12
SMALL = 12 * 1024 * 1024
"""Half of what is written altogether."""


@transaction
def remember(text: str, name: str = "x") -> Statements[None]:
    yield (
        "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, text),
    )


@transaction
def remembered(name: str = "x") -> Statements[str]:
    rows = yield "SELECT value FROM meta WHERE name = ?", (name,)
    return rows[0][0]


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
            store = await stack.enter_async_context(await open_store(str(path), exclusive=True))
            for number in range(10):
                await store.transact(remember(f"{number}" * 200_000))
            path = crash(path, tmp_path / f"{kill}.db")
    assert log_of(path) < SMALL


WRITERS, WRITES = 8, 100
A_FEW_PAGES = 20_000


@pytest.fixture
def soon_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is long after less than usual."""
    monkeypatch.setattr("palaver.db.sqlite._CHECKPOINT_BYTES", 100_000)
    monkeypatch.setattr("palaver.db.sqlite._BATCHES_PER_CHECKPOINT", 8)


@pytest.fixture
def soon_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.db.sqlite._MAX_LOG_BYTES", 1_000_000)


@pytest.mark.usefixtures("soon_long")
async def test_a_rare_writer_writes_over_the_same_log(tmp_path: Path) -> None:
    path = tmp_path / "calm.db"
    async with await open_store(str(path)) as store:
        for number in range(WRITERS * WRITES // 2):
            await store.transact(remember(f"{number % 10}" * A_FEW_PAGES))
        # Half of it is written. How much of that the checkpoints leave depends on the machine.
        assert log_of(path) < WRITERS * WRITES * A_FEW_PAGES / 3


async def write_on(store: Store) -> None:
    """Many who write at once, so that there is always more to write."""

    async def one(name: str) -> None:
        for number in range(WRITES):
            await store.transact(remember(f"{number % 10}" * A_FEW_PAGES, name))

    await asyncio.gather(*(one(f"x{writer}") for writer in range(WRITERS)))


@pytest.mark.usefixtures("soon_long", "soon_too_long")
async def test_a_gateway_that_never_rests_leaves_no_endless_log(tmp_path: Path) -> None:
    path = tmp_path / "busy.db"
    async with await open_store(str(path)) as store:
        await write_on(store)
        assert log_of(path) < WRITERS * WRITES * A_FEW_PAGES / 4


@pytest.mark.usefixtures("soon_long", "soon_too_long")
async def test_a_long_reader_holds_up_no_writing_and_the_log_is_short_again_afterwards(tmp_path: Path) -> None:
    path, reads, has_read = tmp_path / "read.db", threading.Event(), threading.Event()

    @transaction
    def read_for_long() -> Statements[int]:
        before = yield "SELECT count(*) FROM meta WHERE name = 'x1'", ()
        reads.set()
        has_read.wait()
        after = yield "SELECT count(*) FROM meta WHERE name = 'x1'", ()
        return after[0][0] - before[0][0]

    async with await open_store(str(path)) as store:
        reading = asyncio.create_task(store.read(read_for_long()))
        await asyncio.to_thread(reads.wait)
        try:
            await write_on(store)
            grown = log_of(path)
        finally:
            has_read.set()
        assert await reading == 0
        await write_on(store)
        assert log_of(path) < grown / 2


async def test_the_log_of_a_file_that_was_moved_away_is_left_alone(tmp_path: Path) -> None:
    path, away = tmp_path / "palaver.db", tmp_path / "away.db"
    async with await open_store(str(path)) as store:
        await store.transact(remember("still there"))
        path.rename(away)
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await store.scrub()
        assert not path.exists()
        away.rename(path)
        left = crash(path, tmp_path / "left.db")
    async with await open_store(str(left)) as store:
        assert await store.read(remembered()) == "still there"


async def test_traces_that_somebody_still_reads_stay_owed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_BUSY_TIMEOUT_MS", 1)
    path = tmp_path / "palaver.db"
    async with await open_store(str(path)) as store:
        await store.transact(owe_scrub())
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM meta").fetchone()
            await store.transact(remember("a secret"))
            with pytest.raises(StoreError, match="another process reads the database"):
                await store.scrub()
            assert await store.read(owed_scrubs())
        await store.scrub()
        assert not await store.read(owed_scrubs())


@pytest.mark.usefixtures("soon_long")
async def test_who_only_looks_has_nothing_copied(tmp_path: Path) -> None:
    """Batches that write nothing bring no checkpoint about: one beside a commit that begins the log anew is a risk."""
    path = tmp_path / "calm.db"
    async with await open_store(str(path)) as store:
        await store.transact(remember("x" * 200_000))
        before = path.stat().st_mtime_ns
        for _ in range(40):
            await store.transact(remembered())
        assert path.stat().st_mtime_ns == before
