"""The search index: never behind what is committed, and no matter what happens to it, it heals."""

import asyncio
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from palaver.model.transcript import Entry, Role
from palaver.store.conversations import deletion
from palaver.store.opening import open_store
from palaver.store.queue import turns
from palaver.store.records import SEQS, prepare
from palaver.store.search.search import Order
from palaver.store.store import Store
from tests.store.speech import tell, texts
from tests.store.world import OPERATOR, World, dm

_asyncpg: Any = asyncpg


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


# Never behind, never lost


async def test_what_was_committed_a_moment_ago_is_found(world: World) -> None:
    for number in range(40):
        await tell(world, f"grape {number}")
        assert (await texts(world.store, "grape", limit=1)) == [f"grape {number}"]


async def test_catch_up_counts_entries_once(world: World) -> None:
    await tell(world, "one", "two")
    assert await world.store.search.catch_up() == 2
    assert await world.store.search.catch_up() == 0
    await tell(world, "three")
    assert await world.store.search.catch_up() == 1
    assert await world.store.search.rebuild() == 3
    assert await texts(world.store, "two") == ["two"]


async def test_more_than_one_batch(world: World) -> None:
    """A single note in the journal may stand for thousands of entries."""
    await world.say("begin")
    begun = await world.begin()
    assert begun
    entries = [Entry(seq=0, role=Role.TOOL, at=world.now, text=f"line {number} x{number}x") for number in range(1500)]
    await world.store.transact(turns.settle(begun.turn, entries, [], world.now))
    assert await world.store.search.catch_up() == 1501
    for number in (0, 63, 64, 511, 512, 513, 1023, 1024, 1499):
        assert await texts(world.store, f"x{number}x") == [f"line {number} x{number}x"]


async def test_searching_at_the_same_time(world: World) -> None:
    for number in range(20):
        await tell(world, f"kiwi {number}")
    found = await asyncio.gather(*(texts(world.store, "kiwi") for _ in range(20)), world.store.search.rebuild())
    assert all(len(each) == 20 for each in found[:-1] if isinstance(each, list))


async def test_two_stores_on_one_database(world: World, store_url: str) -> None:
    async with await open_store(store_url) as other:
        for number in range(10):
            await tell(world, f"date {number}")
            both = await asyncio.gather(texts(other, "date"), texts(world.store, "date"))
            assert [len(each) for each in both] == [number + 1, number + 1]
        rebuilt, found = await asyncio.gather(other.search.rebuild(), texts(world.store, "date"))
        assert rebuilt <= 10
        assert len(found) == 10
        assert len(await texts(other, "date")) == 10


async def test_the_background_fills_the_index(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.store.search.search.QUIET_SECONDS", 0.01)
    await tell(world, "quietly")
    for _ in range(200):
        await asyncio.sleep(0.02)
        if await world.store.search.catch_up() == 0:
            break
    assert await texts(world.store, "quietly") == ["quietly"]


# The index file of SQLite


def _delete(path: Path) -> None:
    path.unlink()


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _garbage(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(20_000))  # noqa: S311 - the same every time


def _holes(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for start in range(4096, len(content), 8192):
        content[start : start + 4096] = random.Random(start).randbytes(4096)  # noqa: S311 - the same every time
    path.write_bytes(content)


def _older(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '0' WHERE name = 'format'")
    db.close()


def _foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE meta (something TEXT)")
    db.close()


def _emptied_tables(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM documents")
    db.close()


DAMAGES = (_delete, _truncate, _empty, _garbage, _holes, _older, _foreign, _emptied_tables)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("when", ["closed", "open"])
async def test_a_spoiled_index_heals(tmp_path: Path, damage: Callable[[Path], None], when: str) -> None:
    url, index = f"sqlite:///{tmp_path}/palaver.db", tmp_path / "palaver.db.search"
    async with await open_store(url) as store:
        world = World(store)
        for number in range(30):
            await tell(world, f"quince {number} " + "ballast " * 40)
        assert len(await texts(store, "quince", limit=50)) == 30
        if when == "open":
            damage(index)
            await tell(world, "quince after")
            assert len(await texts(store, "quince", limit=50)) == 31
    if when == "closed":
        damage(index)
        async with await open_store(url) as store:
            assert len(await texts(store, "quince", limit=50)) == 30
            assert await texts(store, '"quince 17"') == [f"quince 17 {'ballast ' * 40}"]


async def test_an_index_of_another_database_is_not_believed(tmp_path: Path) -> None:
    """As after a restore from a backup."""
    for name, said in (("a", "apricot apricot"), ("b", "blackberry")):
        async with await open_store(f"sqlite:///{tmp_path}/{name}.db") as store:
            world = World(store)
            await tell(world, said)
            if name == "a":
                await tell(world, "another")
            await store.search.catch_up()
    shutil.copy(tmp_path / "a.db.search", tmp_path / "b.db.search")
    async with await open_store(f"sqlite:///{tmp_path}/b.db") as store:
        assert await texts(store, "blackberry") == ["blackberry"]
        assert await texts(store, "apricot") == []


async def test_deleted_words_leave_the_file(tmp_path: Path) -> None:
    async with await open_store(f"sqlite:///{tmp_path}/palaver.db") as store:
        world = World(store)
        for number in range(300):
            await tell(world, f"ordinary {number} " + " ".join(f"word{number + each}" for each in range(20)))
        gone = await tell(world, "xylophonequartz lives in 东京塔", source=dm("8"))
        for number in range(300):
            await tell(world, f"ordinary again {number}")
        await store.search.catch_up()
        assert _holds(tmp_path, "xylophonequartz")
        await store.transact(deletion.delete(gone.turn.session, OPERATOR, world.now))
        await store.search.catch_up()
        for word in ("xylophonequartz", "ophonequartz", "东京", "京塔"):
            assert not _holds(tmp_path, word)
        assert len(await texts(store, "ordinary", limit=1000)) == 600
    db = sqlite3.connect(tmp_path / "palaver.db.search")
    db.execute("INSERT INTO terms (terms) VALUES ('integrity-check')")
    db.close()


def _holds(folder: Path, word: str) -> bool:
    return any(word.encode() in file.read_bytes() for file in folder.glob("palaver.db.search*"))


# PostgreSQL: commits out of order


@pytest.fixture
async def postgres(postgres_server: str) -> str:
    from tests.store.conftest import fresh_store  # noqa: PLC0415 - a fixture's helper

    return await fresh_store(postgres_server)


async def _append(connection: Any, session: int, text: str, now: datetime) -> None:
    rows = await connection.fetch(
        "UPDATE sessions SET next_seq = next_seq + 1 WHERE no = $1 RETURNING next_seq - 1", session
    )
    ready = prepare(Entry(seq=0, role=Role.USER, at=now, text=text))
    await connection.execute(
        "INSERT INTO entries (id, role, observed, body) VALUES ($1, $2, 0, $3)",
        session * SEQS + rows[0][0],
        ready.role,
        ready.placed(rows[0][0]),
    )
    await connection.execute(
        "INSERT INTO journal (session_no, kind, first_seq, last_seq) VALUES ($1, 'append', $2, $2)", session, rows[0][0]
    )


async def test_late_commits_are_not_passed_over(postgres: str) -> None:
    async with await open_store(postgres) as store:
        world = World(store)
        sessions_ = [(await tell(world, f"hello {user}", source=dm(user))).turn.session_number for user in "12"]
        late = await _asyncpg.connect(postgres)
        transaction = late.transaction()
        await transaction.start()
        await _append(late, sessions_[0], "melon early in, late out", world.now)
        for number in range(5):
            await tell(world, f"melon {number}", source=dm("2"))
            assert len(await texts(store, "melon")) == number + 1
        await transaction.commit()
        assert len(await texts(store, "melon")) == 6
        await late.close()
        assert await texts(store, "late") == ["melon early in, late out"]
        connection = await _asyncpg.connect(postgres)
        assert await connection.fetchval("SELECT count(*) FROM search_ahead") == 0
        assert await connection.fetchval("SELECT count(*) FROM search_documents") == 8
        await connection.close()


async def test_no_entry_is_missed_among_concurrent_writers(postgres: str) -> None:
    async with await open_store(postgres) as store, await open_store(postgres) as other:
        world = World(store)
        numbers = [(await tell(world, "hello", source=dm(str(user)))).turn.session_number for user in range(6)]
        chance, done = random.Random(3), set[str]()  # noqa: S311 - the same every time

        async def write(writer: int) -> None:
            connection = await _asyncpg.connect(postgres)
            for number in range(15):
                async with connection.transaction():
                    await _append(connection, numbers[writer], f"berry w{writer}n{number}", world.now)
                    await asyncio.sleep(chance.random() * 0.02)
                done.add(f"berry w{writer}n{number}")
            await connection.close()

        writers = [asyncio.create_task(write(writer)) for writer in range(6)]
        while not all(writer.done() for writer in writers):
            for each in (store, other):
                expected = set(done)
                assert expected <= set(await texts(each, "berry", limit=500))
        await asyncio.gather(*writers)
        assert len(await texts(store, "berry", limit=500)) == 90


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TABLE search_documents",
        "DROP TABLE search_mark",
        "DELETE FROM search_mark",
        "ALTER TABLE search_documents DROP COLUMN terms",
        "UPDATE search_mark SET format = '0'",
        "UPDATE search_mark SET xid = '9000000000000'",
        "UPDATE journal SET xid = '9000000000000'",
    ],
)
async def test_spoiled_tables_heal(postgres: str, damage: str) -> None:
    async with await open_store(postgres) as store:
        world = World(store)
        await tell(world, "nectarine one")
        assert len(await texts(store, "nectarine")) == 1
        connection = await _asyncpg.connect(postgres)
        await connection.execute(damage)
        await connection.close()
        await tell(world, "nectarine two")
        assert len(await texts(store, "nectarine")) == 2
        assert len(await texts(store, "nectarine", order=Order.BEST)) == 2
