"""Store: one database, its search index, and the transactions on them by subject."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self, TypeVar

from palaver.db.database import Database
from palaver.db.transaction import Transaction
from palaver.model.errors import StoreUnavailable
from palaver.store import accounts
from palaver.store.archive import exporter
from palaver.store.conversations import (
    attach,
    attachments,
    chat_migration,
    expiry,
    handoff,
    history,
    sessions,
    transcript,
)
from palaver.store.people import aliases, api_tokens, grants, links, pairing, people, usage
from palaver.store.privacy.erasure import Erasures
from palaver.store.queue import inbox, outbox, revisions, turn_control, turns
from palaver.store.search.search import Search
from palaver.store.status import journal_feed, message_status, overview, session_list, trace, webchat_log

T = TypeVar("T")

_OUTAGE_SECONDS = 15.0
"""Longer than the longest pause between two attempts during an outage."""


class Store:
    """Use it as `async with await open_store(url) as store`."""

    accounts = accounts
    aliases = aliases
    api_tokens = api_tokens
    attach = attach
    attachments = attachments
    chat_migration = chat_migration
    expiry = expiry
    exporter = exporter
    grants = grants
    handoff = handoff
    history = history
    inbox = inbox
    journal_feed = journal_feed
    links = links
    message_status = message_status
    outbox = outbox
    overview = overview
    pairing = pairing
    people = people
    revisions = revisions
    session_list = session_list
    sessions = sessions
    turn_control = turn_control
    trace = trace
    transcript = transcript
    turns = turns
    usage = usage
    webchat_log = webchat_log

    def __init__(self, database: Database, search: Search) -> None:
        self.database = database
        self.search = search
        self.erasures = Erasures(database, search)
        self._closed = False
        self._refused_at = self._refused_first = -_OUTAGE_SECONDS

    async def transact(self, work: Transaction[T]) -> T:
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
        return time.monotonic() - self._refused_at < _OUTAGE_SECONDS

    def refused_for(self, since: float) -> float:
        """Return for how many seconds writes have failed, counted from `since` on the monotonic clock."""
        return self._refused_at - max(self._refused_first, since)

    async def read(self, work: Transaction[T]) -> T:
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
