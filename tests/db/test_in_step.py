"""Transactions that run in step: they share a commit, and each sees and leaves what it would alone."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from asyncpg.pool import PoolConnectionProxy

from palaver.db import in_step, postgres, postgres_batch
from palaver.db.transaction import (
    ConstraintViolated,
    Lock,
    Notify,
    Row,
    Statements,
    TryLock,
    Value,
    keyed,
    transaction,
)
from palaver.model.errors import StoreError, StoreUnavailable
from palaver.store.opening import open_store
from palaver.store.store import Store
from tests.store.conftest import fresh_store

MANY = 40


@pytest.fixture
async def on_postgres(postgres_server: str) -> AsyncIterator[Store]:
    async with await open_store(await fresh_store(postgres_server)) as opened:
        yield opened


@transaction
def insert(name: str) -> Statements[str]:
    yield "INSERT INTO meta (name, value) VALUES (?, ?)", (name, "0")
    rows = yield "SELECT value FROM meta WHERE name = ?", (name,)
    return rows[0][0]


@transaction
def insert_numbered(name: str) -> Statements[str]:
    """Return the number of the database transaction, too."""
    yield from insert(name)
    rows = yield "SELECT pg_current_xact_id()::text", ()
    return rows[0][0]


@transaction
def insert_and_fail(name: str) -> Statements[None]:
    yield from insert(name)
    raise LookupError(name)


@transaction
def insert_once_open(name: str, opened: asyncio.Event, cancel: Callable[[], None]) -> Statements[None]:
    yield from insert(name)
    cancel()
    opened.set()


@transaction
def count(name: str, *locks: str) -> Statements[int]:
    """Read, then write: two at once would count one."""
    for lock in locks:
        yield Lock(lock)
    rows = yield "SELECT value FROM meta WHERE name = ?", (name,)
    number = int(rows[0][0]) + 1
    yield "UPDATE meta SET value = ? WHERE name = ?", (str(number), name)
    return number


@transaction
def names(*wanted: str) -> Statements[list[str]]:
    rows = yield "SELECT name FROM meta ORDER BY name", ()
    return [row[0] for row in rows if row[0] in wanted]


@transaction
def several(*wanted: str) -> Statements[list[tuple[str, str]]]:
    rows = yield "SELECT name, value FROM meta WHERE name IN (?, ?, ?) ORDER BY name DESC", wanted
    yield "UPDATE meta SET value = value WHERE name = ?", [(name,) for name in wanted]
    return [tuple(row) for row in rows]


@transaction
def holding(locks: list[str], row: str, held: asyncio.Event) -> Statements[None]:
    """Hold locks and a row on a connection of its own, which `held` shows."""
    for lock in locks:
        yield Lock(lock)
    yield "UPDATE meta SET value = value WHERE name = ?", (row,)
    held.set()
    yield "SELECT pg_sleep(1)", ()


async def test_those_that_wait_share_a_commit(on_postgres: Store) -> None:
    found = await asyncio.gather(
        *(on_postgres.transact(keyed(f"k{each}", insert_numbered(f"row {each}"))) for each in range(MANY))
    )
    assert [*Counter(found).values()] == [MANY // 2] * 2  # two batches run at once
    assert len(await on_postgres.read(names(*(f"row {each}" for each in range(MANY))))) == MANY


async def test_on_sqlite_those_that_wait_take_turns(tmp_path: Path) -> None:
    """One with another statement catches up, one without a key runs before them, and all end together."""
    steps, has_all = list[str](), threading.Event()

    @transaction
    def noting(name: str, *texts: str) -> Statements[None]:
        for text in texts:
            steps.append(f"{name} {text}")
            yield f"SELECT '{text}'", ()

    @transaction
    def keep_writer() -> Statements[None]:
        has_all.wait(30)
        yield "SELECT 1", ()

    async with await open_store(str(tmp_path / "palaver.db")) as store:
        works = [keyed("a", noting("a", "x", "y", "z")), keyed("b", noting("b", "x", "z")), noting("c", "x", "z")]
        tasks = [asyncio.ensure_future(store.transact(work)) for work in (keep_writer(), *works)]
        await asyncio.sleep(0)
        has_all.set()
        await asyncio.gather(*tasks)
    assert steps == ["c x", "c z", "a x", "b x", "a y", "b z", "a z"]


async def test_each_gets_its_own_rows_in_their_order(store: Store) -> None:
    await asyncio.gather(*(store.transact(insert(f"{each:02}")) for each in range(MANY)))
    wanted = [(f"{each:02}", f"{(each * 7) % 50:02}", "missing") for each in range(MANY)]
    found = await asyncio.gather(*(store.transact(keyed(each[0], several(*each))) for each in wanted))
    known = {f"{each:02}" for each in range(MANY)}
    assert found == [[(name, "0") for name in sorted({*each} & known, reverse=True)] for each in wanted]


async def test_one_that_fails_leaves_the_others_alone(store: Store) -> None:
    await store.transact(insert("taken"))
    works = [
        keyed(f"k{each}", insert_and_fail("row 9") if each == 9 else insert("taken" if each == 7 else f"row {each}"))
        for each in range(MANY)
    ]
    found = await asyncio.gather(*map(store.transact, works), return_exceptions=True)
    assert isinstance(found[7], ConstraintViolated)
    assert isinstance(found[9], LookupError)
    assert all(isinstance(each, str) for place, each in enumerate(found) if place not in {7, 9})
    left = await store.read(names(*(f"row {each}" for each in range(MANY))))
    assert len(left) == MANY - 2
    assert "row 9" not in left


async def test_a_value_that_cannot_be_stored_fails_only_its_transaction(store: Store) -> None:
    works = [keyed(f"k{each}", insert(1 << 70 if each == 3 else f"row {each}")) for each in range(5)]  # pyright: ignore[reportArgumentType]
    found = await asyncio.gather(*map(store.transact, works), return_exceptions=True)
    assert [isinstance(each, StoreError | OverflowError) for each in found] == [each == 3 for each in range(5)]


async def test_one_that_is_slow_does_not_keep_the_others(on_postgres: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = postgres_batch.BEGIN_BATCH.replace("statement_timeout = '5s'", "statement_timeout = '200ms'")
    assert begin != postgres_batch.BEGIN_BATCH
    monkeypatch.setattr(postgres, "BEGIN_BATCH", begin)

    @transaction
    def insert_slowly(name: str) -> Statements[str]:
        number = yield from insert_numbered(name)
        yield "SELECT pg_sleep(1)", ()
        return number

    slow = asyncio.ensure_future(on_postgres.transact(keyed("slow", insert_slowly("slow"))))
    others = (on_postgres.transact(keyed(f"k{each}", insert_numbered(f"row {each}"))) for each in range(5))
    found = await asyncio.gather(*others)
    assert not slow.done()
    assert await slow not in found


async def test_an_error_of_the_server_is_not_the_fault_of_a_member(on_postgres: Store) -> None:
    """All get the same error, and nothing of them is there."""

    @transaction
    def break_server(name: str) -> Statements[str]:
        number = yield from insert_numbered(name)
        yield "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100'; END $$", ()
        return number

    works = [
        keyed(f"k{each}", break_server(f"row {each}") if each == 3 else insert_numbered(f"row {each}"))
        for each in range(5)
    ]
    found = await asyncio.gather(*map(on_postgres.transact, works), return_exceptions=True)
    assert all(isinstance(each, StoreUnavailable) for each in found)
    assert await on_postgres.read(names(*(f"row {each}" for each in range(5)))) == []


async def test_statements_are_recognised_however_they_are_written(store: Store) -> None:
    @transaction
    def write(name: str) -> Statements[list[str]]:
        stored = yield "INSERT INTO meta (name, value)\nVALUES (?, '0')\nRETURNING name", (name,)
        found = yield "\n  SELECT name FROM meta WHERE name = ?", (name,)
        return [row[0] for row in (*stored, *found)]

    rows = [f"row {each}" for each in range(MANY)]
    found = await asyncio.gather(*(store.transact(keyed(name, write(name))) for name in rows))
    assert found == [[name, name] for name in rows]


async def test_texts_that_are_forgotten_stop_no_batch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_step, "_MAX_TEXTS", 1)

    @transaction
    def several_texts(number: int) -> Statements[int]:
        for each in range(3):
            yield f"SELECT {each}, {number}", ()
        return number

    async def series(number: int) -> list[int]:
        return [await store.transact(keyed(f"k{number}", several_texts(number))) for _ in range(5)]

    assert await asyncio.gather(*map(series, range(8))) == [[number] * 5 for number in range(8)]


async def test_one_that_is_cancelled_leaves_nothing(on_postgres: Store) -> None:
    opened = asyncio.Event()

    def cancel() -> None:
        task.cancel()

    task = asyncio.ensure_future(on_postgres.transact(keyed("k", insert_once_open("cancelled", opened, cancel))))
    others = [
        asyncio.ensure_future(on_postgres.transact(keyed(f"k{each}", insert(f"row {each}")))) for each in range(5)
    ]
    await opened.wait()
    await asyncio.gather(*others)
    assert task.cancelled()
    assert await on_postgres.read(names("cancelled", "row 1")) == ["row 1"]


async def test_one_after_the_other_from_several_tasks(on_postgres: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_batch, "MAX_RUNNING", 1)

    async def series(name: str) -> list[int]:
        await on_postgres.transact(keyed(name, insert(name)))
        return [await on_postgres.transact(keyed(name, count(name))) for _ in range(10)]

    async with asyncio.timeout(60):
        found = await asyncio.gather(*(series(f"row {each}") for each in range(4)))
    assert found == [list(range(1, 11))] * 4


async def test_those_with_the_same_key_run_one_at_a_time_in_the_order_in_which_they_came(store: Store) -> None:
    await store.transact(insert("sum"))
    works = (keyed("one", count("sum")) for _ in range(MANY))
    assert await asyncio.gather(*map(store.transact, works)) == list(range(1, MANY + 1))


async def test_those_with_the_same_lock_run_one_at_a_time(store: Store) -> None:
    """In any order: they are in two batches, and one of these has the lock first."""
    await store.transact(insert("sum"))
    works = (keyed(f"k{each}", count("sum", "shared")) for each in range(MANY))
    assert sorted(await asyncio.gather(*map(store.transact, works))) == list(range(1, MANY + 1))


async def test_a_crowded_key_does_not_keep_the_others(on_postgres: Store) -> None:
    """Others are committed while most of its transactions still wait."""
    await on_postgres.transact(insert("sum"))
    crowd = [asyncio.ensure_future(on_postgres.transact(keyed("one", count("sum")))) for _ in range(100)]
    others = (on_postgres.transact(keyed(f"k{each}", insert(f"row {each}"))) for each in range(20))
    await asyncio.gather(*others)
    assert sum(each.done() for each in crowd) < 50
    assert await asyncio.gather(*crowd) == list(range(1, 101))


async def test_a_batch_gives_way_to_a_transaction_that_waits_for_its_lock(on_postgres: Store) -> None:
    """That one has a row which the batch needs, but neither waits for ever."""
    await on_postgres.transact(insert("sum"))
    has_row = asyncio.Event()

    @transaction
    def row_then_lock() -> Statements[None]:
        yield "UPDATE meta SET value = '10' WHERE name = 'sum'", ()
        has_row.set()
        yield "SELECT pg_sleep(0.1)", ()
        yield Lock("shared")

    alone = asyncio.ensure_future(on_postgres.transact(row_then_lock()))
    await has_row.wait()
    works = (keyed("k", count("sum", "shared")), *(keyed(f"k{each}", insert(f"row {each}")) for each in range(5)))
    async with asyncio.timeout(60):
        assert (await asyncio.gather(*map(on_postgres.transact, works)))[0] == 11
        await alone


async def test_members_that_wait_for_each_other_run_alone(store: Store) -> None:
    await store.transact(insert("sum"))
    works = (keyed("".join(order), count("sum", *order)) for order in (("a", "b"), ("b", "a")))
    assert sorted(await asyncio.gather(*map(store.transact, works))) == [1, 2]


@pytest.mark.parametrize(("locks", "row"), [(["held"], "none"), ([], "held")], ids=["a lock", "a row"])
async def test_nobody_waits_for_what_another_connection_holds(on_postgres: Store, locks: list[str], row: str) -> None:
    for each in ("held", *(f"row {number}" for number in range(10))):
        await on_postgres.transact(insert(each))
    held = asyncio.Event()
    holder = asyncio.create_task(on_postgres.transact(holding(locks, row, held)))
    await held.wait()
    waiting = asyncio.ensure_future(on_postgres.transact(keyed("k", count("held", "held"))))
    others = (on_postgres.transact(keyed(f"k{each}", count(f"row {each}"))) for each in range(10))
    assert await asyncio.gather(*others) == [1] * 10
    assert not waiting.done()
    assert not holder.done()
    assert await waiting == 1
    await holder


async def test_a_lock_that_is_only_tried_is_not_waited_for(on_postgres: Store) -> None:
    @transaction
    def attempt(name: str) -> Statements[object]:
        rows = yield TryLock(name)
        yield from insert(name)
        return rows[0][0]

    held = asyncio.Event()
    holder = asyncio.create_task(on_postgres.transact(holding(["held"], "none", held)))
    await held.wait()
    works = [keyed(name, attempt(name)) for name in ("held", "free")]
    assert await asyncio.gather(*map(on_postgres.transact, works)) == [False, True]
    assert not holder.done()
    await holder


async def test_a_batch_wakes_those_who_listen_once_it_is_committed(store: Store) -> None:
    @transaction
    def notify(name: str) -> Statements[None]:
        yield Notify(name)
        yield from insert(name)

    with store.listen("a") as first, store.listen("b") as second, store.listen("c") as third:
        with store.listen("heard") as heard:  # a connection that has just begun to listen wakes everyone
            await store.transact(notify("heard"))
            async with asyncio.timeout(60):
                await heard.wait()
        for event in (first, second, third):
            event.clear()
        await asyncio.gather(*(store.transact(keyed(name, notify(name))) for name in "ab"))
        async with asyncio.timeout(60):
            await asyncio.gather(first.wait(), second.wait())
        assert not third.is_set()


async def test_as_a_part_of_another_it_is_like_any_other(store: Store) -> None:
    @transaction
    def both() -> Statements[tuple[str, str]]:
        return (yield from keyed("k1", insert("one"))), (yield from keyed("k2", insert("two")))

    first, second = await store.transact(both())
    assert first == second


class Stopped(BaseException):
    """An error that nobody expects."""


async def test_whatever_one_raises_on_sqlite_the_others_go_on(tmp_path: Path) -> None:
    @transaction
    def insert_and_raise(name: str, error: BaseException) -> Statements[str]:
        yield from insert(name)
        raise error

    runs, has_all = Counter[str](), threading.Event()

    @transaction
    def counted(name: str) -> Statements[str]:
        runs[name] += 1
        return (yield from insert(name))

    @transaction
    def keep_writer() -> Statements[None]:
        has_all.wait(30)
        yield "SELECT 1", ()

    async with await open_store(str(tmp_path / "palaver.db")) as store:
        works = (insert_and_raise("a", MemoryError()), insert("b"), insert_and_raise("c", Stopped()), insert("d"))
        tasks = [store.transact(keyed(f"k{place}", work)) for place, work in enumerate(works)]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in found] == [MemoryError, str, Stopped, str]
        assert await store.read(names(*"abcd")) == ["b", "d"]

        waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(store.transact(keep_writer()))]
        waiting += [asyncio.ensure_future(store.transact(keyed(name, counted(name)))) for name in "efg"]
        await asyncio.sleep(0)
        waiting[2].cancel()
        await asyncio.sleep(0)
        has_all.set()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert runs == {"e": 1, "g": 1}, "one that was cancelled while it waited makes nobody run twice"


@pytest.mark.parametrize("beside", ["nobody", "others", "one that fails"])
async def test_on_sqlite_what_is_cancelled_before_its_commit_leaves_nothing(tmp_path: Path, beside: str) -> None:
    loop, has_all, is_cancelled = asyncio.get_running_loop(), threading.Event(), threading.Event()
    runs = 2 if beside == "one that fails" else 1
    begun = Counter[str]()

    @transaction
    def keep_writer() -> Statements[None]:
        has_all.wait(30)
        yield "SELECT 1", ()

    @transaction
    def insert_and_cancel() -> Statements[None]:
        yield from insert("gone")
        begun["gone"] += 1
        if begun["gone"] == runs:
            loop.call_soon_threadsafe(task.cancel)
            loop.call_soon_threadsafe(is_cancelled.set)
            is_cancelled.wait(30)

    async with await open_store(str(tmp_path / "palaver.db")) as store:
        first = asyncio.ensure_future(store.transact(keep_writer()))
        task = asyncio.ensure_future(store.transact(keyed("k", insert_and_cancel())))
        makes = {"nobody": (), "others": (insert, insert), "one that fails": (insert_and_fail,)}[beside]
        works = [make(name) for make, name in zip(makes, "ab", strict=False)]
        others = [asyncio.ensure_future(store.transact(keyed(f"k{at}", work))) for at, work in enumerate(works)]
        await asyncio.sleep(0)
        has_all.set()
        await asyncio.gather(first, task, *others, return_exceptions=True)
        assert task.cancelled()
        assert await store.read(names("gone", "a", "b")) == (["a", "b"] if beside == "others" else [])


async def test_a_question_of_many_is_asked_once(store: Store) -> None:
    @transaction
    def draw() -> Statements[str]:
        rows = yield "SELECT CAST(random() AS TEXT)", ()
        return rows[0][0]

    found = await asyncio.gather(*(store.transact(keyed(f"k{each}", draw())) for each in range(MANY)))
    assert len(set(found)) < MANY / 2  # those of a batch share the answer


async def test_rows_of_many_are_inserted_as_they_are_in_their_order(store: Store) -> None:
    """Numbers, NULL, bytes, text that needs quotes: one row or several of each."""

    @transaction
    def insert_rows(rows: list[tuple[Value, ...]]) -> Statements[None]:
        yield "INSERT INTO entries (id, role, turn_no, observed, body, checksum) VALUES (?, ?, ?, ?, ?, ?)", rows
        steps: list[tuple[Value, ...]] = [(row[0], row[1], 1, place, row[2]) for place, row in enumerate(rows)]
        yield "INSERT INTO journal (session_no, kind, first_seq, last_seq, turn_no) VALUES (?, ?, ?, ?, ?)", steps

    @transaction
    def read() -> Statements[tuple[list[Row], list[Row]]]:
        entries = yield "SELECT id, role, turn_no, observed, body, checksum FROM entries ORDER BY id", ()
        return entries, (yield "SELECT session_no, last_seq FROM journal ORDER BY pos", ())

    roles, bodies = ("user", "it's", '{"a",NULL}', "\\x00 € 😀", ""), (b"", b"\x00\xff", b"[1]", b"'{}'")
    works = [
        [
            (100 * each + place, roles[each % 5], each if each % 3 else None, 0, bodies[each % 4], None)
            for place in range(1 + each % 4)
        ]
        for each in range(MANY)
    ]
    await asyncio.gather(*(store.transact(keyed(f"k{each[0][0]}", insert_rows(each))) for each in works))
    entries, journal = await store.read(read())
    assert [tuple(row) for row in entries] == [row for rows in works for row in rows]
    for rows in works:
        numbers = [row[0] for row in rows]
        assert [tuple(row) for row in journal if row[0] in numbers] == [
            (each, place) for place, each in enumerate(numbers)
        ]


async def test_what_one_inserts_is_seen_by_its_next_row(store: Store) -> None:
    @transaction
    def insert_counted(names: list[str]) -> Statements[None]:
        counted = "INSERT INTO meta (name, value) VALUES (?, (SELECT count(*) FROM meta WHERE name LIKE ?))"
        yield counted, [(name, f"{names[0][:2]}%") for name in names]
        yield "UPDATE meta SET name = ? WHERE name = ?", [(f"{names[0]}+", names[0]), (f"{names[0]}++", f"{names[0]}+")]

    @transaction
    def read() -> Statements[list[Row]]:
        return (yield "SELECT name, value FROM meta WHERE name LIKE '%-%' ORDER BY value, name", ())

    await asyncio.gather(
        *(
            store.transact(keyed(each, insert_counted([f"{each}-{place}" for place in range(3)])))
            for each in ("aa", "bb")
        )
    )
    found = [tuple(row) for row in await store.read(read())]
    assert found == [("aa-0++", "0"), ("bb-0++", "0"), ("aa-1", "1"), ("bb-1", "1"), ("aa-2", "2"), ("bb-2", "2")]


async def test_rows_of_many_are_one_statement_on_postgres(on_postgres: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Counter[tuple[str, str]]()
    connection: Any = PoolConnectionProxy

    def counted(name: str) -> Callable[..., Any]:
        run = getattr(connection, name)

        async def counting(self: object, sql: str, *values: object, **others: object) -> Any:
            runs[sql.split(maxsplit=1)[0], name] += 1
            return await run(self, sql, *values, **others)

        return counting

    @transaction
    def insert_and_update(name: str) -> Statements[None]:
        yield "INSERT INTO meta (name, value) VALUES (?, ?)", (name, "")
        yield "UPDATE meta SET value = ? WHERE name = ?", ("changed", name)

    for name in ("execute", "executemany"):
        monkeypatch.setattr(connection, name, counted(name))
    await asyncio.gather(
        *(on_postgres.transact(keyed(f"k{each}", insert_and_update(f"{each}"))) for each in range(MANY))
    )
    assert {key: count for key, count in runs.items() if key[0] in {"INSERT", "UPDATE"}} == {
        ("INSERT", "execute"): 2,  # one in each of two batches
        ("UPDATE", "execute"): 2,
    }


@pytest.mark.parametrize("times", [1, 2], ids=["other rows", "the same rows"])
async def test_each_row_gets_its_last_value(store: Store, times: int) -> None:
    @transaction
    def update(name: str, values: list[str]) -> Statements[None]:
        yield "UPDATE meta SET value = ? WHERE name = ?", ("before", name)
        yield "UPDATE meta SET value = value || ? WHERE name = ?", [(value, name) for value in values]

    @transaction
    def read() -> Statements[list[Row]]:
        return (yield "SELECT value FROM meta WHERE name LIKE 'row %' ORDER BY name", ())

    rows = [f"row {each:02}" for each in range(MANY)]
    await asyncio.gather(*(store.transact(insert(name)) for name in rows))
    added = {name: [f" {name} {each}" for each in range(times)] for name in rows}
    await asyncio.gather(*(store.transact(keyed(name, update(name, added[name]))) for name in rows))
    assert [row[0] for row in await store.read(read())] == ["".join(["before", *added[name]]) for name in rows]
