"""Events: what happens, told to every open browser that may know it, with nothing left out after a cut.

What happened to transcripts has a position in the journal, the same on every worker: whoever comes back says how far
they have read and is told the rest. Everything else is a hint that a topic is worth another look.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from secrets import token_hex

from palaver.db.database import ACCOUNTS, INBOX, OUTBOX, PEOPLE, TURNS
from palaver.db.transaction import Notify, Statements, transaction
from palaver.model.errors import StoreError
from palaver.protocols.hooks import GatewayEvent, PartialAnswer
from palaver.store.status.journal_feed import WINDOW
from palaver.store.store import Store
from palaver.web.caller import OWNER, Caller
from palaver.web.feeds import Event, Feed, Reader, entries_of, placed
from palaver.web.http import number

__all__ = [
    "CHAT",
    "HEARTBEAT",
    "TOPICS",
    "Event",
    "Hub",
]

HEARTBEAT = 15.0
"""Seconds of silence after which a stream says that it is still there."""
CHAT = "chat"
TOPICS = ("sessions", "turns", "inbox", "outbox", "people", "platforms", CHAT)
"""What a hint can be about."""
_HINTS: Mapping[str, tuple[str, ...]] = {
    ACCOUNTS: ("platforms",),
    INBOX: ("inbox",),
    OUTBOX: ("outbox",),
    TURNS: ("turns",),
    PEOPLE: ("people",),
    **{f"{WINDOW} {topic}": (topic,) for topic in TOPICS},
}
_MOST_PAGES = 50
_BUNCH = 0.05
"""Seconds in which hints become one."""
_DRAFTS = 0.1
"""Seconds between two states of a growing answer."""
_EVERYWHERE = 0.1
"""Seconds between two words to all gateways."""
_POSITION = re.compile(r"([0-9]{1,19}\.[0-9]{1,18})/([0-9a-f]{8}\.[0-9]{1,18})", re.ASCII)


class Hub:
    """Serve it while the window is open; whoever reads `events` is told what happens."""

    def __init__(self, store: Store, *, alone: bool) -> None:
        self._store = store
        self._alone = alone
        """No other gateway has readers to be told."""
        self._feeds: dict[str | None, Feed] = {}
        self._tasks: dict[str | None, asyncio.Task[None]] = {}
        self._boot = token_hex(4)
        self._count = 0
        self._changed: dict[str, int] = {}
        """When each topic was last hinted at."""
        self._pushed: dict[str | None, int] = {}
        """When each person's browsers were last told something that is there to be read again."""
        self._pending: set[str] = set()
        self._news = asyncio.Event()
        self._growing: dict[int, PartialAnswer] = {}
        self._grown = asyncio.Event()
        self._shared: set[str] = set()
        self._sharing = asyncio.Event()
        self._is_closed = False

    @property
    def streams(self) -> int:
        """How many are open."""
        return sum(len(feed.readers) for feed in self._feeds.values())

    async def position(self) -> str:
        """How things stand now: read it before whatever is shown, and ask for events after it."""
        hints = self._hints
        return f"{await self._store.read(self._store.journal_feed.latest_position())}/{hints}"

    async def notice(self, happening: GatewayEvent) -> None:
        """A hook of the engine."""
        name = happening.kind.value
        topics = {"sessions", "turns"} if happening.turn or name.startswith("turn") else {"sessions"}
        self.hint(*topics, *(["outbox"] if happening.delivery is not None else []))

    def hint(self, *topics: str) -> None:
        """Something about these topics is worth another look, at every gateway."""
        if self._alone:
            self._hint_here(topics)
        else:
            self._shared.update(topics)
            self._sharing.set()

    def _hint_here(self, topics: Iterable[str]) -> None:
        self._pending.update(topics)
        self._news.set()

    def grow(self, growth: PartialAnswer) -> None:
        """An answer grows; where nobody looks, that costs nothing."""
        if self._feeds:
            self._growing[growth.turn] = growth
            self._grown.set()

    def push(self, identity: str, event: Event) -> None:
        """To the browsers of one person. One that was cut off meanwhile looks again, unless more of it comes."""
        whose = None if identity == f"web:{OWNER}" else identity
        if event.merges is None:
            self._count += 1
            self._pushed[whose] = self._count
            if not self._alone:
                self.hint(CHAT)
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
                if not self._alone:
                    group.create_task(self._tell_everywhere(), name="everywhere")

    async def _listen(self, topic: str, event: asyncio.Event) -> None:
        while True:
            await event.wait()
            event.clear()
            self._hint_here(_HINTS[topic])

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

    async def _tell_everywhere(self) -> None:
        """Hints go round by the store and come back to us as to all others, so that nobody is told twice."""
        while True:
            await self._sharing.wait()
            self._sharing.clear()
            topics, self._shared = self._shared, set()
            try:
                await self._store.transact(_look_again(sorted(topics)))
            except StoreError:
                self._hint_here(topics)
            await asyncio.sleep(_EVERYWHERE)

    async def _tell_hints(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(_BUNCH)
            self._news.clear()
            pending, self._pending = self._pending, set()
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

    async def events(self, caller: Caller, position: str | None) -> AsyncIterator[Event | None]:
        """What happens after the position, for ever; None now and then where nothing does.

        It ends where the reader is too slow, or the window closes.
        """
        with self._reading(caller, await self._now()) as (feed, reader):
            said = _POSITION.fullmatch(position or "")
            at, hints = said.groups() if said else (reader.since, self._hints)
            # What comes from here on waits among what follows, and whoever is cut off before it was not told of it.
            missed, told = self._missed(caller, hints), self._hints
            yield placed(Event(name="ready" if said or position is None else "reset"), f"{at}/{hints}")
            for event in missed:
                yield placed(event, f"{at}/{told}")
            async for event in self._replayed(feed, reader, at):
                at = event.journal or at
                yield placed(event, f"{at}/{told}")
            while (taken := await _taken(reader)) is not None:
                for event in taken:
                    if event.journal is None or _order(event.journal) > _order(at):
                        at = event.journal or at
                        # Whoever was ahead of the feed stays where they were.
                        there, _, hints = (event.id or "").partition("/")
                        yield event if there == at else placed(event, f"{at}/{hints}")
                if not taken:
                    yield None

    def _missed(self, caller: Caller, hints: str) -> list[Event]:
        boot, _, count = hints.partition(".")
        told = number(count) if boot == self._boot else None
        known = -1 if told is None else told
        changed = {**self._changed, CHAT: max(self._changed.get(CHAT, 0), self._pushed.get(caller.key.identity, 0))}
        missed = [topic for topic in TOPICS if known < changed.get(topic, 0)]
        topics = missed if caller.is_owner else [CHAT] if CHAT in missed else []
        return [Event(name="changed", body={"topics": topics})] if topics else []

    async def _replayed(self, feed: Feed, reader: Reader, at: str) -> AsyncIterator[Event]:
        """What stands between where they were and where their feed was when they came."""
        for _ in range(_MOST_PAGES):
            if _order(at) >= _order(reader.since):
                return
            news = await feed.news(at)
            for event in entries_of(news):
                yield event
            if news.position == at:
                return
            at = news.position
        yield Event(name="reset", journal=reader.since)

    async def _now(self) -> str:
        return await self._store.read(self._store.journal_feed.latest_position())

    @contextmanager
    def _reading(self, caller: Caller, now: str) -> Generator[tuple[Feed, Reader]]:
        whose = caller.key.identity
        if whose not in self._feeds:
            self._feeds[whose] = Feed(self._store, caller, now, lambda: self._hints)
            self._tasks[whose] = asyncio.create_task(self._feeds[whose].run(), name="feed")
        feed = self._feeds[whose]
        reader = Reader(feed.position, is_over=self._is_closed)
        feed.readers.add(reader)
        try:
            yield feed, reader
        finally:
            feed.readers.discard(reader)
            if not feed.readers and self._feeds.pop(whose, None):
                self._tasks.pop(whose).cancel()


async def _taken(reader: Reader) -> list[Event] | None:
    """Nothing after a while, so that the stream can say that it is there."""
    if reader.is_over:
        return None
    try:
        async with asyncio.timeout(HEARTBEAT):
            return await reader.take()
    except TimeoutError:
        return []


@transaction
def _look_again(topics: Sequence[str]) -> Statements[None]:
    for topic in topics:
        yield Notify(f"{WINDOW} {topic}")


def _order(position: str) -> tuple[int, int]:
    xid, _, pos = position.partition(".")
    return int(xid), int(pos)
