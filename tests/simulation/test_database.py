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


def database() -> SharedDatabase:
    return SharedDatabase(random.Random(1), Trace())  # noqa: S311 - a simulation


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


def test_whoever_listens_is_woken_after_the_commit_and_a_dead_process_gets_no_answer() -> None:
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
