"""Forgetting people: asked for in one step, carried out in many, finished when nothing is found any more."""

from collections import Counter
from collections.abc import Callable
from dataclasses import field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from palaver.db.database import Database
from palaver.db.transaction import Lock, Notify, Row, Statements, Value, transaction
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.source import DM
from palaver.model.value import value
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.privacy.digests import digests_of_store, loose_files
from palaver.store.privacy.eraser import Pass, belongings, owed_to_them
from palaver.store.privacy.footprint import Trace, marks, own_to, share_of, trace_of
from palaver.store.privacy.names import drop_grants
from palaver.store.privacy.person_export import is_kept, nothing_kept
from palaver.store.queue.cause import CauseKind
from palaver.store.records import instant, micros
from palaver.store.search.search import Search

__all__ = [
    "ERASURES",
    "Forgetting",
    "Found",
    "Outcome",
    "ask_for",
    "erasures",
    "extent",
]

ERASURES = "erasures"
"""What one may listen to: somebody asks to be forgotten."""


@value
class Found:
    """How much of a person there is."""

    identities: tuple[str, ...]
    own: int = 0
    """Conversations in which nobody else ever spoke."""
    own_entries: int = 0
    shared: int = 0
    """Conversations that others share."""
    said: int = 0
    """Entries of theirs in those."""
    answers: int = 0
    """Entries that answer them there, and summaries since."""
    messages: int = 0
    sends: int = 0


@value
class Outcome:
    """What an erasure has taken away so far, by kind."""

    number: int
    done: bool
    """Once over everything, nothing was found any more."""
    counts: Counter[str] = field(default_factory=Counter[str])
    busy: tuple[str, ...] = ()
    """Conversations in the middle of a turn. Without any, what is not done can be gone on with at once."""


_PASSES = 5
_ANSWER_WAITS = timedelta(minutes=10)


class _Task(NamedTuple):
    number: int
    trace: Trace
    keeps_access: bool
    asked: datetime
    answer: str | None


@transaction
def ask_for(
    name: str, now: datetime, *, by: str, keeps_access: bool = False, answer: str | None = None
) -> Statements[int]:
    yield Lock("erasures")
    trace = yield from trace_of(name)
    for task in (yield from _tasks()):
        if task.trace.identities & trace.identities:
            return task.number
    trace = replace(trace, chats=(yield from _chats(trace)))
    if not keeps_access:
        yield from drop_grants(trace, now, by=by)
    rows = yield (
        "INSERT INTO erasures (who, keeps_access, asked, by_whom, answer) VALUES (?, ?, ?, ?, ?) RETURNING no",
        (trace.text, int(keeps_access), micros(now), by, answer),
    )
    if answer is not None:  # else it is carried out by whoever asks
        yield Notify(ERASURES)
    return rows[0][0]


@transaction
def extent(name: str) -> Statements[tuple[int, int]]:
    """A glance: how many conversations are theirs alone, and how many they share."""
    trace = yield from trace_of(name)
    ids: tuple[Value, ...] = tuple(sorted(trace.identities))
    rows = yield (
        "SELECT count(*), coalesce(sum(CASE WHEN EXISTS (SELECT 1 FROM participants o WHERE o.session_no = t.session_no"
        f" AND o.identity NOT IN ({marks(ids)})) THEN 1 ELSE 0 END), 0) FROM"
        f" (SELECT DISTINCT session_no FROM participants WHERE identity IN ({marks(ids)})) AS t",
        ids * 2,
    )
    every, shared = map(int, rows[0])
    return every - shared, shared


def _chats(trace: Trace) -> Statements[frozenset[tuple[str, str]]]:
    own = own_to(trace)
    rows = yield f"SELECT DISTINCT s.key FROM sessions s WHERE {own.sql}", own.values
    keys = [SessionKey.parse(row[0]) for row in rows]
    return frozenset((key.platform, key.chat) for key in keys if key.kind == DM and key.chat)


def _tasks() -> Statements[list[_Task]]:
    """Those that are under way."""
    rows = yield (
        "SELECT no, who, keeps_access, asked, answer FROM erasures WHERE ended IS NULL ORDER BY no",
        (),
    )
    return [_task(row) for row in rows]


def _task(row: Row) -> _Task:
    number, who, keeps, asked, answer = row
    return _Task(number, Trace.parse(who), bool(keeps), instant(asked), answer)


@transaction
def _under_way() -> Statements[list[_Task]]:
    return (yield from _tasks())


@transaction
def erasures() -> Statements[list[tuple[int, datetime, datetime | None, str]]]:
    """Every erasure there was: its number, when it was asked for, when it was done, and by whom."""
    rows = yield "SELECT no, asked, ended, by_whom FROM erasures ORDER BY no", ()
    return [(number, instant(asked), ended and instant(ended), by) for number, asked, ended, by in rows]


@transaction
def _is_owed(command: str) -> Statements[bool]:
    rows = yield (
        "SELECT 1 FROM outbox WHERE cause_kind = ? AND cause_id = ? AND state IN ('due', 'claimed') LIMIT 1",
        (CauseKind.COMMAND.value, command),
    )
    return bool(rows)


@transaction
def _finish(number: int, now: datetime) -> Statements[None]:
    """Who it was need not be known any more."""
    yield (
        "UPDATE erasures SET ended = ?, who = NULL, answer = NULL WHERE no = ? AND ended IS NULL",
        (micros(now), number),
    )


@value(kw_only=False)
class Forgetting:
    database: Database
    search: Search
    elsewhere: Callable[[frozenset[str]], None] = lambda _: None
    """Takes away what is kept of these identities outside the store."""

    ask_for = staticmethod(ask_for)
    extent = staticmethod(extent)

    async def find(self, name: str) -> Found:
        trace = await self.database.read(trace_of(name))
        under_way = any(task.trace.identities & trace.identities for task in await self.database.read(_under_way()))
        if not under_way and not await is_kept(self.database, trace):
            raise nothing_kept(name)
        theirs = await belongings(self.database, trace)
        shares = [await self.database.read(share_of(session, trace)) for session in theirs.shared]
        for share in shares:
            theirs.turns |= share.turns
        return Found(
            identities=tuple(sorted(trace.identities)),
            own=len(theirs.sessions),
            own_entries=await self.database.read(_own_entries(trace)),
            shared=sum(bool(share.said) for share in shares),
            said=sum(len(share.said) for share in shares),
            answers=sum(len(share.answers) for share in shares),
            messages=len(theirs.messages),
            sends=len([send async for send in owed_to_them(self.database, theirs)]),
        )

    async def carry_out(
        self,
        number: int,
        now: datetime,
        *,
        shelf: BlobStore | None = None,
        progress: Callable[[Counter[str]], None] = lambda _: None,
    ) -> Outcome:
        tasks = [task for task in await self.database.read(_under_way()) if task.number == number]
        if not tasks:
            raise NotFound("erasure under way", str(number))
        return await self._carry_out(tasks[0], now, shelf, progress)

    async def go_on(self, now: datetime, *, shelf: BlobStore | None = None) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for task in await self.database.read(_under_way()):
            if task.answer and now - task.asked < _ANSWER_WAITS and await self.database.read(_is_owed(task.answer)):
                outcomes.append(Outcome(number=task.number, done=False))
                continue
            outcomes.append(await self._carry_out(task, now, shelf, lambda _: None))
        return outcomes

    async def _carry_out(
        self, task: _Task, now: datetime, shelf: BlobStore | None, progress: Callable[[Counter[str]], None]
    ) -> Outcome:
        counts: Counter[str] = Counter()

        def tell(so_far: Counter[str]) -> None:
            progress(counts + so_far)

        digests = await self.database.transact(digests_of_store())
        trace = task.trace
        for _ in range(_PASSES):
            one = Pass(
                database=self.database,
                erasure=task.number,
                trace=trace,
                digests=digests,
                now=now,
                keeps_access=task.keeps_access,
                progress=tell,
            )
            await one.run()
            counts.update(one.counts)
            trace = one.trace
            if one.busy:
                return Outcome(number=task.number, done=False, counts=counts, busy=tuple(sorted(one.busy)))
            if not one.counts.total():
                break
        else:  # as much comes in as is taken away
            return Outcome(number=task.number, done=False, counts=counts)
        await self.search.catch_up()
        self.elsewhere(frozenset(task.trace.identities))
        if shelf is not None:
            erased = await self.database.read(_erased_files(task.number))
            loose = await loose_files(self.database, shelf, digests, erased)
            # What somebody has put there since may be about to be theirs.
            await shelf.remove(loose, now - task.asked)
        await self.database.transact(_finish(task.number, now))
        await self.database.scrub()
        return Outcome(number=task.number, done=True, counts=counts)


@transaction
def _erased_files(number: int) -> Statements[frozenset[str]]:
    rows = yield "SELECT digest FROM erased WHERE erasure = ? AND kind = 'file'", (number,)
    return frozenset(row[0] for row in rows)


@transaction
def _own_entries(trace: Trace) -> Statements[int]:
    own = own_to(trace)
    rows = yield f"SELECT coalesce(sum(s.next_seq - 1), 0) FROM sessions s WHERE {own.sql}", own.values
    return int(rows[0][0])
