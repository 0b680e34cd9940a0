"""Finding: the index proposes, the truth decides, and what is left is shown with its surroundings."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from palaver.domain.errors import StoreError
from palaver.domain.session import Principal
from palaver.domain.terms import Query, pages, parse_query
from palaver.ports.search import Hit, Order, SearchFilter
from palaver.ports.store import Database
from palaver.stores.search.documents import Candidate, Index, IndexLost, Wanted, want
from palaver.stores.search.ranking import best_of
from palaver.stores.search.snippets import snippet_of
from palaver.stores.search.truth import findable, load, neighbours_of, scope_of
from palaver.stores.transcript import JOURNAL

__all__ = ["IndexSearch"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
_RANKED = 400
_TRIES = 4
_LARGEST_CHUNK = 1000
_QUIET = 1.0
_LONGEST_DELAY = 30.0


class IndexSearch:
    """Search through an index, which it also fills in the background while nothing else goes on."""

    def __init__(self, database: Database, index: Index) -> None:
        self._database = database
        self._index = index
        self._follower = asyncio.create_task(self._follow(), name="palaver-search")

    async def find(
        self,
        query: str,
        principal: Principal,
        *,
        filter: SearchFilter = SearchFilter(),  # noqa: A002, B008
        order: Order = Order.NEWEST,
        limit: int = 20,
        neighbours: int = 0,
    ) -> list[Hit]:
        asked = parse_query(query)

        async def attempt() -> list[Hit]:
            await self._index.catch_up(tidy=False)
            return await self._find(asked, principal, filter, order, limit, neighbours)

        return await _healed(attempt)

    async def catch_up(self) -> int:
        return await _healed(lambda: self._index.catch_up(tidy=True))

    async def rebuild(self) -> int:
        await self._index.clear()
        return await self.catch_up()

    async def close(self) -> None:
        self._follower.cancel()
        await asyncio.gather(self._follower, return_exceptions=True)
        await self._index.close()

    async def _find(
        self, asked: Query, principal: Principal, narrowed: SearchFilter, order: Order, limit: int, neighbours: int
    ) -> list[Hit]:
        scope = await self._database.read(scope_of(principal, narrowed.session))
        if scope == [] or limit < 1:
            return []
        wanted = want(asked, narrowed, scope)
        if order is Order.BEST:
            found = best_of(asked, await self._newest(wanted, principal, max(_RANKED, limit), bodies=True))[:limit]
        else:
            found = await self._newest(wanted, principal, limit, bodies=False)
        return await self._hits(asked, found, principal, neighbours)

    async def _newest(self, wanted: Wanted, principal: Principal, limit: int, *, bodies: bool) -> list[Candidate]:
        """An entry once, however many of its pages fit."""
        found: dict[int, Candidate] = {}
        async for candidate in self._visible(wanted, principal, limit, bodies=bodies):
            found.setdefault(candidate.entry, candidate)
            if len(found) == limit:
                break
        return list(found.values())

    async def _visible(
        self, wanted: Wanted, principal: Principal, limit: int, *, bodies: bool
    ) -> AsyncIterator[Candidate]:
        size = limit + 8
        last: Candidate | None = None
        while True:
            chunk = await self._index.candidates(wanted, last, size, bodies=bodies)
            visible = await self._database.read(findable([each.entry for each in chunk], principal))
            for candidate in chunk:
                if candidate.entry in visible:
                    yield candidate
            if len(chunk) < size:
                return
            last = chunk[-1]
            size = min(size * 2, _LARGEST_CHUNK)

    async def _hits(self, query: Query, found: Sequence[Candidate], principal: Principal, neighbours: int) -> list[Hit]:
        loaded = await self._database.read(load([each.entry for each in found], principal))
        hits: list[Hit] = []
        for candidate in found:
            if candidate.entry not in loaded:
                continue
            session, entry = loaded[candidate.entry]
            start, end = pages(entry.text)[candidate.page]
            page = entry.text[start:end]
            snippet, marks = snippet_of(page, query.marks(page))
            hit = Hit(session=session, entry=entry, snippet=snippet, marks=marks)
            hits.append(await self._surrounded(hit, candidate.entry, neighbours) if neighbours > 0 else hit)
        return hits

    async def _surrounded(self, hit: Hit, entry: int, count: int) -> Hit:
        before, after = await self._database.read(neighbours_of(entry, count))
        return Hit(
            session=hit.session, entry=hit.entry, snippet=hit.snippet, marks=hit.marks, before=before, after=after
        )

    async def _follow(self) -> None:
        """Index what was written once it is quiet, or after a while if it never is."""
        with self._database.listen(JOURNAL) as written:
            while True:
                await written.wait()
                await _until_quiet(written)
                try:
                    await self.catch_up()
                except StoreError as error:
                    _log.warning("The search index could not be filled: %s", error, extra={"action": "search.fill"})


async def _healed(step: Callable[[], Awaitable[T]]) -> T:
    for _ in range(_TRIES):
        try:
            return await step()
        except IndexLost as lost:
            _log.warning("The search index begins anew: %s", lost, extra={"action": "search.heal"})
    raise StoreError("the search index is lost again and again: see the log, and whether the disk is sound")


async def _until_quiet(written: asyncio.Event) -> None:
    latest = asyncio.get_running_loop().time() + _LONGEST_DELAY
    while written.is_set() and asyncio.get_running_loop().time() < latest:
        written.clear()
        await asyncio.sleep(_QUIET)
    written.clear()
