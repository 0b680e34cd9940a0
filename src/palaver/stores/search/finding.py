"""Finding: the index proposes, the truth decides, and what is left is shown with its surroundings."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from palaver.domain.errors import StoreError
from palaver.domain.query import Query, parse_query
from palaver.domain.session import Principal, Session
from palaver.domain.terms import pages
from palaver.domain.transcript import Entry
from palaver.ports.search import Hit, Order, SearchFilter
from palaver.ports.store import Database
from palaver.stores.search.documents import Candidate, Index, IndexLost, Wanted, want
from palaver.stores.search.ranking import best_of
from palaver.stores.search.snippets import snippet_of
from palaver.stores.search.truth import findable, load, neighbours_of, scope_of, standing
from palaver.stores.transcript import JOURNAL

__all__ = ["IndexSearch"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
_RANKED = 200
_RANKED_PHRASES = 64  # each is looked up in the text itself
_LOOKED = 1000
_SPARE = 8
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

    async def strays(self) -> int:
        count, after = 0, 0
        while ids := await _healed(lambda after=after: self._index.entries(after, _LARGEST_CHUNK)):
            count += len(ids) - await self._database.read(standing(ids))
            after = ids[-1]
        return count

    async def close(self) -> None:
        self._follower.cancel()
        await asyncio.gather(self._follower, return_exceptions=True)
        await self._index.close()

    async def _find(
        self, asked: Query, principal: Principal, narrowed: SearchFilter, order: Order, limit: int, neighbours: int
    ) -> list[Hit]:
        scope = await self._scope(principal, narrowed.session)
        if scope == [] or limit < 1:
            return []
        wanted = want(asked, narrowed, scope)
        found: dict[int, _Found] = {}
        if order is Order.BEST:
            confined = principal.sees_all or wanted.sessions is not None
            async for pool in self._pools(wanted, None if confined else principal, limit + _SPARE):
                await self._load(found, best_of(asked, pool), principal, limit, step=limit + _SPARE)
                if len(found) >= limit:
                    break
        else:
            async for chunk in self._chunks(wanted, limit + _SPARE, bodies=False):
                await self._load(found, chunk, principal, limit, step=_LARGEST_CHUNK)
                if len(found) >= limit:
                    break
        hits = await asyncio.to_thread(_hits, asked, list(found.values())[:limit])
        return [await self._surrounded(hit, neighbours) for hit in hits] if neighbours > 0 else hits

    async def _scope(self, principal: Principal, session: str | None) -> list[int] | None:
        if principal.sees_all and session is None:
            return None
        return await self._database.read(scope_of(principal, session))

    async def _chunks(self, wanted: Wanted, size: int, *, bodies: bool) -> AsyncIterator[list[Candidate]]:
        """All that the index has, newest first."""
        last: Candidate | None = None
        while True:
            chunk = await self._index.candidates(wanted, last, size, bodies=bodies)
            if chunk:
                yield chunk
            if len(chunk) < size:
                return
            last = chunk[-1]
            size = min(size * 2, max(size, _LARGEST_CHUNK))

    async def _pools(self, wanted: Wanted, principal: Principal | None, least: int) -> AsyncIterator[list[Candidate]]:
        """What is ranked together: the newest this principal may see; fewer where most is for others."""
        size = max(least, _RANKED_PHRASES if any(need.needles for need in wanted.needs) else _RANKED)
        pool: list[Candidate] = []
        looked = 0
        async for chunk in self._chunks(wanted, size, bodies=True):
            pool += chunk if principal is None else await self._visible(chunk, principal)
            looked += len(chunk)
            if len(pool) >= (size if looked < _LOOKED else least):
                yield pool
                pool, looked = [], 0
        if pool:
            yield pool

    async def _visible(self, chunk: Sequence[Candidate], principal: Principal) -> list[Candidate]:
        seen = await self._database.read(findable([each.entry for each in chunk], principal))
        return [each for each in chunk if each.entry in seen]

    async def _load(
        self,
        found: dict[int, "_Found"],
        candidates: Sequence[Candidate],
        principal: Principal,
        limit: int,
        *,
        step: int,
    ) -> None:
        """Add those that may be seen, so many at a time; an entry once, however many of its pages fit."""
        for start in range(0, len(candidates), step):
            some = [each for each in candidates[start : start + step] if each.entry not in found]
            loaded = await self._database.read(load([each.entry for each in some], principal))
            for candidate in some:
                if candidate.entry in loaded:
                    found.setdefault(candidate.entry, _Found(candidate, *loaded[candidate.entry]))
            if len(found) >= limit:
                return

    async def _surrounded(self, hit: Hit, count: int) -> Hit:
        before, after = await self._database.read(neighbours_of(hit.session.number, hit.entry.seq, count))
        return replace(hit, before=before, after=after)

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


class _Found(NamedTuple):
    candidate: Candidate
    session: Session
    entry: Entry


def _hits(query: Query, found: Sequence[_Found]) -> list[Hit]:
    return [_hit(query, each) for each in found]


def _hit(query: Query, found: _Found) -> Hit:
    text = found.entry.text
    start, end = pages(text)[found.candidate.page]
    snippet, marks = snippet_of(text[start:end], query.marks(text[start:end]))
    return Hit(session=found.session, entry=found.entry, snippet=snippet, marks=marks)


async def _healed(step: Callable[[], Awaitable[T]]) -> T:
    cause: IndexLost | None = None
    for _ in range(_TRIES):
        try:
            return await step()
        except IndexLost as lost:
            cause = lost
            _log.warning("The search index begins anew: %s", lost, extra={"action": "search.heal"})
    problem = "the search index is lost again and again: see the log, and whether the disk is sound"
    raise StoreError(problem) from cause


async def _until_quiet(written: asyncio.Event) -> None:
    latest = asyncio.get_running_loop().time() + _LONGEST_DELAY
    while written.is_set() and asyncio.get_running_loop().time() < latest:
        written.clear()
        await asyncio.sleep(_QUIET)
    written.clear()
