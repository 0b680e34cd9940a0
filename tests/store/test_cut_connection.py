"""The connection to PostgreSQL breaks at any statement or commit of a conversation with everything in it.

What certainly did not happen is done again by the driver; of what may have happened the caller learns so, and that it
happened once or not at all. `PALAVER_CUTS=60` tries every statement.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, pairwise, product
from pathlib import Path

import pytest

from palaver.db import postgres
from palaver.db.transaction import keyed
from palaver.model.errors import StoreUnavailable
from palaver.store.opening import open_store
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.db.test_in_step import insert
from tests.db.test_in_step import names as present
from tests.store.conftest import fresh_store
from tests.store.outages import Cut, Proxy, Server
from tests.store.scenario import SCENARIO, Picture, Step, take_picture

CUTS = int(os.environ.get("PALAVER_CUTS", "0"))
PLACES = {Cut.UNHEARD: range(CUTS) if CUTS else (7,), Cut.UNANSWERED: range(CUTS) if CUTS else (17,)}
"""How many statements of each step pass before the cut."""
UNKNOWN = "may or may not have happened"


@pytest.fixture(autouse=True)
def _fill_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cut is for the step: what fills the index in the background, on a slow machine, could get it."""
    monkeypatch.setattr("palaver.store.search.search.QUIET_SECONDS", 3600.0)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    folder = tempfile.mkdtemp(prefix="palaver-cuts-")
    started = Server(folder)
    try:
        started.forget_durability()
        yield started
    finally:
        started.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_PAUSE_SECONDS", "_MAX_PAUSE_SECONDS"):
        monkeypatch.setattr(postgres, name, 0.001)


async def undisturbed(server: Server) -> list[Picture]:
    """What there is before each step, and at the end, if nothing goes wrong."""
    async with await open_store(await fresh_store(server.url)) as store:
        found = [await store.read(take_picture())]
        for step in SCENARIO:
            await step.run(store)
            found.append(await store.read(take_picture()))
    return found


async def attempt(store: Store, step: Step, before: Picture, after: Picture, watching: Store) -> str:
    """Run a step until it is done; gives what its caller was told first."""
    told = ""
    while True:
        try:
            await step.run(store)
        except StoreUnavailable as error:
            told = told or str(error)
            found = await watching.read(take_picture())
            assert step.name == "erase" or found in (before, after), f"{step.name} happened in part"
            assert UNKNOWN in told, step.name
            if found == after:
                return told
        else:
            # A claim, and the begin of a turn, skip what the cut connection still locks.
            if step.name not in {"claim", "begin"} or await watching.read(take_picture()) == after:
                return told


async def play(server: Server, pictures: list[Picture], arm: Callable[[Proxy], None]) -> list[str]:
    """The whole scenario, with a fault in every step; gives what was told of them."""
    url, told = await fresh_store(server.url), list[str]()
    with tempfile.TemporaryDirectory(prefix="palaver-proxy-") as folder:
        async with Proxy(server, url, Path(folder)).running() as proxy, await open_store(url) as watching:
            async with await open_store(proxy.url) as store:
                for step, (before, after) in zip(SCENARIO, pairwise(pictures), strict=True):
                    arm(proxy)
                    told.append(await attempt(store, step, before, after, watching))
                    proxy.forget_fault()
                    assert await watching.read(take_picture()) == after, step.name
            assert await watching.read(violations()) == []
            assert proxy.faults
    return told


async def test_a_cut_at_any_statement(server: Server) -> None:
    pictures = await undisturbed(server)
    for cut, places in PLACES.items():
        for place in places:
            await play(server, pictures, partial(Proxy.fail_at, words=b"", cut=cut, after=place))


async def test_a_cut_at_every_commit(server: Server) -> None:
    pictures = await undisturbed(server)
    for cut in PLACES:
        # What only reads is read again instead.
        told = await play(server, pictures, partial(Proxy.fail_at, words=b"timeout = 0; COMMIT;", cut=cut))
        writes = [words for step, words in zip(SCENARIO, told, strict=True) if step.name not in {"search", "erase"}]
        assert all(UNKNOWN in words for words in writes)


async def test_a_cut_in_the_middle_of_a_batch(server: Server) -> None:
    url, numbers = await fresh_store(server.url), count()
    with tempfile.TemporaryDirectory(prefix="palaver-proxy-") as folder:
        async with (
            Proxy(server, url, Path(folder)).running() as proxy,
            await open_store(url) as watching,
            await open_store(proxy.url) as store,
        ):
            for cut, (words, place) in product(PLACES, ((b"", 1), (b"", 3), (b"", 4), (b"COMMIT;", 0))):
                names = [f"row {next(numbers)}" for _ in range(20)]
                proxy.fail_at(words, cut, place)
                works = (store.transact(keyed(name, insert(name))) for name in names)
                told = await asyncio.gather(*works, return_exceptions=True)
                proxy.forget_fault()
                there = await watching.read(present(*names))
                for name, answer in zip(names, told, strict=True):
                    assert name in there if isinstance(answer, str) else UNKNOWN in str(answer)
            assert proxy.faults
