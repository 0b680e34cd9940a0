"""Search transcripts: the index proposes candidates, the database decides what the principal may see."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import NamedTuple, TypeVar

from palaver.db.transaction import JOURNAL, Database
from palaver.model.errors import StoreError
from palaver.model.key import JOB
from palaver.model.query import Clause, Query, parse_query
from palaver.model.session import Principal, Session
from palaver.model.tokenizer import Span, split_pages
from palaver.model.transcript import Entry, Role
from palaver.model.value import value
from palaver.store.conversations.visibility import COMPARED_TITLES
from palaver.store.records import micros
from palaver.store.search.entries import (
    count_existing,
    load_entries,
    load_neighbours,
    load_sessions,
    participant_sessions,
    visible_entries,
    visible_titles,
)
from palaver.store.search.index import Candidate, Condition, Index, IndexLost, IndexQuery, Tag, any_of, options_of
from palaver.store.search.ranking import Frequencies, make_snippet, rank, terms_to_count

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
    entry: Entry | None
    """None if the title of the session matches."""
    snippet: str
    """One line of the entry, or of the title, around the first match."""
    marks: tuple[tuple[int, int], ...] = ()
    """Start and end of each match in the snippet."""
    before: tuple[Entry, ...] = ()
    after: tuple[Entry, ...] = ()

    @property
    def at(self) -> datetime:
        return self.entry.at if self.entry else self.session.last_active

    @property
    def found_in(self) -> str:
        return self.entry.role.value if self.entry else "title"


T = TypeVar("T")
_log = logging.getLogger(__name__)
RANKED_CANDIDATES = 200
RANKED_ANY = 1000
"""Of a question's candidates. Common words alone rank the newest so many."""
RANKED_PHRASES = 64  # fewer, since a phrase is compared with the text itself
SCANNED_CANDIDATES = 1000
"""After so many candidates that the principal may not see, fewer are ranked together."""
SPARE_CANDIDATES = 8
MAX_CHUNK = 1000
MAX_TITLES = 5
"""Titles come before what was said, but leave room for it."""
ATTEMPTS = 4
_IN_JOB = f"|{Tag.JOB.term('')}|"
"""The tag of what was said in the conversation of a job, as it stands in a document."""
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
        order: Order | None = None,
        limit: int = 20,
        neighbours: int = 0,
    ) -> list[Hit]:
        """Return what the principal may see and is not hidden. Catches up first, so it misses no committed entry.

        A question, several plain words, finds the best first, and one of its words is enough. Everything else finds
        the newest first unless `order` says otherwise.
        """
        asked = parse_query(query)
        order = order or (Order.BEST if asked.is_question else Order.NEWEST)

        async def attempt() -> list[Hit]:
            await self._index.catch_up(purge=False)
            hits = await self._find(asked, principal, filter, order, limit, neighbours)
            titles = await self._find_titles(asked, principal, filter, limit)
            of_jobs = [hit for hit in titles if hit.session.key.kind == JOB]
            return [*(hit for hit in titles if hit not in of_jobs), *hits, *of_jobs][:limit]

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
        found: dict[int, _Found] = {}
        query = _index_query(asked, filters, scope, bodies=order is Order.BEST)
        loose = order is Order.BEST and asked.is_question
        collect = self._collect_any if loose else self._collect
        # What people said comes before what jobs said.
        for part in (query._replace(excluded=(*query.excluded, _IN_JOB)), query.only(Tag.JOB.term(""))):
            if len(found) < limit:
                await collect(found, asked, part, principal, limit)
        asked = asked.any_clause() if loose else asked
        hits = await asyncio.to_thread(lambda: [_hit(asked, each) for each in list(found.values())[:limit]])
        return [await self._with_neighbours(hit, neighbours) for hit in hits] if neighbours > 0 else hits

    async def _collect(
        self, found: dict[int, "_Found"], asked: Query, query: IndexQuery, principal: Principal, limit: int
    ) -> None:
        """Add what has all clauses and the principal may see, up to the limit."""
        query = query.also(map(_condition, asked.groups))
        best, size = query.bodies, limit + SPARE_CANDIDATES
        frequencies = await self._count(asked) if best else None
        pools = self._pools(query, principal, size) if best else self._chunks(query, size)
        async for pool in pools:
            ranked = rank(asked, pool, frequencies) if frequencies else pool
            await self._load(found, asked, ranked, principal, limit, step=size if best else MAX_CHUNK)
            if len(found) >= limit:
                break

    async def _collect_any(
        self, found: dict[int, "_Found"], asked: Query, query: IndexQuery, principal: Principal, limit: int
    ) -> None:
        """Add what fits a question best: what has all its words, its rarest words, and, for want of more, any word."""
        loose = asked.any_clause()
        frequencies = await self._count(loose)
        clauses = sorted(loose.clauses, key=lambda clause: frequencies.of(clause) or 0)
        rare = list(_rarest(clauses, frequencies))
        choices = [list(map(_condition, asked.groups)), [_condition((clause,)) for clause in clauses[:2]]]
        choices += [[_condition(some)] for some in (rare, clauses) if some]
        pool: dict[int, Candidate] = {}
        for conditions in choices:
            if conditions is choices[-1] and len(pool) >= limit:
                break  # what has only common words adds nothing
            async for some in self._pools(query.also(conditions), principal, RANKED_ANY):
                pool |= {each.number: each for each in some}
                break
        ranked = await asyncio.to_thread(rank, loose, list(pool.values()), frequencies)
        await self._load(found, asked, ranked, principal, limit, step=limit + SPARE_CANDIDATES)

    async def _count(self, asked: Query) -> Frequencies:
        terms = terms_to_count(asked.clauses)
        documents, counts = await self._index.count(terms)
        return Frequencies(documents=documents, by_term=dict(zip(terms, counts, strict=True)))

    async def _find_titles(self, asked: Query, principal: Principal, filters: SearchFilter, limit: int) -> list[Hit]:
        """Return the newest sessions with a matching title, unless the filter asks for what somebody said."""
        if filters.people or filters.session or not (filters.roles or SPOKEN_ROLES) >= SPOKEN_ROLES:
            return []
        since, until = (moment and micros(moment) for moment in (filters.since, filters.until))
        titles = await self._database.read(visible_titles(principal, filters.platform, since, until, COMPARED_TITLES))
        found = await asyncio.to_thread(lambda: list(islice(_matching(asked, titles), min(limit, MAX_TITLES))))
        sessions = await self._database.read(load_sessions([number for number, _, _ in found])) if found else {}
        return [
            Hit(session=sessions[number], entry=None, snippet=title, marks=marks)
            for number, title, marks in found
            if number in sessions
        ]

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

    async def _pools(self, query: IndexQuery, principal: Principal, least: int) -> AsyncIterator[list[Candidate]]:
        """Yield candidates to rank together: the newest that the principal may see, fewer if most are not visible."""
        is_confined = principal.sees_all or query.sessions is not None
        has_phrase = any(condition.needles for condition in query.conditions)
        size = max(least, RANKED_PHRASES if has_phrase else RANKED_CANDIDATES)
        pool: list[Candidate] = []
        scanned = 0
        async for chunk in self._chunks(query, size):
            pool += chunk if is_confined else await self._visible(chunk, principal)
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
        asked: Query,
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
                # Each page of an entry is a document of its own: another one can contain what is excluded.
                if candidate.entry in loaded and not asked.excludes(loaded[candidate.entry][1].text):
                    found.setdefault(candidate.entry, _Found(candidate, *loaded[candidate.entry]))
            if len(found) >= limit:
                return

    async def _with_neighbours(self, hit: Hit, count: int) -> Hit:
        if hit.entry is None:
            return hit
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


def _matching(query: Query, titles: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, tuple[Span, ...]]]:
    for number, title in titles:
        marks = tuple(query.find_spans(title)) if query.may_match(title) else ()
        if marks and not query.excludes(title):
            yield number, title, marks


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
        tuple(tags),
        None if sessions is None else tuple(sessions),
        None if filters.since is None else micros(filters.since),
        None if filters.until is None else micros(filters.until),
        bodies,
        tuple(needle for clause in query.excluded for needle in _needles(clause)),
    )


def _condition(group: Sequence[Clause]) -> Condition:
    options = [option for each in group for option in options_of(each)]
    # The terms of plain words decide alone.
    has_needles = any(each.phrase or each.prefix for each in group)
    return Condition(
        tuple(options), tuple(needle for each in group for needle in _needles(each)) if has_needles else ()
    )


def _rarest(clauses: Iterable[Clause], frequencies: Frequencies) -> Iterator[Clause]:
    """Yield those of the rarest clauses whose matches can all be ranked together."""
    total = 0
    for clause in clauses:
        total += frequencies.of(clause) or 0
        if total > RANKED_ANY:
            return
        yield clause


def _needles(clause: Clause) -> tuple[str, ...]:
    """Return what a body contains exactly if it has the clause: one of these."""
    single = clause.single
    ends = ("", "") if clause.prefix else (" ", "|")
    singles = (f" {single}{ends[0]}", f"|{single}{ends[1]}") if single else ()
    return tuple(dict.fromkeys((clause.needle, *singles)))
