"""A salvage copies everything readable, names the rest, changes nothing in the damaged store, and can begin anew."""

import asyncio
import random
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palaver.db.cipher import is_encrypted
from palaver.db.tables import copy_order
from palaver.model.errors import NewerSchema, StoreError
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.damage.salvage import Files, salvage
from palaver.store.opening import open_store
from tests.damage.conftest import failing, salvaged
from tests.damage.kinds import run
from tests.damage.template import BEN_ALONE, build
from tests.damage.test_rows import compare, rows_of
from tests.forkserver import ROOT, start_module
from tests.store.conftest import fresh_database, fresh_store

NOW = datetime(2026, 6, 1, tzinfo=UTC)
KEPT = "palaver.db"
KEY = b"thirty-two bytes for tests only!"


async def test_of_an_intact_store_nothing_is_left_behind(folder: Path) -> None:
    async with await open_store(str(folder / KEPT)) as store:
        before = await rows_of(store)
    new = await salvaged(folder / KEPT, folder / "files")
    assert new.left == ()
    async with await open_store(new.path, exclusive=True) as store:
        compare(before, await rows_of(store), set())
        assert await failing(store, new.files) == {}
        assert {hit.entry.text for hit in await store.search.find("boats", BEN_ALONE) if hit.entry} >= {"boats"}
    assert [each.read_bytes() for each in new.files.rglob("*") if each.is_file()] == [
        each.read_bytes() for each in (folder / "files").rglob("*") if each.is_file()
    ]


def overwrite_roots(path: Path, tables: Sequence[str]) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = db.execute("PRAGMA page_size").fetchone()
        roots = dict(db.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'"))
    content = bytearray(path.read_bytes())
    for table in tables:
        content[(roots[table] - 1) * size : roots[table] * size] = b"\xff" * size
    path.write_bytes(content)


def overwrite_last_page(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-4096:] = b"\0" * 4096
    path.write_bytes(content)


def overwrite(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


@pytest.mark.parametrize("seed", range(4))
async def test_around_damaged_pages_everything_that_belongs_to_nothing_lost_is_copied(folder: Path, seed: int) -> None:
    path = folder / KEPT
    async with await open_store(str(path)) as store:
        before = await rows_of(store)
    tables = [table.name for table in copy_order() if table.name not in {"meta", "set_aside"}]
    lost = random.Random(seed).sample(tables, 3)  # noqa: S311
    overwrite_roots(path, lost)
    new = await salvaged(path, folder / "files")
    assert set(lost) <= {each.table for each in new.left}
    async with await open_store(new.path, exclusive=True) as store:
        assert await failing(store, new.files) == {}
        readable = {table: rows for table, rows in before.items() if table not in lost}
        compare(readable, await rows_of(store), {(each.table, each.row) for each in new.left}, unread=set(lost))


async def test_an_encrypted_store_is_salvaged_into_an_encrypted_one(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged" / KEPT
    async with await open_store(str(damaged), key=KEY) as store:
        await build(store, tmp_path / "damaged" / "files")
    overwrite_last_page(damaged)
    new = await salvaged(damaged, tmp_path / "damaged" / "files", KEY)
    assert is_encrypted(Path(new.path))
    async with await open_store(new.path, key=KEY, exclusive=True) as store:
        assert await failing(store, new.files) == {}
        assert await store.read(run("SELECT count(*) FROM entries"))


async def test_killed_anywhere_it_begins_anew_and_doubles_nothing(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / KEPT
    for step in (3, 15):
        child = start_module("tests.damage.salvage_child", str(folder / KEPT), str(target), str(step), cwd=ROOT)
        assert await asyncio.to_thread(child.wait) == -signal.SIGKILL
        with pytest.raises(StoreError, match="incomplete copy of damaged"):
            await open_store(str(target))
    async with await open_store(str(folder / KEPT)) as store:
        before = await rows_of(store)
    done = await salvage(str(folder / KEPT), str(target), "damaged", NOW)
    assert done.left == ()
    async with await open_store(str(target)) as store:
        compare(before, await rows_of(store), set())
    with pytest.raises(StoreError, match="not empty"):
        await salvage(str(folder / KEPT), str(target), "damaged", NOW)


async def test_what_a_newer_palaver_wrote_is_refused(folder: Path, tmp_path: Path) -> None:
    async with await open_store(str(folder / KEPT)) as store:
        await store.transact(run("UPDATE meta SET value = '999' WHERE name = 'schema'"))
    with pytest.raises(NewerSchema):
        await salvage(str(folder / KEPT), str(tmp_path / "new.db"), "damaged", NOW)


async def test_blocks_of_postgres_that_cannot_be_read_are_passed_over(postgres_server: str, tmp_path: Path) -> None:
    """A new database is a copy of files that nobody has read: what is overwritten there is read from the disk."""
    url = await fresh_store(postgres_server)
    files = tmp_path / "files"
    async with await open_store(url) as store:
        await build(store, files)
        before = await rows_of(store)
    damaged = await fresh_database(postgres_server, url.partition("?")[0].rpartition("/")[2])
    lost = ("links", "access_log")
    async with await open_store(damaged) as store:
        where = "current_setting('data_directory') || '/' || pg_relation_filepath"
        places = await store.read(run(f"SELECT {', '.join(f'{where}({table!r})' for table in lost)}"))
    for place in places[0]:
        overwrite(Path(place))
    new = await fresh_store(postgres_server)
    done = await salvage(damaged, new, "damaged", NOW, files=Files(BlobStore(files), None))
    named = {(each.table, each.row) for each in done.left}
    assert {(table, "block 0") for table in lost} <= named
    async with await open_store(new) as store:
        assert await failing(store, files) == {}
        compare(before, await rows_of(store), named, unread=lost)
