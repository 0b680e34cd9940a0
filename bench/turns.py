"""Turns of four entries and sends beside the bare driver: one after the other, and turns from 64 tasks at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

from bench.engines import Engine
from bench.measure import Bare, Figure, Sides, ratio_at_most, set_aside, side_by_side
from bench.populate import LEASE, NOON, answer_of, running_turns
from bench.raw import Script
from bench.workshop import Workshop
from palaver.cli.loop import run
from palaver.db.transaction import Transaction
from palaver.model.turn import Delivery, Turn
from palaver.store.opening import open_store
from palaver.store.queue import outbox

__all__ = ["ALONE", "AT_ONCE", "rate", "sending", "sixty_four", "turn", "turns_64"]

T = TypeVar("T")
WORKER = "bench"
ALONE = 400
_TASKS = 64
_ROUND = 512
AT_ONCE = _ROUND * 12


def turn(workshop: Workshop, engine: Engine) -> Iterator[Figure]:
    path = workshop.running(ALONE)
    works = [answer_of(each) for each in running_turns(path)]
    sides = run(_one_by_one(engine, works, engine.copy(path), engine.copy(path)))
    bare = Bare(name=engine.driver, value=sides.other)
    yield Figure(name=f"{engine.prefix}.turn", value=sides.ours, bare=bare, limit=ratio_at_most(1.5, goal=1.2))


def sending(workshop: Workshop, engine: Engine) -> Iterator[Figure]:
    """The commit before each request, which says that it leaves."""
    path = workshop.copy(workshop.running(ALONE))
    claimed = run(_claim_answers(path))
    works = [outbox.begin_send(each, WORKER, NOON + LEASE) for each in claimed]
    sides = run(_one_by_one(engine, works, engine.copy(path), engine.copy(path)))
    bare = Bare(name=engine.driver, value=sides.other)
    yield Figure(name=f"{engine.prefix}.sending", value=sides.ours, bare=bare)


async def _claim_answers(path: Path) -> Sequence[Delivery]:
    async with await open_store(str(path), exclusive=True) as store:
        for each in running_turns(path):
            await store.transact(answer_of(each))
        return await store.transact(outbox.claim(WORKER, NOON, LEASE, limit=ALONE))


async def _one_by_one(engine: Engine, works: Sequence[Transaction[object]], url: str, other: str) -> Sides:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(await open_store(url, exclusive=True))
        scripts = await _scripts(engine, other, works)
        raw = await engine.raw(other)
        stack.push_async_callback(raw.close)
        set_aside()

        async def ours(number: int) -> None:
            await store.transact(works[number])

        async def theirs(number: int) -> None:
            await raw.transact(scripts[number])

        return await side_by_side(ours, theirs, rounds=len(works) - 1, between=raw.between)


def turns_64(workshop: Workshop, engine: Engine) -> Iterator[Figure]:
    path = workshop.running(AT_ONCE)
    sides = run(sixty_four(engine, running_turns(path), engine.copy(path), engine.copy(path)))
    yield rate(f"{engine.prefix}.turns_64", engine, sides)


def rate(name: str, engine: Engine, sides: Sides, note: str = "") -> Figure:
    bare = Bare(name=engine.crowd_name, value=1 / sides.other)
    return Figure(name=name, value=1 / sides.ours, unit="/s", bare=bare, limit=engine.at_once, note=note)


async def sixty_four(engine: Engine, turns: Sequence[Turn], url: str, other: str) -> Sides:
    """Seconds per turn. The rows of the bare side are ready before the clock starts."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(await open_store(url, exclusive=True))
        scripts = await _scripts(engine, other, [answer_of(each) for each in turns])
        crowd = await engine.crowd(other)
        stack.push_async_callback(crowd.close)
        set_aside()

        async def settle(each: Turn) -> None:
            await store.transact(answer_of(each))

        async def ours(number: int) -> None:
            await _all_at_once(settle, _share(turns, number))

        async def theirs(number: int) -> None:
            await _all_at_once(crowd.transact, _share(scripts, number))

        sides = await side_by_side(ours, theirs, rounds=len(turns) // _ROUND - 1, between=crowd.between)
    return Sides(ours=sides.ours / _ROUND, other=sides.other / _ROUND)


async def _scripts(engine: Engine, url: str, works: Sequence[Transaction[object]]) -> list[Script]:
    """What the bare side is to run. On a connection of its own: neither side has seen a page when the clock starts."""
    raw = await engine.raw(url)
    scripts = [await raw.record(each) for each in works]
    await raw.close()
    return scripts


def _share(items: Sequence[T], number: int) -> Sequence[T]:
    """What round `number` takes."""
    return items[number * _ROUND : (number + 1) * _ROUND]


async def _all_at_once(transact: Callable[[T], Awaitable[object]], items: Sequence[T]) -> None:
    async def task(mine: Sequence[T]) -> None:
        for item in mine:
            await transact(item)

    await asyncio.gather(*(task(items[first::_TASKS]) for first in range(_TASKS)))
