"""The store: one database, its search index, and everything that can be done with them."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self, TypeVar

from palaver.domain.errors import StoreUnavailable
from palaver.ports.access import Grants, Pairing
from palaver.ports.answers import Answers
from palaver.ports.archives import Archives
from palaver.ports.attaching import Attaching
from palaver.ports.conversations import Endings, Moves, Sessions, Transcripts
from palaver.ports.fates import Fates, Overview
from palaver.ports.files import Attachments
from palaver.ports.handing import Handing
from palaver.ports.lists import Lists
from palaver.ports.people import Aliases, Links, People
from palaver.ports.places import Accounts, Chats, Places
from palaver.ports.repositories import Inbox, Outbox, Parts, Steering, Turns
from palaver.ports.revisions import Revisions
from palaver.ports.search import Search
from palaver.ports.store import Database
from palaver.ports.talks import Talks
from palaver.ports.usage import Uses
from palaver.ports.window import Changes, Keys
from palaver.ports.work import Work
from palaver.stores import (
    accounts,
    aliases,
    answers,
    attaching,
    changes,
    chats,
    endings,
    fates,
    files,
    grants,
    handing,
    inbox,
    keys,
    links,
    listing,
    moves,
    outbox,
    overview,
    pairing,
    parts,
    people,
    places,
    revisions,
    sessions,
    steering,
    talks,
    transcript,
    turns,
    usage,
)
from palaver.stores.archive import exporting
from palaver.stores.erasure.forgetting import Forgetting

__all__ = ["Store"]

T = TypeVar("T")

_WHILE = 15.0
"""Seconds: longer than whoever waits through an outage waits between two tries."""


class Store:
    """Use it as `async with await open_store(url) as store`."""

    sessions: Sessions = sessions
    lists: Lists = listing
    transcripts: Transcripts = transcript
    moves: Moves = moves
    attaching: Attaching = attaching
    handing: Handing = handing
    inbox: Inbox = inbox
    parts: Parts = parts
    turns: Turns = turns
    steering: Steering = steering
    outbox: Outbox = outbox
    endings: Endings = endings
    revisions: Revisions = revisions
    files: Attachments = files
    archives: Archives = exporting
    people: People = people
    aliases: Aliases = aliases
    links: Links = links
    grants: Grants = grants
    pairing: Pairing = pairing
    places: Places = places
    chats: Chats = chats
    accounts: Accounts = accounts
    uses: Uses = usage
    keys: Keys = keys
    changes: Changes = changes
    talks: Talks = talks
    fates: Fates = fates
    answers: Answers = answers
    overview: Overview = overview

    def __init__(self, database: Database, search: Search) -> None:
        self.database = database
        self.search = search
        self.erasures = Forgetting(database, search)
        self._closed = False
        self._refused_at = self._refused_first = -_WHILE

    async def transact(self, work: Work[T]) -> T:
        try:
            return await self.database.transact(work)
        except StoreUnavailable:
            now = time.monotonic()
            if not self.has_refused:
                self._refused_first = now
            self._refused_at = now
            raise

    @property
    def has_refused(self) -> bool:
        return time.monotonic() - self._refused_at < _WHILE

    def refused_for(self, since: float) -> float:
        """Seconds, after a moment of the monotonic clock, for which again and again something was not written."""
        return self._refused_at - max(self._refused_first, since)

    async def read(self, work: Work[T]) -> T:
        return await self.database.read(work)

    async def scrub(self) -> None:
        await self.database.scrub()

    def listen(self, topic: str) -> AbstractContextManager[asyncio.Event]:
        return self.database.listen(topic)

    def hear(self, topic: str, call: Callable[[], None]) -> AbstractContextManager[None]:
        return self.database.hear(topic, call)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self.search.close()
        await self.database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
