"""Histories of concurrent transactions: whatever shared a batch, some order of all of them explains it.

Each transaction appends its number to lists and returns them as it found them. So the lists show in which order the
transactions took place on each key, and together these orders must not contradict each other, nor the clock.
"""

import asyncio
import random
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from graphlib import TopologicalSorter
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from palaver.db.transaction import Lock, Statements, keyed, transaction
from palaver.model.errors import StoreUnavailable
from palaver.store.opening import open_store
from palaver.store.store import Store
from tests.db.pooler import pooling
from tests.store.conftest import fresh_store
from tests.store.outages import Cut, Proxy, Server

KEYS = tuple(f"key {number}" for number in range(8))
SHARED = ("shared 1", "shared 2")
TASKS, ROUNDS = 24, 8


class GivenUp(Exception): ...


class Done(NamedTuple):
    number: int
    began: int
    ended: int
    found: dict[str, list[int]]


@transaction
def append(number: int, names: tuple[str, ...], *, gives_up: bool = False) -> Statements[dict[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for name in names:
        yield Lock(name)
        rows = yield "SELECT value FROM meta WHERE name = ?", (name,)
        found[name] = [int(each) for each in rows[0][0].split()]
        yield "UPDATE meta SET value = ? WHERE name = ?", (f"{rows[0][0]} {number}", name)
    if gives_up:
        raise GivenUp
    return found


@transaction
def lists() -> Statements[dict[str, list[int]]]:
    rows = yield "SELECT name, value FROM meta WHERE name LIKE 'key %' OR name LIKE 'shared %'", ()
    return {name: [int(each) for each in value.split()] for name, value in rows}


class History:
    """What several tasks did on several stores, with their times by a clock that only counts."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self._numbers = count(1)
        self._clock = count()
        self.done: list[Done] = []
        self.given_up: set[int] = set()
        self.unknown: set[int] = set()

    async def work(self, store: Store) -> None:
        for _ in range(ROUNDS):
            await self._one(store)

    async def _one(self, store: Store) -> None:
        number, key, kind = next(self._numbers), self._random.choice(KEYS), self._random.random()
        names, began = (key,), next(self._clock)
        if kind < 0.3:
            names = (key, self._random.choice(SHARED))
        elif kind < 0.4:
            names = tuple(sorted(self._random.sample(KEYS, 2)))
        gives_up = 0.4 < kind < 0.5
        work = append(number, names, gives_up=gives_up)
        if set(names[1:]) <= set(SHARED):  # two keys are not one conversation
            work = keyed(key, work)
        task = asyncio.ensure_future(store.transact(work))
        if 0.5 < kind < 0.55:
            await asyncio.sleep(self._random.random() / 100)
            task.cancel()
        try:
            found = await task
            self.done.append(Done(number, began, next(self._clock), found))
        except GivenUp:
            self.given_up.add(number)
        except StoreUnavailable:  # the connection was lost during the commit
            self.unknown.add(number)
        except asyncio.CancelledError:
            assert 0.5 < kind < 0.55

    def check(self, lists: dict[str, list[int]]) -> None:
        """Find an order of all transactions that explains every list."""
        order = TopologicalSorter[int]()
        for name, numbers in lists.items():
            assert len(numbers) == len(set(numbers)), f"{name}: done twice"
            assert not self.given_up & set(numbers), f"{name}: given up, but there"
            for earlier, later in pairwise(numbers):
                order.add(later, earlier)
        for each in self.done:
            for name, found in each.found.items():
                assert lists[name][: len(found) + 1] == [*found, each.number], f"{name}: {each.number}"
        for each in self.done:  # the clock counts, too
            for other in self.done:
                if other.ended < each.began:
                    order.add(each.number, other.number)
        order.prepare()  # raises CycleError if they contradict each other


@pytest.fixture
def server() -> Iterator[Server]:
    folder = tempfile.mkdtemp(prefix="palaver-outage-")
    started = Server(folder)
    try:
        yield started
    finally:
        started.close()
        shutil.rmtree(folder, ignore_errors=True)


async def run(seed: int, *urls: str, meanwhile: Callable[[], Coroutine[Any, Any, None]] | None = None) -> History:
    """Many tasks, on a store for each URL."""
    history = History(seed)
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(await open_store(url)) for url in urls]
        for name in (*KEYS, *SHARED):
            await stores[0].transact(_start(name))
        async with asyncio.TaskGroup() as group:
            for number in range(TASKS):
                group.create_task(history.work(stores[number % len(stores)]))
            if meanwhile:
                group.create_task(meanwhile())
        history.check(await stores[0].read(lists()))
    return history


@pytest.mark.parametrize("seed", range(2))
async def test_some_order_explains_all(store_url: str, seed: int) -> None:
    history = await run(seed, store_url, store_url)
    assert len(history.done) > TASKS * ROUNDS / 2
    assert not history.unknown


async def test_behind_a_pooler(postgres_server: str) -> None:
    """Each batch gets another connection of the server."""
    url = await fresh_store(postgres_server)
    async with pooling(url, per_transaction=True) as pooled:
        history = await run(3, f"{pooled}?direct={parse_qs(urlsplit(url).query)['host'][0]}", url)
    assert not history.unknown


async def test_connections_that_are_cut(server: Server) -> None:
    """At any statement or commit, and the server restarts: what returned is there, and nothing is there twice."""
    url, chance = await fresh_store(server.url), random.Random(4)  # noqa: S311
    with tempfile.TemporaryDirectory(prefix="palaver-proxy-") as folder:
        async with Proxy(server, url, Path(folder)).running() as proxy:

            async def disturb() -> None:
                for number in range(30):
                    proxy.fail_at(chance.choice((b"", b"COMMIT;")), chance.choice(tuple(Cut)), chance.randrange(10))
                    await asyncio.sleep(0.05)
                    if number == 10:
                        await asyncio.to_thread(server.restart, "immediate")
                proxy.forget_fault()

            history = await run(5, url, proxy.url, meanwhile=disturb)
            assert proxy.faults
    assert len(history.done) > TASKS * ROUNDS / 3


@transaction
def _start(name: str) -> Statements[None]:
    yield "INSERT INTO meta (name, value) VALUES (?, '')", (name,)
