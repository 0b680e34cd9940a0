"""Damage to files: the database, its log, its mark, the search index, copies and attachments."""

import errno
import fcntl
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from palaver.db.high_water import SLOT_BYTES, HighWater, mark_path, read_mark
from palaver.db.sqlite import MarkFile
from palaver.model.errors import StoreError
from palaver.store import opening
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.damage.checks import find_damage
from palaver.store.damage.corruption import recovery_steps
from palaver.store.damage.leftovers import copy_database, describe_leftovers
from palaver.store.damage.lost_log import known_mark
from palaver.store.opening import open_store
from palaver.store.status.health import check_all
from tests.damage.conftest import failing, salvaged
from tests.damage.kinds import run
from tests.damage.template import ANN, BEN, PICTURE, ZOE, deliver_all, exchange
from tests.store.world import OPERATOR, World

KEPT = "palaver.db"
SHA = hashlib.sha256(PICTURE).hexdigest()


# The newest rows


def kill(folder: Path, left: Path) -> None:
    """Copy the files as a process leaves them that is killed now."""
    left.mkdir()
    for file in folder.iterdir():
        if file.is_file() and not file.name.endswith("-shm"):
            shutil.copy(file, left / file.name)


async def killed(folder: Path, left: Path) -> None:
    """Something is said and answered, and then the process is killed."""
    async with await open_store(str(folder / KEPT), exclusive=True) as store:
        world = World(store)
        world.later(days=1)
        await exchange(world, BEN, "after the backup", "acknowledged")
        kill(folder, left)


def delete_log(left: Path, _: Path) -> None:
    (left / f"{KEPT}-wal").unlink()


def cut_log(left: Path, _: Path) -> None:
    log = left / f"{KEPT}-wal"
    os.truncate(log, log.stat().st_size // 4)


def put_older_copy_back(left: Path, older: Path) -> None:
    delete_log(left, older)
    shutil.copy(older / KEPT, left / KEPT)


@pytest.mark.parametrize("make", [delete_log, cut_log, put_older_copy_back])
async def test_a_lost_log_is_noticed_and_no_number_given_twice(
    folder: Path, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    older, left = tmp_path / "older", tmp_path / "left"
    shutil.copytree(folder, older)
    await killed(folder, left)
    reached = read_mark(left / KEPT)
    make(left, older)
    with pytest.raises(StoreError, match=r"lacks what was stored last \(.*turn.* palaver doctor --salvage NEW_STORE"):
        await open_store(str(left / KEPT), exclusive=True)
    async with await open_store(str(left / KEPT)) as store:
        assert "1 turn" in (await failing(store, older / "files"))["newest rows"]
        assert read_mark(left / KEPT) == reached, "looking does not lower the mark"
    new = await salvaged(left / KEPT, older / "files")
    assert any("were stored and are missing" in each.reason for each in new.left)
    async with await open_store(new.path, exclusive=True) as store:
        assert await failing(store, new.files) == {}
        world = World(store)
        world.later(days=2)
        assert await world.say("next", ANN) == reached.messages + 1
        assert await exchange(world, BEN, "go on", "yes") > reached.turns
        assert await deliver_all(world)
    await (await open_store(new.path, exclusive=True)).close()


async def test_with_its_log_nothing_is_missing(folder: Path, tmp_path: Path) -> None:
    await killed(folder, tmp_path / "left")
    async with await open_store(str(tmp_path / "left" / KEPT), exclusive=True) as store:
        assert await failing(store, folder / "files") == {}
        assert await store.search.find("acknowledged", OPERATOR)


async def test_newest_rows_that_are_deleted_are_noticed(folder: Path) -> None:
    with closing(sqlite3.connect(folder / KEPT)) as db:
        db.execute("DELETE FROM inbox WHERE no = (SELECT max(no) FROM inbox)")
        db.execute("DELETE FROM ready_queue")
        db.commit()
    async with await open_store(str(folder / KEPT)) as store:
        assert "1 message" in (await failing(store, folder / "files"))["newest rows"]


async def test_without_a_mark_the_search_index_is_a_witness(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "older")
    async with await open_store(str(folder / KEPT)) as store:
        world = World(store)
        world.later(days=1)
        await exchange(world, BEN, "indexed", "and lost")
        await store.search.catch_up()
    shutil.copy(tmp_path / "older" / KEPT, folder / KEPT)
    mark_path(folder / KEPT).unlink()
    with pytest.raises(StoreError, match="changes of transcripts"):
        await open_store(str(folder / KEPT), exclusive=True)


async def test_a_damaged_search_index_is_no_witness(folder: Path) -> None:
    for position in ("abc", 1 << 62, 999_999):
        with closing(sqlite3.connect(folder / f"{KEPT}.search")) as db:
            db.execute("UPDATE meta SET value = ? WHERE name = 'pos'", (position,))
            db.commit()
        if position != 999_999:  # it is plausible: only the mark knows better
            mark_path(folder / KEPT).unlink()
        async with await open_store(str(folder / KEPT), exclusive=True) as store:
            assert await failing(store, folder / "files") == {}
            assert await store.search.find("boats", OPERATOR)


async def test_a_mark_that_cannot_be_read_is_no_mark(folder: Path) -> None:
    for content in (b"", b"nonsense", b"9 9 9 9 00000000", b"\xff" * 96):
        mark_path(folder / KEPT).write_bytes(content)
        await (await open_store(str(folder / KEPT), exclusive=True)).close()
        assert read_mark(folder / KEPT).messages > 0


def test_the_mark_only_rises_beside_another_process(tmp_path: Path) -> None:
    """A gateway owns the database, and two commands write beside it."""
    start = HighWater(10, 10, 0, 10)
    gateway, *commands = (MarkFile(tmp_path / KEPT, start, is_shared=shared) for shared in (False, True, True))
    gateway.write(HighWater(20, 30, 0, 20))
    commands[0].write(HighWater(10, 40, 0, 10))
    commands[1].write(HighWater(10, 11, 0, 10))
    assert read_mark(tmp_path / KEPT) == HighWater(20, 40, 0, 20)
    gateway.write(HighWater(21, 35, 0, 20))
    assert read_mark(tmp_path / KEPT) == HighWater(21, 40, 0, 20)
    for each in (gateway, *commands):
        each.close()


def test_a_mark_that_could_not_be_written_still_rises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the disk")

    MarkFile(tmp_path / KEPT, HighWater(100), is_shared=False).close()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        mark = MarkFile(tmp_path / KEPT, HighWater(90), is_shared=False)
    assert mark.problem
    mark.write(HighWater(91))
    assert read_mark(tmp_path / KEPT) == HighWater(100)
    mark.close()


async def test_a_mark_of_one_slot_is_read(folder: Path) -> None:
    reached = read_mark(folder / KEPT)
    mark_path(folder / KEPT).write_bytes(mark_path(folder / KEPT).read_bytes()[SLOT_BYTES:])
    assert read_mark(folder / KEPT) == reached
    await (await open_store(str(folder / KEPT), exclusive=True)).close()


async def test_a_command_can_write_while_a_gateway_opens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_and_read_mark(path: Path, key: bytes | None) -> HighWater:
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'turns'")
            db.commit()
            (turns,) = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'turns'").fetchone()
        MarkFile(path, HighWater(turns=turns), is_shared=True).close()
        return known_mark(path, key)

    monkeypatch.setattr(opening, "known_mark", write_and_read_mark)
    await (await open_store(str(folder / KEPT), exclusive=True)).close()


async def test_that_no_mark_is_kept_is_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    mark_path(folder / KEPT).unlink()
    mark_path(folder / KEPT).mkdir()
    async with await open_store(str(folder / KEPT), exclusive=True) as store:
        checks = {check.name: check async for check in find_damage(store)}
    assert checks["newest rows"].is_warning
    assert "no mark is kept from now on: " in checks["newest rows"].found
    assert [record.__dict__.get("action") for record in caplog.records].count("mark.failed") == 1


async def test_what_is_erased_does_not_lower_the_numbers(folder: Path) -> None:
    async with await open_store(str(folder / KEPT)) as store:
        for person in ("telegram:7", "telegram:8", "telegram:11"):
            number = await store.transact(store.erasures.request(person, World(store).now, by="operator"))
            await store.erasures.run(number, World(store).now)
    async with await open_store(str(folder / KEPT), exclusive=True) as store:
        assert "newest rows" not in await failing(store, folder / "files")


# What an earlier database left


def leave_only(folder: Path, left: str) -> list[Path]:
    (folder / "palaver.db-wal").write_bytes(b"log")
    (folder / "palaver.db-journal").write_bytes(b"journal")
    for each in folder.iterdir():
        if each.name != left:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    return contents(folder)


def contents(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if not each.name.endswith(".lock"))


@pytest.mark.parametrize("left", ["palaver.db-wal", "palaver.db-journal", "palaver.db.search", "palaver.db.mark"])
async def test_no_database_is_made_beside_what_an_earlier_one_left(folder: Path, left: str) -> None:
    before = leave_only(folder, left)
    for exclusive in (False, True):
        with pytest.raises(StoreError, match=rf"is missing, but {left} of an earlier one is left") as refused:
            await open_store(str(folder / KEPT), exclusive=exclusive)
        assert "put the database back" in str(refused.value)
    assert contents(folder) == before


async def test_an_emptied_database_is_not_filled_again(folder: Path) -> None:
    (folder / KEPT).write_bytes(b"")
    with pytest.raises(StoreError, match=r"is empty, but palaver\.db\.search, palaver\.db\.mark and files"):
        await open_store(str(folder / KEPT))
    assert (folder / KEPT).read_bytes() == b""


async def test_files_of_another_database_in_the_folder_are_no_leftovers(folder: Path) -> None:
    async with await open_store(str(folder / "second.db")) as store:
        assert await failing(store, folder / "files") == {}


async def test_files_alone_can_be_those_of_a_database_elsewhere(folder: Path) -> None:
    leave_only(folder, "files")
    await (await open_store(str(folder / KEPT), exclusive=True)).close()


async def test_a_new_folder_has_no_leftovers(tmp_path: Path) -> None:
    (tmp_path / "files" / "ab").mkdir(parents=True)
    (tmp_path / "files" / "ab" / "letter.txt").write_text("no attachment")
    (tmp_path / "palaver.db-wal").touch()
    assert describe_leftovers(tmp_path / KEPT) is None


# The database file itself


async def test_an_index_that_does_not_match_its_table_is_seen_and_not_copied(folder: Path) -> None:
    """Rows are deleted while SQLite does not know of the index."""
    with closing(sqlite3.connect(folder / KEPT, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        kept = db.execute("SELECT * FROM sqlite_master WHERE name = 'mentions_by_session'").fetchone()
        db.execute("DELETE FROM sqlite_master WHERE name = 'mentions_by_session'")
    with closing(sqlite3.connect(folder / KEPT, isolation_level=None)) as db:
        db.execute("DELETE FROM mentions")
        db.execute("PRAGMA writable_schema = ON")
        db.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", kept)
    async with await open_store(str(folder / KEPT)) as store:
        assert "in index mentions_by_session" in (await failing(store, folder / "files"))["integrity"]
    new = await salvaged(folder / KEPT, folder / "files")
    async with await open_store(new.path, exclusive=True) as store:
        assert await failing(store, new.files) == {}


async def test_a_search_index_that_is_garbage_is_made_again(folder: Path) -> None:
    (folder / "palaver.db.search").write_bytes(b"garbage" * 1000)
    async with await open_store(str(folder / KEPT), exclusive=True) as store:
        assert await failing(store, folder / "files") == {}
        assert await store.search.find("boats", OPERATOR)


# Attachments


def place(folder: Path) -> Path:
    return folder / "files" / SHA[:2] / SHA


async def test_a_missing_file_is_named_and_stays_referenced(folder: Path, tmp_path: Path) -> None:
    """It can be in a backup, or the data directory of this command is another one."""
    async with await open_store(str(folder / KEPT), exclusive=True) as store:
        assert (await failing(store, tmp_path / "another"))["attachments"].startswith("1 missing, 0 damaged: ")
        assert await failing(store, folder / "files") == {}
        assert await store.read(store.attachments.list_referenced("", 10)) == [SHA]


def make_missing(file: Path) -> None:
    file.unlink()


def make_unreadable(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)  # ELOOP


def change(file: Path) -> None:
    file.write_bytes(b"another picture")


def cut(file: Path) -> None:
    file.write_bytes(PICTURE[:-1])


@pytest.mark.parametrize(
    ("damage", "seen"),
    [
        (make_missing, "1 missing, 0 damaged: "),
        (make_unreadable, "0 missing, 0 damaged, 1 cannot be read: "),
        (change, "0 missing, 1 damaged: "),
        (cut, "0 missing, 1 damaged: "),
    ],
)
async def test_a_file_that_is_not_intact_is_named_and_left_behind(
    folder: Path, damage: Callable[[Path], None], seen: str
) -> None:
    damage(place(folder))
    async with await open_store(str(folder / KEPT), exclusive=True) as store:
        assert (await failing(store, folder / "files"))["attachments"].startswith(seen)
    new = await salvaged(folder / KEPT, folder / "files")
    assert [(each.table, each.row) for each in new.left] == [("attachments", SHA)]
    async with await open_store(new.path, exclusive=True) as store:
        assert await failing(store, new.files) == {}
        assert await store.read(store.attachments.list_referenced("", 10)) == []
    assert not [each for each in new.files.rglob("*") if each.is_file()]


async def test_a_file_that_nothing_keeps_is_named(folder: Path) -> None:
    async with await open_store(str(folder / KEPT), exclusive=True) as store:
        await store.transact(run("DELETE FROM attachments"))
        found = await failing(store, folder / "files")
        assert "1 entry has a file that nothing keeps" in found["attachments of entries"]


async def test_a_file_of_nothing_is_named(folder: Path) -> None:
    async with await open_store(str(folder / KEPT), exclusive=True) as store:
        await store.transact(run(("UPDATE attachments SET holder = 99 WHERE kind = ?", ("entry",))))
        found = await failing(store, folder / "files")
        assert any("every file belongs to an entry or a message" in name for name in found)


async def test_a_file_that_is_not_used_is_no_damage(folder: Path) -> None:
    other = hashlib.sha256(b"other").hexdigest()
    (folder / "files" / other[:2]).mkdir()
    (folder / "files" / other[:2] / other).write_bytes(b"other")
    async with await open_store(str(folder / KEPT)) as store:
        checks = {check.name: check async for check in find_damage(store, BlobStore(folder / "files"))}
    assert checks["attachments"].ok
    assert "1 other is not used" in checks["attachments"].found


# Copies and locks


def test_what_a_killed_upgrade_left_is_removed_and_never_offered(folder: Path) -> None:
    file = folder / KEPT
    halves = [folder / f"{KEPT}.schema-7.123.456", folder / f"{KEPT}.schema-7.123.456-journal"]
    for half in halves:
        half.write_bytes(b"half a database")
    assert "schema-7" not in recovery_steps(file)
    copy_database(file, folder / f"{KEPT}.schema-8")
    assert not any(half.exists() for half in halves)
    assert "schema-8" in recovery_steps(file)
    assert (folder / f"{KEPT}.schema-8").stat().st_mode & 0o077 == 0


def test_a_copy_that_is_being_made_is_left_alone(folder: Path) -> None:
    half = folder / f"{KEPT}.schema-7.123.456"
    with half.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        copy_database(folder / KEPT, folder / f"{KEPT}.schema-8")
        assert half.exists()


def test_a_copy_of_another_version_is_not_kept(folder: Path) -> None:
    assert not copy_database(folder / KEPT, folder / f"{KEPT}.schema-3", 3)
    assert not [each for each in folder.iterdir() if "schema" in each.name]


async def test_lock_and_mark_are_their_owners_alone(folder: Path) -> None:
    (folder / f"{KEPT}.lock").touch(mode=0o644)
    async with await open_store(str(folder / KEPT), exclusive=True):
        for ending in (".lock", ".mark"):
            assert (folder / f"{KEPT}{ending}").stat().st_mode & 0o077 == 0


async def test_with_a_bad_page_everything_else_is_still_checked(folder: Path) -> None:
    content = bytearray((folder / KEPT).read_bytes())
    size = int.from_bytes(content[16:18], "big")
    place = content.find(b'"sweet figs"')
    while place >= 0:
        first = place // size * size
        content[first : first + size] = b"\xff" * size
        place = content.find(b'"sweet figs"')
    (folder / KEPT).write_bytes(content)
    async with await open_store(str(folder / KEPT)) as store:
        checks = {check.name: check async for check in check_all(store, World(store).now, BlobStore(folder / "files"))}
        assert "entries or one of its indexes cannot be read" in checks["integrity"].found
        assert "palaver doctor --salvage NEW_STORE" in checks["integrity"].fix
        rows = checks["entries: every row can be read and is as it was written"]
        assert not rows.ok
        assert int(rows.found.partition(" rows can be read, and the others cannot")[0]) > 10
        assert checks["sessions: every row can be read and is as it was written"].ok
        assert checks["gateways"].ok
        refused = [check for check in checks.values() if check.found.startswith("it cannot be checked")]
        assert 0 < len(refused) < len(checks) / 2
        world = World(store)
        world.later(days=1)
        await exchange(world, ZOE, "hello", "good day")
