"""The event hub: push what happens to every open browser that can see it, without gaps after a reconnect.

A change to a transcript has a position in the journal, the same on every worker: a client that reconnects sends the
last position it has read and gets the rest. Everything else is a hint that a topic has changed and is worth reading.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from secrets import token_hex
from typing import TYPE_CHECKING

from palaver.db.transaction import (
    ACCOUNTS,
    INBOX,
    JOBS,
    OUTBOX,
    PEOPLE,
    PROCESSES,
    TURNS,
    Notify,
    Statements,
    transaction,
)
from palaver.engine.hooks import PartialAnswer
from palaver.model.errors import StoreError
from palaver.platforms.web.adapter import user_of
from palaver.protocols.hooks import EventKind, GatewayEvent
from palaver.protocols.recent import remember
from palaver.store.status.journal_feed import WINDOW
from palaver.store.store import Store
from palaver.web.caller import OWNER, Caller
from palaver.web.feeds import Event, Feed, Reader, journal_events, with_id

if TYPE_CHECKING:
    from palaver.web.growing_answer import GrowingAnswer

__all__ = ["CHAT", "HEARTBEAT_SECONDS", "TOPICS", "Event", "Hub"]

HEARTBEAT_SECONDS = 15.0
"""Send a comment after this much silence."""
CHAT = "chat"
TOPICS = ("sessions", "turns", "inbox", "outbox", "jobs", "people", "platforms", "processes", CHAT)
_TOPIC_OF_NOTIFICATION: Mapping[str, str] = {
    ACCOUNTS: "platforms",
    INBOX: "inbox",
    JOBS: "jobs",
    OUTBOX: "outbox",
    TURNS: "turns",
    PEOPLE: "people",
    PROCESSES: "processes",
    **{f"{WINDOW} {topic}": topic for topic in TOPICS},
}
_MAX_REPLAYED_PAGES = 50
_HINT_SECONDS = 0.05
"""Hints within this time are sent as one."""
_DRAFT_SECONDS = 0.1
"""Between two states of a growing answer."""
_MAX_GROWING = 256
_TURN_ENDS = frozenset({EventKind.TURN_FINISHED.value, EventKind.TURN_FAILED.value})
_SHARE_SECONDS = 0.1
"""Between two notifications to all gateways."""
_POSITION = re.compile(r"([0-9]{1,19}\.[0-9]{1,18})/([0-9a-f]{8}\.[0-9]{1,18})", re.ASCII)
"""Journal position, then boot id and count of the hints."""


class Hub:
    """Run `serve` while the web interface is up; read `events` for each open stream."""

    def __init__(self, store: Store, *, alone: bool) -> None:
        self._store = store
        self._alone = alone
        """No other gateway uses this database."""
        self._feeds: dict[tuple[str | None, str | None], Feed] = {}
        """By identity and profile: what is visible depends on both."""
        self._tasks: dict[tuple[str | None, str | None], asyncio.Task[None]] = {}
        self._boot = token_hex(4)
        self._count = 0
        self._changed: dict[str, int] = {}
        """The count at each topic's last hint."""
        self._pushed: dict[str | None, int] = {}
        """The count at each person's last chat message."""
        self._pending: set[str] = set()
        self._pending_chats: set[str | None] = set()
        """Whose chats have changed."""
        self._has_pending = asyncio.Event()
        self._drafts: dict[int, PartialAnswer] = {}
        self._has_drafts = asyncio.Event()
        self._begun_drafts: dict[int, None] = {}
        """Turns whose answers have begun to grow, oldest first."""
        self._has_first_words = asyncio.Event()
        self._growing: dict[int, GrowingAnswer] = {}
        """Answers that somebody watches, by turn."""
        self._to_share: set[str] = set()
        self._has_to_share = asyncio.Event()
        self._is_closed = False

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return sum(len(feed.readers) for feed in self._feeds.values())

    async def position(self) -> str:
        """Return the current position. Read it before rendering a page, and stream events after it."""
        hints = self._hints
        return f"{await self._newest()}/{hints}"

    async def notice(self, happening: GatewayEvent) -> None:
        """Hook of the engine: turn what happened into hints."""
        name = happening.kind.value
        if happening.turn is not None and name in _TURN_ENDS:
            self._growing.pop(happening.turn, None)
        topics = {"sessions", "turns"} if happening.turn or name.startswith("turn") else {"sessions"}
        if happening.delivery is not None:
            topics.add("outbox")
        if happening.platform == "web":  # A page that was loaded between the push and the commit does not have it.
            self.hint_chat(f"web:{user_of(happening.chat or '')}")
        self.hint(*topics)

    def hint_chat(self, identity: str) -> None:
        """Announce that a person's chat has changed. Other gateways do not learn whose it is."""
        if self._alone:
            self._pending_chats.add(_key_identity(identity))
            self._has_pending.set()
        else:
            self.hint(CHAT)

    def hint(self, *topics: str) -> None:
        """Announce at every gateway that these topics have changed."""
        if self._alone:
            self._hint_here(topics)
        else:
            self._to_share.update(topics)
            self._has_to_share.set()

    def _hint_here(self, topics: Iterable[str]) -> None:
        self._pending.update(topics)
        self._has_pending.set()

    def grow(self, growth: PartialAnswer) -> None:
        """Take the current text of an answer being written; free if nobody is watching."""
        if self._feeds:
            self._drafts[growth.turn] = growth
            self._has_drafts.set()
            if growth.turn not in self._begun_drafts:
                remember(self._begun_drafts, growth.turn, None, _MAX_GROWING)
                self._has_first_words.set()

    def push(self, identity: str, event: Event) -> None:
        """Push to one person's browsers. A browser that missed it reads again, unless a later state follows anyway."""
        owner = _key_identity(identity)
        if event.merges is None:
            self._count += 1
            self._pushed[owner] = self._count
            if not self._alone:
                self.hint(CHAT)
        if feed := self._feeds.get((owner, None)):  # a browser has no profile
            (feed.push if event.merges is None else feed.push_text)(event)

    def growing(self, session: str) -> tuple[int, "GrowingAnswer"] | None:
        """Return the turn of a session whose answer is being shown, and the answer so far."""
        found = ((turn, answer) for turn, answer in self._growing.items() if answer.session == session)
        return next(found, None)

    def _growth(self, growth: PartialAnswer) -> Event:
        """Return what is new of a growing answer, rendered once for all who watch it."""
        from palaver.web.growing_answer import GrowingAnswer  # noqa: PLC0415 - an extra

        answer = self._growing.get(growth.turn)
        if answer is None or answer.part != len(growth.earlier):
            answer = GrowingAnswer(growth.session, len(growth.earlier))
            remember(self._growing, growth.turn, answer, _MAX_GROWING)
        return Event(name="growth", body={"session": growth.session, "turn": growth.turn, **answer.grow(growth.text)})

    async def serve(self) -> None:
        """Run until cancelled."""
        with ExitStack() as stack:
            woken = {name: stack.enter_context(self._store.listen(name)) for name in _TOPIC_OF_NOTIFICATION}
            async with asyncio.TaskGroup() as group:
                for name, event in woken.items():
                    group.create_task(self._listen(_TOPIC_OF_NOTIFICATION[name], event), name=f"hints {name}")
                group.create_task(self._send_hints(), name="hints")
                group.create_task(self._send_drafts(), name="drafts")
                if not self._alone:
                    group.create_task(self._share_hints(), name="shared hints")

    async def _listen(self, topic: str, event: asyncio.Event) -> None:
        while True:
            await event.wait()
            event.clear()
            if topic == "people":
                for feed in self._feeds.values():
                    feed.check_again()
            self._hint_here([topic])

    async def _send_drafts(self) -> None:
        """Send only the latest text of each turn, at a bounded rate."""
        while True:
            await self._has_drafts.wait()
            self._has_drafts.clear()
            self._has_first_words.clear()
            drafts, self._drafts = self._drafts, {}
            for growth in drafts.values():
                as_html = cache(partial(self._growth, growth))
                for feed in list(self._feeds.values()):
                    await feed.push_draft(growth, as_html)
            with suppress(TimeoutError):  # The first words of an answer do not wait for the next round.
                async with asyncio.timeout(_DRAFT_SECONDS):
                    await self._has_first_words.wait()

    async def _share_hints(self) -> None:
        """Notify through the database, which notifies this gateway too, so that no hint is sent twice."""
        while True:
            await self._has_to_share.wait()
            self._has_to_share.clear()
            topics, self._to_share = self._to_share, set()
            try:
                await self._store.transact(_notify(sorted(topics)))
            except StoreError:
                self._hint_here(topics)
            await asyncio.sleep(_SHARE_SECONDS)

    async def _send_hints(self) -> None:
        while True:
            await self._has_pending.wait()
            await asyncio.sleep(_HINT_SECONDS)
            self._has_pending.clear()
            pending, self._pending = self._pending, set()
            chats, self._pending_chats = self._pending_chats, set()
            self._count += 1
            self._changed.update(dict.fromkeys(pending, self._count))
            self._pushed.update(dict.fromkeys(chats, self._count))
            for (identity, _), feed in self._feeds.items():
                changed = pending | {CHAT} if identity in chats else pending
                if visible := _visible_topics(changed, is_owner=feed.caller.is_owner):
                    feed.push(Event(name="changed", body={"topics": visible}))

    @property
    def _hints(self) -> str:
        return f"{self._boot}.{self._count}"

    def close(self) -> None:
        """End every stream; clients reconnect when the server is back."""
        self._is_closed = True
        for feed in self._feeds.values():
            feed.end()

    async def events(
        self, caller: Caller, position: str | None, watch: str | None = None
    ) -> AsyncIterator[Event | None]:
        """Yield every event after the position, and None as a heartbeat.

        `watch` is the session whose growing answers the reader shows as HTML. The stream ends if the reader is too
        slow, or the server stops.
        """
        newest, known = await self._newest(), _POSITION.fullmatch(position or "")
        if known and _order(known[1]) > _order(newest):
            known = None  # of a database that was restored since: what comes now would seem old
        with self._subscribe(caller, newest, watch) as (feed, reader):
            at, hints = known.groups() if known else (reader.since, self._hints)
            # From here on events are queued for this reader. A client that is cut off before it has read the missed
            # hints must get them again, so they carry the count from before.
            missed, current = self._missed_hints(caller, hints), self._hints
            yield with_id(Event(name="ready" if known or position is None else "reset"), f"{at}/{hints}")
            for event in missed:
                yield with_id(event, f"{at}/{current}")
            async for event in self._replay(feed, reader, at):
                at = event.journal or at
                yield with_id(event, f"{at}/{current}")
            while (taken := await _take_or_timeout(reader)) is not None:
                for event in taken:
                    if event.journal is None or _order(event.journal) > _order(at):
                        at = event.journal or at
                        # A client ahead of its feed keeps its own position.
                        journal, _, hints = (event.id or "").partition("/")
                        yield event if journal == at else with_id(event, f"{at}/{hints}")
                if not taken:
                    yield None

    def _missed_hints(self, caller: Caller, hints: str) -> list[Event]:
        boot, _, count = hints.partition(".")
        known = int(count) if boot == self._boot else -1
        changed = {**self._changed, CHAT: max(self._changed.get(CHAT, 0), self._pushed.get(caller.key.identity, 0))}
        missed = {topic for topic in TOPICS if known < changed.get(topic, 0)}
        topics = _visible_topics(missed, is_owner=caller.is_owner)
        return [Event(name="changed", body={"topics": topics})] if topics else []

    async def _replay(self, feed: Feed, reader: Reader, at: str) -> AsyncIterator[Event]:
        """Yield what lies between the client's position and its feed's position when it connected."""
        for _ in range(_MAX_REPLAYED_PAGES):
            if _order(at) >= _order(reader.since):
                return
            news = await feed.read_journal(at)
            for event in journal_events(news):
                yield event
            if news.position == at:
                return
            at = news.position
        yield Event(name="reset", journal=reader.since)

    async def _newest(self) -> str:
        return await self._store.read(self._store.journal_feed.latest_position())

    @contextmanager
    def _subscribe(self, caller: Caller, now: str, watch: str | None) -> Generator[tuple[Feed, Reader]]:
        name = caller.key.identity, caller.key.profile
        if name not in self._feeds:
            self._feeds[name] = Feed(self._store, caller, now, lambda: self._hints)
            self._tasks[name] = asyncio.create_task(self._feeds[name].run(), name="feed")
        feed = self._feeds[name]
        reader = Reader(feed.position, watch, is_over=self._is_closed)
        feed.readers.add(reader)
        try:
            yield feed, reader
        finally:
            feed.readers.discard(reader)
            if not feed.readers and self._feeds.pop(name, None):
                self._tasks.pop(name).cancel()


def _key_identity(identity: str) -> str | None:
    """Return whom the keys of a person name; the owner's name nobody."""
    return None if identity == f"web:{OWNER}" else identity


def _visible_topics(topics: AbstractSet[str], *, is_owner: bool) -> list[str]:
    """Only the owner sees more than transcripts and their own chat."""
    return [topic for topic in TOPICS if topic in topics and (is_owner or topic == CHAT)]


async def _take_or_timeout(reader: Reader) -> list[Event] | None:
    """Return nothing after a while, so that the stream can send a heartbeat."""
    if reader.is_over:
        return None
    try:
        async with asyncio.timeout(HEARTBEAT_SECONDS):
            return await reader.take()
    except TimeoutError:
        return []


@transaction
def _notify(topics: Sequence[str]) -> Statements[None]:
    for topic in topics:
        yield Notify(f"{WINDOW} {topic}")


def _order(position: str) -> tuple[int, int]:
    xid, _, pos = position.partition(".")
    return int(xid), int(pos)
