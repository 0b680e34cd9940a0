"""The simulated database: what is cancelled in time leaves no trace, what is committed stays though nobody hears."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from palaver.db.transaction import Notify, Statements, transaction
from palaver.model.errors import StoreUnavailable
from tests.simulation.database import Door, SharedDatabase
from tests.simulation.loop import Process, VirtualLoop, run
from tests.simulation.trace import Trace


@transaction
def write(name: str) -> Statements[None]:
    yield "INSERT INTO meta (name, value) VALUES (?, '')", (name,)
    yield Notify("news")


@transaction
def written() -> Statements[list[str]]:
    rows = yield "SELECT name FROM meta WHERE name NOT IN ('schema', 'summed') ORDER BY name", ()
    return [row[0] for row in rows]


def database(seed: int = 1) -> SharedDatabase:
    return SharedDatabase(random.Random(seed), Trace())  # noqa: S311 - a simulation


def play(main: Coroutine[Any, Any, None]) -> None:
    run(main, VirtualLoop())


def test_what_is_cancelled_before_the_commit_leaves_no_trace() -> None:
    async def main() -> None:
        shared = database()
        task = asyncio.create_task(Door(shared, Process("p")).transact(write("a")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(10)
        assert not shared.look(written())

    play(main())


def test_an_answer_can_be_lost_before_the_commit_and_after_it() -> None:
    async def main() -> None:
        shared, lost = database(), 0
        shared.lost = 0.5
        door = Door(shared, Process("p"))
        for number in range(30):
            try:
                await door.transact(write(f"{number:02}"))
            except StoreUnavailable:
                lost += 1
        stands = len(shared.look(written()))
        assert 30 - lost < stands < 30

    play(main())


def test_an_error_at_any_statement_leaves_nothing() -> None:
    async def main() -> None:
        shared = database()
        shared.errors = 1.0
        for number in range(20):
            with pytest.raises(StoreUnavailable, match="disk I/O error"):
                await Door(shared, Process("p")).transact(write(str(number)))
        assert not shared.look(written())

    play(main())


def test_a_full_disk_takes_nothing_more_but_can_be_read() -> None:
    async def main() -> None:
        shared = database()
        door = Door(shared, Process("p"))
        await door.transact(write("a"))
        shared.disk.is_full = True
        with pytest.raises(StoreUnavailable, match="full"):
            await door.transact(write("b"))
        assert await door.read(written()) == ["a"]
        shared.disk.is_full = False
        await door.transact(write("c"))
        assert await door.read(written()) == ["a", "c"]

    play(main())


def test_on_a_slow_disk_one_waits_for_the_other() -> None:
    async def main() -> None:
        shared = database()
        shared.latency = 1.0
        await asyncio.gather(*(Door(shared, Process("p")).transact(write(str(number))) for number in range(20)))
        assert asyncio.get_running_loop().time() > 10

    play(main())


async def lose_power_in_a_commit(seed: int, trace: Trace | None = None) -> list[str]:
    """One write was acknowledged, another is on its way."""
    shared = SharedDatabase(random.Random(seed), trace or Trace())  # noqa: S311 - a simulation
    door, committed = Door(shared, Process("p")), asyncio.Event()
    await door.transact(write("a"))
    shared.meet = lambda _, where: committed.set() if where == "committed write" else None
    answer = asyncio.create_task(door.transact(write("b")))
    await committed.wait()
    shared.lose_power()
    with pytest.raises(StoreUnavailable, match="not known"):
        await answer
    found = shared.look(written())
    await door.transact(write("c"))
    assert shared.look(written()) == [*found, "c"]
    return found


def test_a_power_failure_takes_only_what_was_not_acknowledged() -> None:
    found = [run(lose_power_in_a_commit(seed), VirtualLoop()) for seed in range(20)]
    assert {tuple(each) for each in found} == {("a",), ("a", "b")}


def test_a_torn_write_is_as_if_it_had_not_been() -> None:
    """Only the first part of it reached the file before the power failed."""
    torn = 0
    for seed in range(40):
        trace = Trace()
        found = run(lose_power_in_a_commit(seed, trace), VirtualLoop())
        if any("the last write is torn" in line for line in trace.lines):
            torn += 1
            assert found == ["a"], seed
    assert torn > 5


def test_a_listener_is_woken_after_the_commit_and_a_dead_process_gets_no_answer() -> None:
    async def main() -> None:
        shared, process = database(), Process("p")
        door = Door(shared, process)
        with door.listen("news") as news:
            await Door(shared, Process("q")).transact(write("a"))
            await news.wait()
        process.dead = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await door.read(written())

    play(main())
