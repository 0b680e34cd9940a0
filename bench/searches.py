"""Searching many entries: common, rare and two-character CJK words, newest and best first; and what indexing costs."""

import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from bench.engines import Engine
from bench.measure import Figure, at_most, p95
from bench.populate import CJK, COMMON, RARE
from bench.workshop import Workshop, say
from palaver.cli.loop import run
from palaver.model.session import Principal
from palaver.store.opening import open_store
from palaver.store.search.search import Order
from palaver.store.store import Store

__all__ = ["SEARCHES", "search_1m", "search_200k", "searches"]

_QUERIES = {"common": COMMON, "rare": RARE, "CJK": CJK}
_EVERYBODY = Principal.operator()
SEARCHES = 40
"""Of each kind."""


def search_1m(workshop: Workshop, engine: Engine) -> Iterator[Figure]:
    yield from run(_search(engine, "1m", 50e-3, engine.shared(workshop.conversations(100_000, length=10))))


def search_200k(workshop: Workshop, engine: Engine) -> Iterator[Figure]:
    yield from run(_search(engine, "200k", 30e-3, engine.copy(workshop.conversations(100_000))))


async def _search(engine: Engine, size: str, limit: float, url: str) -> list[Figure]:
    async with await open_store(url) as store:
        say(f"indexing {size} entries")
        start = time.perf_counter()
        entries = await store.search.catch_up()
        seconds = time.perf_counter() - start
        slowest = {kind: await _slowest(find) for kind, find in searches(store).items()}
    note = "; ".join(f"{kind} {found * 1e3:.1f} ms" for kind, found in slowest.items())
    return [
        Figure(
            name=f"{engine.prefix}.search_{size}",
            value=max(slowest.values()),
            limit=at_most(limit),
            note=f"p95 of the slowest kind: {note}",
        ),
        Figure(name=f"{engine.prefix}.index_entry", value=seconds / entries, note=f"of {entries:,}"),
    ]


def searches(store: Store) -> dict[str, Callable[[], Awaitable[None]]]:
    """Each kind of search."""

    async def find(query: str, order: Order) -> None:
        if not await store.search.find(query, _EVERYBODY, order=order):
            raise AssertionError(f"nothing found for {query}")

    return {
        f"{kind}, {order} first": partial(find, query, order) for kind, query in _QUERIES.items() for order in Order
    }


async def _slowest(find: Callable[[], Awaitable[None]]) -> float:
    await find()
    return await p95(find, rounds=SEARCHES)
