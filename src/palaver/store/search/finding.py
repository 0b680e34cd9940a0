"""Finding: the index proposes, the truth decides, and what is left is shown with its surroundings."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from math import log
from typing import NamedTuple, TypeVar

from palaver.db.database import Database
from palaver.model.errors import StoreError
from palaver.model.query import Clause, Query, parse_query
from palaver.model.session import Principal, Session
from palaver.model.text import can_cut, one_line
from palaver.model.tokenizer import Span, split_pages
from palaver.model.transcript import Entry
from palaver.store.conversations.transcript import JOURNAL
from palaver.store.search.documents import Candidate, Index, IndexLost, Wanted, want
from palaver.store.search.journal import findable, load, neighbours_of, scope_of, standing
from palaver.store.search.search import Hit, Order, SearchFilter

__all__ = [
    "IndexSearch",
    "best_of",
    "snippet_of",
]

_SATURATION = 1.2
_LENGTH = 0.75
_TOGETHER = 1.5


def best_of(query: Query, found: Sequence[Candidate]) -> list[Candidate]:
    """Best first; of equals the newest."""
    if not found:
        return []
    average = sum(len(each.body) for each in found) / len(found)
    counts = [[_count(clause, each.body) for each in found] for clause in query.clauses]
    weights = [log(1 + average * len(found) / (1 + sum(each))) for each in counts]
    together = " ".join(word for clause in query.clauses for word in clause.words)

    def score(index: int) -> float:
        body = found[index].body
        norm = _SATURATION * (1 - _LENGTH + _LENGTH * len(body) / average)
        total = sum(
            weight * count[index] / (count[index] + norm) for weight, count in zip(weights, counts, strict=True)
        )
        return total * (_TOGETHER if len(query.clauses) > 1 and together in body else 1)

    order = sorted(range(len(found)), key=lambda index: (-score(index), index))
    return [found[index] for index in order]


def _count(clause: Clause, body: str) -> int:
    needle = clause.needle
    whole = clause.whole or (clause.words[0] if len(clause.words) == 1 else "")
    return body.count(needle) + (body.count(f"|{whole}{'' if clause.prefix else '|'}") if whole else 0)


_LENGTH_SNIPPETS = 160
_BEFORE = 50
_REACH = 20
_ELLIPSIS = "…"


def snippet_of(text: str, marks: Sequence[Span]) -> tuple[str, tuple[Span, ...]]:
    """The line, and where in it the marked words stand."""
    first = marks[0][0] if marks else 0
    start = _edge(text, max(first - _BEFORE, 0), first, 1)
    end = _edge(text, min(start + _LENGTH_SNIPPETS, len(text)), first, -1)
    opening, closing = _ELLIPSIS if start > 0 else "", _ELLIPSIS if end < len(text) else ""
    line, places = _folded(text[start:end])
    shown = tuple(
        (len(opening) + places[low - start], len(opening) + places[high - start - 1] + 1)
        for low, high in ((max(low, start), min(high, end)) for low, high in marks)
        if low < high and line
    )
    return f"{opening}{line}{closing}", shown


def _edge(text: str, index: int, keep: int, step: int) -> int:
    """The nearest white space, or at least a place where no character is cut; `keep` stays inside."""
    if index in {0, len(text)}:
        return index
    for near in range(index, index + step * _REACH, step):
        if text[near].isspace() and (near < keep) == (step > 0):
            return near + (step > 0)
    while 0 < index < len(text) and not can_cut(text, index) and index != keep:
        index += step
    return index


def _folded(text: str) -> tuple[str, Sequence[int]]:
    """In one line without what cannot be seen; and for each character, where it is now."""
    if one_line(text, len(text) + 1) == text:
        return text, range(len(text))
    line: list[str] = []
    places: list[int] = []
    for char in text:
        shown = one_line(char, 2)
        if not shown and char.isspace() and line and line[-1] != " ":
            shown = " "
        places.append(len(line) if shown else max(len(line) - 1, 0))
        line += shown
    return "".join(line), places


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
    start, end = split_pages(text)[found.candidate.page]
    snippet, marks = snippet_of(text[start:end], query.find_spans(text[start:end]))
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
