"""Events: what happens, told to every open browser that may know it, with nothing left out after a cut.

What happened to transcripts has a position in the journal, the same on every worker: whoever comes back says how far
they have read and is told the rest. Everything else is a hint that a topic is worth another look.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from secrets import token_hex

from palaver.domain.errors import StoreError
from palaver.ports.hooks import Growth, Happening
from palaver.ports.repositories import Store
from palaver.ports.store import INBOX, JOURNAL, OUTBOX, PEOPLE, TURNS
from palaver.ports.window import WINDOW, News
from palaver.ports.work import Notify, Steps, work
from palaver.web.access.visitor import OWNER, Visitor, principal_of

__all__ = ["CHAT", "HEARTBEAT", "TOPICS", "Event", "Hub"]

HEARTBEAT = 15.0
"""Seconds of silence after which a stream says that it is still there."""
CHAT = "chat"
TOPICS = ("sessions", "turns", "inbox", "outbox", "people", "platforms", CHAT)
"""What a hint can be about."""
_HINTS: Mapping[str, tuple[str, ...]] = {
    INBOX: ("inbox",),
    OUTBOX: ("outbox",),
    TURNS: ("turns",),
    PEOPLE: ("people",),
    WINDOW: TOPICS,
}
_QUEUE = 256
_MOST_TURNS = 1000
_PAGE = 100
"""Less than a reader holds, so that whoever keeps up is not let go for a burst."""
_MOST_PAGES = 50
_BUNCH = 0.05
"""Seconds in which hints become one."""
_DRAFTS = 0.1
"""Seconds between two states of a growing answer."""
_LOOK_AGAIN = 0.02
_POSITION = re.compile(r"([0-9]{1,19}\.[0-9]{1,18})/([0-9a-f]{8}\.[0-9]{1,18})", re.ASCII)
_NET = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    name: str
    body: Mapping[str, object] = field(default_factory=dict[str, object])
    journal: str | None = None
    """Its position, where it has one in the journal."""
    id: str | None = None
    """Whoever says this when they come back is told what came after it."""
    merges: str | None = None
    """It takes the place of one of this name that was not told yet: of what grows only the last state counts."""


@dataclass(eq=False, slots=True)
class _Reader:
    """One open stream: what it has not been told yet, and nothing without end."""

    since: str
    waiting: list[Event] = field(default_factory=list[Event])
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False

    def push(self, event: Event) -> None:
        """A reader that is too slow is let go; it comes back, and is told the rest from where it was."""
        if event.merges is not None and self.waiting and self.waiting[-1].merges == event.merges:
            self.waiting[-1] = event
        elif len(self.waiting) >= _QUEUE:
            self.is_over = True
        else:
            self.waiting.append(event)
        self.woken.set()

    def end(self) -> None:
        self.is_over = True
        self.woken.set()

    async def take(self) -> list[Event] | None:
        """What waits, as soon as there is something; None where the stream is over."""
        await self.woken.wait()
        self.woken.clear()
        taken, self.waiting = self.waiting, []
        return None if self.is_over else taken


@dataclass(eq=False)
class _Feed:
    """Everything that one principal may know: read once, however many streams they have."""

    store: Store
    visitor: Visitor
    position: str
    readers: set[_Reader] = field(default_factory=set[_Reader])
    sees: dict[int, bool] = field(default_factory=dict[int, bool])
    """Whether the conversation of a turn may be seen."""

    async def run(self) -> None:
        with self.store.listen(JOURNAL) as woken:
            while True:
                woken.clear()
                before = self.position
                with suppress(StoreError):
                    news = await self.news(before)
                    self.tell(news)
                    if news.is_all:
                        await _within(woken, _NET)
                        continue
                if self.position == before:
                    await asyncio.sleep(_LOOK_AGAIN)

    def tell(self, news: News) -> None:
        for event in _entries(news):
            self.push(event)
        self.position = news.position

    def push(self, event: Event) -> None:
        for reader in self.readers:
            reader.push(event)

    async def news(self, position: str) -> News:
        return await self.store.read(_news(self.store, self.visitor, position))

    async def push_growth(self, growth: Growth) -> None:
        """To whoever may read the conversation, looked up once for each turn."""
        if growth.turn not in self.sees:
            self.sees[growth.turn] = await self._may_see(growth.session)
        while len(self.sees) > _MOST_TURNS:
            self.sees.pop(next(iter(self.sees)))
        if self.sees[growth.turn]:
            body = {"session": growth.session, "turn": growth.turn, "text": growth.text}
            self.push(Event(name="draft", body=body, merges=f"draft {growth.turn}"))

    async def _may_see(self, session: str) -> bool:
        try:
            await self.store.read(_seen(self.store, self.visitor, session))
        except StoreError:
            return False
        return True


@work
def _seen(store: Store, visitor: Visitor, session: str) -> Steps[None]:
    principal = yield from principal_of(visitor, store)
    yield from store.sessions.get_visible(session, principal)


@work
def _news(store: Store, visitor: Visitor, position: str) -> Steps[News]:
    principal = yield from principal_of(visitor, store)
    return (yield from store.changes.after(position, principal, _PAGE))


def _entries(news: News) -> list[Event]:
    return [
        Event(
            name="entries",
            body={"session": each.session, "kind": each.kind, "first": each.first, "last": each.last},
            journal=each.position,
        )
        for each in news.changes
    ]


class Hub:
    """Serve it while the window is open; whoever reads `events` is told what happens."""

    def __init__(self, store: Store, *, alone: bool) -> None:
        self._store = store
        self._alone = alone
        """No other gateway has readers to be told."""
        self._feeds: dict[str | None, _Feed] = {}
        self._tasks: dict[str | None, asyncio.Task[None]] = {}
        self._boot = token_hex(4)
        self._count = 0
        self._changed: dict[str, int] = {}
        """When each topic was last hinted at."""
        self._pending: set[str] = set()
        self._news = asyncio.Event()
        self._growing: dict[int, Growth] = {}
        self._grown = asyncio.Event()
        self._is_closed = False

    @property
    def streams(self) -> int:
        """How many are open."""
        return sum(len(feed.readers) for feed in self._feeds.values())

    async def position(self) -> str:
        """How things stand now: read it before whatever is shown, and ask for events after it."""
        hints = self._hints
        return f"{await self._store.read(self._store.changes.newest())}/{hints}"

    async def notice(self, happening: Happening) -> None:
        """A hook of the engine."""
        name = happening.kind.value
        topics = {"sessions", "turns"} if happening.turn or name.startswith("turn") else {"sessions"}
        self.hint(*topics, *(["outbox"] if happening.delivery is not None else []))
        if not self._alone:
            self._pending.add(WINDOW)

    def hint(self, *topics: str) -> None:
        """Something about these topics is worth another look."""
        self._pending.update(topics)
        self._news.set()

    def grow(self, growth: Growth) -> None:
        """An answer grows; where nobody looks, that costs nothing."""
        if self._feeds:
            self._growing[growth.turn] = growth
            self._grown.set()

    def push(self, identity: str, event: Event) -> None:
        """To the browsers of one person."""
        whose = None if identity == f"web:{OWNER}" else identity
        if feed := self._feeds.get(whose):
            feed.push(event)

    async def serve(self) -> None:
        """Until cancelled."""
        with ExitStack() as stack:
            heard = {topic: stack.enter_context(self._store.listen(topic)) for topic in _HINTS}
            async with asyncio.TaskGroup() as group:
                for topic, event in heard.items():
                    group.create_task(self._listen(topic, event), name=f"hints {topic}")
                group.create_task(self._tell_hints(), name="hints")
                group.create_task(self._tell_growth(), name="growth")

    async def _listen(self, topic: str, event: asyncio.Event) -> None:
        while True:
            await event.wait()
            event.clear()
            self.hint(*_HINTS[topic])

    async def _tell_growth(self) -> None:
        """At a bounded rate, of each turn only what it has come to."""
        while True:
            await self._grown.wait()
            self._grown.clear()
            growing, self._growing = self._growing, {}
            for growth in growing.values():
                for feed in list(self._feeds.values()):
                    await feed.push_growth(growth)
            await asyncio.sleep(_DRAFTS)

    async def _tell_hints(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(_BUNCH)
            self._news.clear()
            pending, self._pending = self._pending, set()
            if WINDOW in pending:
                with suppress(StoreError):
                    await self._store.transact(_tell_others())
            self._tell_topics([topic for topic in TOPICS if topic in pending])

    def _tell_topics(self, topics: list[str]) -> None:
        """Only the owner is shown what goes on beside transcripts and their own chat."""
        if not topics:
            return
        self._count += 1
        self._changed.update(dict.fromkeys(topics, self._count))
        for whose, feed in self._feeds.items():
            told = topics if whose is None else [CHAT] if CHAT in topics else []
            if told:
                feed.push(Event(name="changed", body={"topics": told}))

    @property
    def _hints(self) -> str:
        return f"{self._boot}.{self._count}"

    def close(self) -> None:
        """Every stream ends; its reader may come back when the window is open again."""
        self._is_closed = True
        for feed in self._feeds.values():
            for reader in feed.readers:
                reader.end()

    async def events(self, visitor: Visitor, position: str | None) -> AsyncIterator[Event | None]:
        """What happens after the position, for ever; None now and then where nothing does.

        It ends where the reader is too slow, or the window closes.
        """
        with self._reading(visitor, await self._now()) as (feed, reader):
            said = _POSITION.fullmatch(position or "")
            at, hints = said.groups() if said else (reader.since, self._hints)
            yield Event(name="ready" if said or position is None else "reset", id=f"{at}/{hints}")
            for missed in self._missed(visitor, hints):
                yield missed
            async for event in self._replayed(feed, reader, at):
                at = event.journal or at
                yield self._placed(event, at)
            while (taken := await _taken(reader)) is not None:
                for event in taken:
                    if event.journal is None or _order(event.journal) > _order(at):
                        at = event.journal or at
                        yield self._placed(event, at)
                if not taken:
                    yield None

    def _placed(self, event: Event, at: str) -> Event:
        return replace(event, id=f"{at}/{self._hints}")

    def _missed(self, visitor: Visitor, hints: str) -> list[Event]:
        boot, _, count = hints.partition(".")
        known = int(count) if boot == self._boot and count.isdigit() else -1
        missed = [topic for topic in TOPICS if known < self._changed.get(topic, 0 if known >= 0 else 1)]
        topics = missed if visitor.is_owner else [CHAT] if CHAT in missed else []
        return [Event(name="changed", body={"topics": topics})] if topics else []

    async def _replayed(self, feed: _Feed, reader: _Reader, at: str) -> AsyncIterator[Event]:
        """What stands between where they were and where their feed was when they came."""
        for _ in range(_MOST_PAGES):
            if _order(at) >= _order(reader.since):
                return
            news = await feed.news(at)
            for event in _entries(news):
                yield event
            if news.position == at:
                return
            at = news.position
        yield Event(name="reset", journal=reader.since)

    async def _now(self) -> str:
        return await self._store.read(self._store.changes.newest())

    @contextmanager
    def _reading(self, visitor: Visitor, now: str) -> Generator[tuple[_Feed, _Reader]]:
        whose = visitor.key.identity
        if whose not in self._feeds:
            self._feeds[whose] = _Feed(self._store, visitor, now)
            self._tasks[whose] = asyncio.create_task(self._feeds[whose].run(), name="feed")
        feed = self._feeds[whose]
        reader = _Reader(feed.position, is_over=self._is_closed)
        feed.readers.add(reader)
        try:
            yield feed, reader
        finally:
            feed.readers.discard(reader)
            if not feed.readers and self._feeds.pop(whose, None):
                self._tasks.pop(whose).cancel()


async def _taken(reader: _Reader) -> list[Event] | None:
    """Nothing after a while, so that the stream can say that it is there."""
    if reader.is_over:
        return None
    try:
        async with asyncio.timeout(HEARTBEAT):
            return await reader.take()
    except TimeoutError:
        return []


async def _within(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


@work
def _tell_others() -> Steps[None]:
    yield Notify(WINDOW)


def _order(position: str) -> tuple[int, int]:
    xid, _, pos = position.partition(".")
    return int(xid), int(pos)
