"""Loading, routing and listing beside the bare driver, at sizes that must not matter."""

import random
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack

from bench.engines import Engine
from bench.measure import Bare, Figure, at_most, median_of, ratio_at_most, side_by_side
from bench.populate import NOON, RULE, key, person, running_turns, source
from bench.raw import dicts_of
from bench.workshop import Workshop
from palaver.cli.loop import run
from palaver.db.transaction import Transaction
from palaver.model.prompt import Naming
from palaver.model.session import Principal
from palaver.model.turn import Turn
from palaver.model.view import view
from palaver.platforms.plugins import PLATFORMS
from palaver.store.conversations import transcript
from palaver.store.opening import open_store
from palaver.store.results import Opened
from palaver.store.status import session_list
from palaver.store.store import Store
from tests.store.opened import open_session

__all__ = ["FEW", "MANY", "Router", "list_100k", "load_200", "route_growth"]

MANY, FEW = 100_000, 100
_SHORT, _LONG = 200, 2000
_NAMING = Naming(platform=PLATFORMS["telegram"])


# Loading


def load_200(workshop: Workshop, engine: Engine) -> Iterator[Figure]:
    """Load and view of a whole conversation; and what one entry costs when it is ten times as long."""
    path = workshop.long_conversations(_SHORT, _LONG)
    yield from run(_load(engine, running_turns(path), engine.shared(path)))


async def _load(engine: Engine, turns: Sequence[Turn], url: str) -> list[Figure]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(await open_store(url))
        raw = await engine.raw(url)
        stack.push_async_callback(raw.close)
        short, long = (transcript.load_shown(turn.session_number) for turn in turns)
        script = await raw.record(short)

        async def ours(_: int) -> None:
            view(await store.read(short), _NAMING)

        async def longer(_: int) -> None:
            view(await store.read(long), _NAMING)

        async def theirs(_: int) -> None:
            dicts_of(await raw.replay(script))

        sides = await side_by_side(ours, theirs, rounds=300)
        growth = await side_by_side(longer, ours, rounds=60)
    bare = Bare(name=f"{engine.driver} rows to dicts", value=sides.other)
    flat = Bare(name="an entry of 200", value=growth.other / _SHORT)
    return [
        Figure(name=f"{engine.prefix}.load_200", value=sides.ours, bare=bare, limit=ratio_at_most(1.5, goal=1.0)),
        Figure(
            name=f"{engine.prefix}.load_2000", value=growth.ours / _LONG, unit="s", bare=flat, limit=ratio_at_most(1.2)
        ),
    ]


# Routing


def route_growth(workshop: Workshop, engine: Engine) -> Iterator[Figure]:
    """Get-or-create for conversations that exist, anywhere among many and among few."""
    many, few = (engine.copy(workshop.conversations(count)) for count in (MANY, FEW))
    yield run(_route_growth(engine, many, few))


async def _route_growth(engine: Engine, many: str, few: str) -> Figure:
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(await open_store(url)) for url in (many, few)]
        routers = [Router(store, count) for store, count in zip(stores, (MANY, FEW), strict=True)]
        sides = await side_by_side(routers[0], routers[1], rounds=400)
        raw = await engine.raw(many)
        stack.push_async_callback(raw.close)
        scripts = [await raw.record(work) for work in (routers[0].work() for _ in range(100))]
        bare = await median_of(lambda: raw.transact(scripts.pop()), rounds=len(scripts))
    return Figure(
        name=f"{engine.prefix}.route_growth",
        value=sides.ours,
        bare=Bare(name="among 100 sessions", value=sides.other),
        limit=ratio_at_most(1.3),
        note=f"{sides.ours / bare:.2f} × {engine.driver}",
    )


class Router:
    def __init__(self, store: Store, count: int) -> None:
        self._store = store
        self._count = count
        self._chance = random.Random(3)  # noqa: S311 - the same ones every time

    def work(self) -> Transaction[Opened]:
        number = self._chance.randrange(self._count)
        return open_session(key(number), source(number), NOON, RULE)

    async def __call__(self, _: int) -> None:
        await self._store.transact(self.work())


# Lists


def list_100k(workshop: Workshop, engine: Engine) -> Iterator[Figure]:
    yield run(_list(engine, engine.shared(workshop.conversations(MANY))))


async def _list(engine: Engine, url: str) -> Figure:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(await open_store(url))
        raw = await engine.raw(url)
        stack.push_async_callback(raw.close)
        newest = session_list.list_sessions(Principal.operator(), limit=50)
        own = session_list.list_sessions(Principal(identities=frozenset({person(7)})), limit=50)
        script = await raw.record(newest)
        page = await store.read(newest)
        if len(page.previews) != 50 or not all(preview.last_said for preview in page.previews):
            raise AssertionError("the newest 50 are not all there with what was said last")

        async def ours(_: int) -> None:
            await store.read(newest)

        async def theirs(_: int) -> None:
            await raw.replay(script)

        sides = await side_by_side(ours, theirs, rounds=100)
        theirs_alone = await median_of(lambda: store.read(own), rounds=50)
    return Figure(
        name=f"{engine.prefix}.list_100k",
        value=sides.ours,
        bare=Bare(name=engine.driver, value=sides.other),
        limit=at_most(10e-3),
        note=f"of somebody's own 100: {theirs_alone * 1e3:.1f} ms",
    )
