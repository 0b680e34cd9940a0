"""Search transcripts: the index proposes candidates, the database decides what the principal may see."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, TypeVar

from palaver.db.transaction import JOURNAL, Database
from palaver.model.errors import StoreError
from palaver.model.query import Clause, Query, parse_query
from palaver.model.session import Principal, Session
from palaver.model.tokenizer import split_pages
from palaver.model.transcript import Entry, Role
from palaver.model.value import value
from palaver.store.records import micros
from palaver.store.search.entries import (
    count_existing,
    load_entries,
    load_neighbours,
    participant_sessions,
    visible_entries,
)
from palaver.store.search.index import (
    Candidate,
    Condition,
    Index,
    IndexLost,
    IndexQuery,
    Tag,
    any_of,
)
from palaver.store.search.ranking import make_snippet, rank

SPOKEN_ROLES = frozenset({Role.USER, Role.ASSISTANT})
"""What people and the agent said, without tool results and notes."""


class Order(StrEnum):
    NEWEST = "newest"
    BEST = "best"


@value
class SearchFilter:
    """Every given field must match; of a set, one of its members."""

    platform: str | None = None
    people: frozenset[str] = frozenset()
    """The identities of the senders: `telegram:7`."""
    roles: frozenset[Role] = frozenset()
    session: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@value
class Hit:
    session: Session
    entry: Entry
    snippet: str
    """One line of the entry around the first match."""
    marks: tuple[tuple[int, int], ...] = ()
    """Start and end of each match in the snippet."""
    before: tuple[Entry, ...] = ()
    after: tuple[Entry, ...] = ()


T = TypeVar("T")
_log = logging.getLogger(__name__)
RANKED_CANDIDATES = 200
RANKED_PHRASES = 64  # fewer, since a phrase is compared with the text itself
SCANNED_CANDIDATES = 1000
"""After so many candidates that the principal may not see, fewer are ranked together."""
SPARE_CANDIDATES = 8
MAX_CHUNK = 1000
ATTEMPTS = 4
QUIET_SECONDS = 1.0
"""Index in the background once nothing was written for this long."""
MAX_DELAY_SECONDS = 30.0


class Search:
    """Search through an index that can be deleted at any time, and fill it in the background."""

    def __init__(self, database: Database, index: Index) -> None:
        self._database = database
        self._index = index
        self._filler = asyncio.create_task(self._fill_in_background(), name="palaver-search")

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
        """Return what the principal may see and is not hidden. Catches up first, so it misses no committed entry."""
        asked = parse_query(query)

        async def attempt() -> list[Hit]:
            await self._index.catch_up(purge=False)
            return await self._find(asked, principal, filter, order, limit, neighbours)

        return await _retry_if_lost(attempt)

    async def catch_up(self) -> int:
        """Index the journal to its end and return the number of entries."""
        return await _retry_if_lost(lambda: self._index.catch_up(purge=True))

    async def rebuild(self) -> int:
        """Delete the index and build it again from the transcripts."""
        await self._index.clear()
        return await self.catch_up()

    async def strays(self) -> int:
        """Return how many indexed entries no longer exist: zero after `catch_up`."""
        count, after = 0, 0
        while ids := await _retry_if_lost(lambda after=after: self._index.entry_ids(after, MAX_CHUNK)):
            count += len(ids) - await self._database.read(count_existing(ids))
            after = ids[-1]
        return count

    async def close(self) -> None:
        self._filler.cancel()
        await asyncio.gather(self._filler, return_exceptions=True)
        await self._index.close()

    async def _find(
        self, asked: Query, principal: Principal, filters: SearchFilter, order: Order, limit: int, neighbours: int
    ) -> list[Hit]:
        scope = await self._scope(principal, filters.session)
        if scope == [] or limit < 1:
            return []
        best = order is Order.BEST
        query = _index_query(asked, filters, scope, bodies=best)
        found: dict[int, _Found] = {}
        size = limit + SPARE_CANDIDATES
        confined = principal.sees_all or query.sessions is not None
        pools = self._pools(query, None if confined else principal, size) if best else self._chunks(query, size)
        async for pool in pools:
            ranked = rank(asked, pool) if best else pool
            await self._load(found, ranked, principal, limit, step=size if best else MAX_CHUNK)
            if len(found) >= limit:
                break
        hits = await asyncio.to_thread(lambda: [_hit(asked, each) for each in list(found.values())[:limit]])
        return [await self._with_neighbours(hit, neighbours) for hit in hits] if neighbours > 0 else hits

    async def _scope(self, principal: Principal, session: str | None) -> list[int] | None:
        if principal.sees_all and session is None:
            return None
        return await self._database.read(participant_sessions(principal, session))

    async def _chunks(self, query: IndexQuery, size: int) -> AsyncIterator[list[Candidate]]:
        """Yield all candidates of the index, newest first."""
        last: Candidate | None = None
        while True:
            chunk = await self._index.candidates(query, last, size)
            if chunk:
                yield chunk
            if len(chunk) < size:
                return
            last = chunk[-1]
            size = min(size * 2, max(size, MAX_CHUNK))

    async def _pools(
        self, query: IndexQuery, principal: Principal | None, least: int
    ) -> AsyncIterator[list[Candidate]]:
        """Yield candidates to rank together: the newest that the principal may see, fewer if most are not visible."""
        size = max(
            least, RANKED_PHRASES if any(condition.needles for condition in query.conditions) else RANKED_CANDIDATES
        )
        pool: list[Candidate] = []
        scanned = 0
        async for chunk in self._chunks(query, size):
            pool += chunk if principal is None else await self._visible(chunk, principal)
            scanned += len(chunk)
            if len(pool) >= (size if scanned < SCANNED_CANDIDATES else least):
                yield pool
                pool, scanned = [], 0
        if pool:
            yield pool

    async def _visible(self, chunk: Sequence[Candidate], principal: Principal) -> list[Candidate]:
        seen = await self._database.read(visible_entries([each.entry for each in chunk], principal))
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
        """Add the visible entries, `step` at a time. An entry is added once even if several of its pages match."""
        for start in range(0, len(candidates), step):
            some = [each for each in candidates[start : start + step] if each.entry not in found]
            loaded = await self._database.read(load_entries([each.entry for each in some], principal))
            for candidate in some:
                if candidate.entry in loaded:
                    found.setdefault(candidate.entry, _Found(candidate, *loaded[candidate.entry]))
            if len(found) >= limit:
                return

    async def _with_neighbours(self, hit: Hit, count: int) -> Hit:
        before, after = await self._database.read(load_neighbours(hit.session.number, hit.entry.seq, count))
        return replace(hit, before=before, after=after)

    async def _fill_in_background(self) -> None:
        """Index new entries once writing pauses, or after MAX_DELAY_SECONDS if it does not."""
        with self._database.listen(JOURNAL) as written:
            while True:
                await written.wait()
                await _wait_until_quiet(written)
                try:
                    await self.catch_up()
                except StoreError as error:
                    _log.warning("Could not fill the search index: %s", error, extra={"action": "search.fill_failed"})


class _Found(NamedTuple):
    candidate: Candidate
    session: Session
    entry: Entry


def _hit(query: Query, found: _Found) -> Hit:
    text = found.entry.text
    start, end = split_pages(text)[found.candidate.page]
    snippet, marks = make_snippet(text[start:end], query.find_spans(text[start:end]))
    return Hit(session=found.session, entry=found.entry, snippet=snippet, marks=marks)


async def _retry_if_lost(step: Callable[[], Awaitable[T]]) -> T:
    cause: IndexLost | None = None
    for _ in range(ATTEMPTS):
        try:
            return await step()
        except IndexLost as lost:
            cause = lost
            _log.warning("Rebuilding the search index: %s", lost, extra={"action": "search.rebuild"})
    problem = "the search index was lost several times in a row: check the log and the disk"
    raise StoreError(problem) from cause


async def _wait_until_quiet(written: asyncio.Event) -> None:
    latest = asyncio.get_running_loop().time() + MAX_DELAY_SECONDS
    while written.is_set() and asyncio.get_running_loop().time() < latest:
        written.clear()
        await asyncio.sleep(QUIET_SECONDS)
    written.clear()


def _index_query(query: Query, filters: SearchFilter, sessions: Sequence[int] | None, *, bodies: bool) -> IndexQuery:
    roles = [Tag.ROLE.term(role.value) for role in sorted(filters.roles)]
    platforms = [] if filters.platform is None else [Tag.PLATFORM.term(filters.platform)]
    people = [Tag.PERSON.term(person) for person in sorted(filters.people)]
    tags = (any_of(group) for group in (roles, platforms, people) if group)
    return IndexQuery(
        (*map(_condition, query.clauses), *tags),
        None if sessions is None else tuple(sessions),
        None if filters.since is None else micros(filters.since),
        None if filters.until is None else micros(filters.until),
        bodies,
    )


def _condition(clause: Clause) -> Condition:
    single = clause.whole or (clause.words[0] if clause.prefix and len(clause.words) == 1 else "")
    ends = ("", "") if clause.prefix else (" ", "|")
    singles = (f" {single}{ends[0]}", f"|{single}{ends[1]}") if single else ()
    needles = dict.fromkeys((*((clause.phrase,) if clause.phrase else ()), *singles))
    options = (clause.terms, (clause.whole,)) if clause.whole else (clause.terms,)
    return Condition(options, clause.prefix, tuple(needles))
