"""Feeds: the journal read once for each principal, however many event streams they have open."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from palaver.db.transaction import JOURNAL, Statements, transaction
from palaver.engine.hooks import PartialAnswer
from palaver.model.errors import NoAccess, NotFound, StoreError, StoreUnavailable
from palaver.model.value import value
from palaver.protocols.recent import remember
from palaver.store.status.journal_feed import JournalPage
from palaver.store.store import Store
from palaver.web.caller import Caller, principal_of

_MAX_QUEUED_EVENTS = 256
_MAX_CACHED_TURNS = 1000
_JOURNAL_PAGE = 100
"""Smaller than a reader's queue, so that a burst does not disconnect a reader that keeps up."""
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
"""Between two reads while another transaction holds back the next position."""
_POLL_SECONDS = 5.0
"""Read again after this long even without a notification."""


@value
class Event:
    name: str
    body: Mapping[str, object] = field(default_factory=dict[str, object])
    journal: str | None = None
    """Its position in the journal, if it has one."""
    id: str | None = None
    """A client that sends this id back gets everything after this event."""
    wire: bytes = b""
    """The encoded event: made once for all readers."""
    merges: str | None = None
    """Replaces a queued event with the same value: only the last state of a growing text counts."""


def with_id(event: Event, id_: str) -> Event:
    """Encode the event. JSON in ASCII stays on one line, so no text can look like another event."""
    data = json.dumps(dict(event.body))
    return replace(event, id=id_, wire=f"id: {id_}\nevent: {event.name}\ndata: {data}\n\n".encode())


@dataclass(eq=False, slots=True)
class Reader:
    """One open stream and its bounded queue."""

    since: str
    watches: str | None = None
    """The session whose growing answer it shows as HTML. Without one it gets the text of every answer."""
    queue: list[Event] = field(default_factory=list[Event])
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False

    def push(self, event: Event) -> None:
        """Queue an event. A reader that is too slow is disconnected; it comes back and resumes."""
        if event.merges is not None and self.queue and self.queue[-1].merges == event.merges:
            self.queue[-1] = event
        elif len(self.queue) >= _MAX_QUEUED_EVENTS:
            self.is_over = True
        else:
            self.queue.append(event)
        self.woken.set()

    def end(self) -> None:
        self.is_over = True
        self.woken.set()

    async def take(self) -> list[Event] | None:
        """Wait for events and return them; None if the stream is over."""
        await self.woken.wait()
        self.woken.clear()
        taken, self.queue = self.queue, []
        return None if self.is_over else taken


@dataclass(eq=False)
class Feed:
    """Everything one principal can see."""

    store: Store
    caller: Caller
    position: str
    hints: Callable[[], str]
    readers: set[Reader] = field(default_factory=set[Reader])
    visible_turns: dict[int, bool] = field(default_factory=dict[int, bool])
    """Whether the caller can read the conversation of a turn."""

    async def run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        with self.store.listen(JOURNAL) as woken:
            while True:
                woken.clear()
                before, is_complete = self.position, False
                try:
                    news = await self.read_journal(before)
                except NoAccess:
                    self.end()
                    return
                except StoreError:
                    pass
                else:
                    for event in journal_events(news):
                        self.push(event)
                    self.position = news.position
                    is_complete = news.is_complete
                if is_complete or self.position != before:
                    pause = _FIRST_PAUSE_SECONDS
                if is_complete:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_POLL_SECONDS):
                            await woken.wait()
                elif self.position == before:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def end(self) -> None:
        for reader in self.readers:
            reader.end()

    def check_again(self) -> None:
        """Access has changed: forget what could be read, and let each stream check its key."""
        self.visible_turns.clear()
        for reader in self.readers:
            reader.woken.set()

    def push(self, event: Event) -> None:
        self._push_to(event, self.readers)

    def push_text(self, event: Event) -> None:
        """Push a growing text to those who do not get it as HTML."""
        self._push_to(event, [reader for reader in self.readers if reader.watches is None])

    def _push_to(self, event: Event, readers: Iterable[Reader]) -> None:
        encoded = with_id(event, f"{event.journal or self.position}/{self.hints()}")
        for reader in readers:
            reader.push(encoded)

    async def read_journal(self, position: str) -> JournalPage:
        @transaction
        def read() -> Statements[JournalPage]:
            principal = yield from principal_of(self.caller, self.store)
            return (yield from self.store.journal_feed.read_changes(position, principal, _JOURNAL_PAGE))

        return await self.store.read(read())

    async def push_draft(self, growth: PartialAnswer, as_html: Callable[[], Event]) -> None:
        """Push an answer's current text if the caller can read its conversation; check that once per turn."""
        watching = [reader for reader in self.readers if reader.watches == growth.session]
        if not watching and all(reader.watches for reader in self.readers):
            return
        if growth.turn not in self.visible_turns:
            with suppress(StoreUnavailable):  # asked again with the next words
                remember(self.visible_turns, growth.turn, await self._can_read(growth.session), _MAX_CACHED_TURNS)
        if self.visible_turns.get(growth.turn):
            body = {"session": growth.session, "turn": growth.turn, "text": growth.text}
            self.push_text(Event(name="draft", body=body, merges=f"draft {growth.turn}"))
            if watching:
                self._push_to(as_html(), watching)

    async def _can_read(self, session: str) -> bool:
        @transaction
        def find() -> Statements[None]:
            principal = yield from principal_of(self.caller, self.store)
            yield from self.store.sessions.get_visible(session, principal)

        try:
            await self.store.read(find())
        except (NotFound, NoAccess):
            return False
        return True


def journal_events(news: JournalPage) -> list[Event]:
    return [
        Event(
            name="entries",
            body={"session": change.session, "kind": change.kind, "first": change.first, "last": change.last},
            journal=change.position,
        )
        for change in news.changes
    ]
