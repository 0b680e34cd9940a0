"""Feeds: everything that one principal may know, read once, however many streams they have open."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from palaver.db.database import JOURNAL
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import StoreError
from palaver.model.value import value
from palaver.protocols.hooks import PartialAnswer
from palaver.store.status.journal_feed import JournalPage
from palaver.store.store import Store
from palaver.web.caller import Caller, principal_of

__all__ = [
    "Event",
    "Feed",
    "Reader",
    "entries_of",
    "placed",
]

_QUEUE = 256
_MOST_TURNS = 1000
_PAGE = 100
"""Less than a reader holds, so that whoever keeps up is not let go for a burst."""
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
"""Seconds between two looks while somebody's long transaction holds back what comes next."""
_NET = 5.0


@value
class Event:
    name: str
    body: Mapping[str, object] = field(default_factory=dict[str, object])
    journal: str | None = None
    """Its position, where it has one in the journal."""
    id: str | None = None
    """Whoever says this when they come back is told what came after it."""
    wire: bytes = b""
    """As it is sent: made once, however many read it."""
    merges: str | None = None
    """It takes the place of one of this name that was not told yet: of what grows only the last state counts."""


def placed(event: Event, id_: str) -> Event:
    """ASCII only, on one line: no text of anybody's can look like another event."""
    data = json.dumps(dict(event.body))
    return replace(event, id=id_, wire=f"id: {id_}\nevent: {event.name}\ndata: {data}\n\n".encode())


@dataclass(eq=False, slots=True)
class Reader:
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
class Feed:
    """Everything that one principal may know: read once, however many streams they have."""

    store: Store
    caller: Caller
    position: str
    hints: Callable[[], str]
    readers: set[Reader] = field(default_factory=set[Reader])
    sees: dict[int, bool] = field(default_factory=dict[int, bool])
    """Whether the conversation of a turn may be seen."""

    async def run(self) -> None:
        pause = _FIRST_PAUSE
        with self.store.listen(JOURNAL) as woken:
            while True:
                woken.clear()
                before, is_all = self.position, False
                with suppress(StoreError):
                    news = await self.news(before)
                    self.tell(news)
                    is_all = news.is_complete
                if is_all or self.position != before:
                    pause = _FIRST_PAUSE
                if is_all:
                    await _within(woken, _NET)
                elif self.position == before:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)

    def tell(self, news: JournalPage) -> None:
        for event in entries_of(news):
            self.push(event)
        self.position = news.position

    def push(self, event: Event) -> None:
        told = placed(event, f"{event.journal or self.position}/{self.hints()}")
        for reader in self.readers:
            reader.push(told)

    async def news(self, position: str) -> JournalPage:
        return await self.store.read(_news(self.store, self.caller, position))

    async def push_growth(self, growth: PartialAnswer) -> None:
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
            await self.store.read(_seen(self.store, self.caller, session))
        except StoreError:
            return False
        return True


@transaction
def _seen(store: Store, caller: Caller, session: str) -> Statements[None]:
    principal = yield from principal_of(caller, store)
    yield from store.sessions.get_visible(session, principal)


@transaction
def _news(store: Store, caller: Caller, position: str) -> Statements[JournalPage]:
    principal = yield from principal_of(caller, store)
    return (yield from store.journal_feed.read_changes(position, principal, _PAGE))


def entries_of(news: JournalPage) -> list[Event]:
    return [
        Event(
            name="entries",
            body={"session": each.session, "kind": each.kind, "first": each.first, "last": each.last},
            journal=each.position,
        )
        for each in news.changes
    ]


async def _within(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
