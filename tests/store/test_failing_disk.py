"""Any write or flush can fail, and the power at any instant: the caller learns it, the store is whole, a retry works.

SQLite itself runs on a disk that fails the n-th call, for every n of a conversation with everything in it.
"""

import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest

from palaver.db.schema import known_migrations
from palaver.db.sqlite import run_statements
from palaver.db.transaction import Row, Statements, transaction
from palaver.model.errors import StoreUnavailable
from palaver.store import opening
from palaver.store.opening import open_store
from palaver.store.records import placeholders
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.empty import write_empty_store
from tests.store.failing_disk import DiskError, FailingDisk, failing_every, installed
from tests.store.scenario import SCENARIO, Picture, Step, take_picture

CONNECT = sqlite3.connect
IN_PARTS = {"search", "erase"}
"""Steps of several transactions: what is done of them stays done."""
Rows = dict[str, list[Row]]


@pytest.fixture(autouse=True)
def _fill_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is looked at in every call: on a slow machine a thread that fills the index would do it meanwhile."""
    monkeypatch.setattr("palaver.store.search.search.QUIET_SECONDS", 3600.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_empty_store(tmp_path / "palaver.db")
    return tmp_path / "palaver.db"


@pytest.fixture
def disk(path: Path) -> Iterator[FailingDisk]:
    assert path.exists()
    with installed() as made:
        yield made


@pytest.fixture
async def store(path: Path, disk: FailingDisk) -> AsyncIterator[Store]:
    async with await open_store(str(path)) as opened:
        yield opened
        assert not disk.heal()


@transaction
def every_row() -> Statements[Rows]:
    found: Rows = {}
    for (name,) in (yield "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name", ()):
        found[name] = yield f"SELECT * FROM {name}", ()  # noqa: S608 - our own words
    return found


async def attempt(store: Store, disk: FailingDisk, step: Step, before: Rows, *, error: DiskError, after: int) -> bool:
    """Run a step while the call after so many fails. Gives whether it is done; if not, nothing has changed."""
    disk.fail(error, after)
    try:
        await step.run(store)
    except StoreUnavailable:
        assert disk.heal(), f"{step.name} failed by itself"
        if step.name in IN_PARTS:
            assert await store.read(violations()) == [], step.name
        else:
            assert await store.read(every_row()) == before, f"{step.name} happened in part"
        return False
    assert not disk.heal() or step.name in IN_PARTS, f"{step.name} succeeded though call {after} failed"
    return True


@pytest.mark.parametrize("error", DiskError)
async def test_if_any_call_fails_the_caller_learns_it_and_a_retry_completes(
    store: Store, disk: FailingDisk, tmp_path: Path, error: DiskError
) -> None:
    failures = 0
    for step in SCENARIO:
        before, failed_before = await store.read(every_row()), failures
        for after in count():
            if await attempt(store, disk, step, before, error=error, after=after):
                break
            failures += 1
        assert failures > failed_before or step.name in IN_PARTS, f"{step.name} is done before it is on the disk"
        assert await store.read(violations()) == [], step.name
        told = await store.read(take_picture())
        assert left_behind(disk, tmp_path / "copy") == told, step.name
    assert error.call == "flush" or failures > 300


async def test_after_a_disk_was_full_for_a_while_everything_goes_on(store: Store, disk: FailingDisk) -> None:
    for step in SCENARIO:
        disk.fail(DiskError.FULL, 0, for_good=True)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await step.run(store)
            await store.read(take_picture())
        disk.heal()
        await step.run(store)
    assert await store.read(violations()) == []


async def test_a_new_store_on_a_full_disk_is_refused_at_the_first_write(tmp_path: Path) -> None:
    with installed() as disk:
        disk.fail(DiskError.FULL, 0, for_good=True)
        with pytest.raises(StoreUnavailable):
            await open_store(str(tmp_path / "palaver.db"))
        assert disk.calls == ["write"]


# Upgrades


VERSION = known_migrations()[-4].number
"""Of the store that is upgraded."""
EVERY = {"write": 11, "flush": 1}
"""Most of the writes are those of the backup, and alike."""


async def old_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store as it was, with a conversation in it."""
    with monkeypatch.context() as then:
        then.setattr(opening, "known_migrations", lambda: known_migrations()[:-3])
        store = await open_store(str(path))
    async with store:
        for name in ("m1", "m2"):
            await store.transact(raw_message(name))


@transaction
def raw_message(name: str) -> Statements[None]:
    columns = "message_id, chat, platform, key, state, received, identity, body"
    body = b'{"source": {"platform": "irc", "chat_id": "c", "user_id": "u"}, "text": "hi"}'
    values = (name, "c", "irc", "agent:main:irc:dm:c", "done", 1, "irc:u", body)
    yield f"INSERT INTO inbox ({columns}) VALUES ({placeholders(values)})", values  # noqa: S608 - our own words


@transaction
def messages() -> Statements[list[Row]]:
    return (yield "SELECT message_id FROM inbox", ())


@pytest.mark.parametrize("error", DiskError)
async def test_an_upgrade_on_a_failing_disk_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: DiskError
) -> None:
    await old_store(tmp_path / "old.db", monkeypatch)
    for after in count(step=EVERY[error.call]):
        path = tmp_path / str(after) / "palaver.db"
        path.parent.mkdir()
        shutil.copy(tmp_path / "old.db", path)
        with installed() as disk:
            disk.fail(error, after)
            with suppress(StoreUnavailable):
                async with await open_store(str(path)):
                    pass
            has_failed = disk.heal()
            async with await open_store(str(path)) as store:
                assert await store.read(violations()) == []
                assert len(await store.read(messages())) == 2
        backups = {file.name.rpartition("-")[2]: file for file in path.parent.glob("palaver.db.schema-*")}
        for version, file in backups.items():
            with closing(CONNECT(file)) as backup:
                assert backup.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone() == (version,)
        assert str(VERSION) in backups
        if not has_failed:
            break


# Power


def left_behind(disk: FailingDisk, folder: Path, chance: random.Random | None = None) -> Picture:
    """What SQLite makes of what a power failure leaves; without chance, nothing that was not flushed survives."""
    folder.mkdir(exist_ok=True)
    disk.leave_behind(folder, chance)
    with closing(CONNECT(folder / "palaver.db", isolation_level=None)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert run_statements(db, iter(violations()), set()) == []
        return run_statements(db, iter(take_picture()), set())


async def test_power_lost_at_any_write_leaves_all_that_was_acknowledged_and_nothing_half(
    store: Store, disk: FailingDisk, tmp_path: Path
) -> None:
    chance, before = random.Random(1), await store.read(take_picture())  # noqa: S311 - a simulation
    for step in SCENARIO:
        found: list[Picture] = []
        often = 0.1 if step.name in IN_PARTS else 0.5

        def look(found: list[Picture] = found, often: float = often) -> None:
            if chance.random() < often:
                found.append(left_behind(disk, tmp_path / "copy", chance))

        disk.on_call = look
        await step.run(store)
        disk.on_call = lambda: None
        after = await store.read(take_picture())
        assert left_behind(disk, tmp_path / "copy", chance) == after, step.name
        if step.name not in IN_PARTS:
            assert all(each in (before, after) for each in found), step.name
        before = after


async def test_a_disk_that_fails_again_and_again_is_noticed_by_nobody_who_tries_again(tmp_path: Path) -> None:
    """A sample of what `PALAVER_FAIL_DISK` does to the whole suite of the store."""
    for n in (2, 3, 7):
        path = tmp_path / str(n) / "palaver.db"
        path.parent.mkdir()
        write_empty_store(path)
        with failing_every(n) as disk:
            async with await open_store(str(path)) as store:
                for step in SCENARIO:
                    await step.run(store)
                    assert await store.read(violations()) == [], step.name
            assert disk.failures > 20
