"""The virtual loop: time costs nothing, everything has its order, and whole processes can stand still."""

import asyncio
import time
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

import pytest

from tests.simulation.loop import PROCESS, Process, Stuck, VirtualLoop, run


def start(process: Process, coro: Coroutine[Any, Any, None]) -> None:
    context = copy_context()
    context.run(PROCESS.set, process)
    asyncio.get_running_loop().create_task(coro, context=context)


def test_a_day_passes_at_once() -> None:
    async def wait() -> float:
        await asyncio.sleep(24 * 3600)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert run(wait(), VirtualLoop()) == pytest.approx(24 * 3600)  # pyright: ignore[reportUnknownMemberType]
    assert time.monotonic() - began < 60


def test_a_lock_that_waits_for_nobody_is_found() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="nothing can run any more"):
        run(wait(), VirtualLoop())


def test_a_process_that_stands_still_goes_on_where_it_was() -> None:
    ticks: list[float] = []
    loop = VirtualLoop()

    async def tick() -> None:
        for _ in range(4):
            await asyncio.sleep(1)
            ticks.append(loop.time())

    async def main() -> None:
        process = Process("p")
        start(process, tick())
        await asyncio.sleep(1.5)
        process.stands = True
        await asyncio.sleep(10)
        assert ticks == [1]
        loop.let_go(process)
        await asyncio.sleep(10)
        assert not process.alive

    run(main(), loop)
    assert ticks == [1, 11.5, 12.5, 13.5]


def test_sets_of_tasks_have_an_order() -> None:
    async def nothing() -> None: ...

    async def main() -> list[int]:
        tasks = [asyncio.create_task(nothing()) for _ in range(50)]
        return [tasks.index(task) for task in set(tasks)]

    assert run(main(), VirtualLoop()) == run(main(), VirtualLoop())
