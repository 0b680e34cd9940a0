"""Database: runs transactions on SQLite or PostgreSQL, and wakes listeners after a commit."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from palaver.db.transaction import Transaction
from palaver.model.key import SessionKey

T = TypeVar("T")

# Topics to listen to.
ACCOUNTS = "accounts"
INBOX = "inbox"
JOURNAL = "journal"
OUTBOX = "outbox"
PEOPLE = "people"
TURNS = "turns"


def key_topic(key: SessionKey) -> str:
    """Return the topic on which the turn of this conversation learns of messages and stops."""
    return f"key {hashlib.sha256(key.text.encode()).hexdigest()[:32]}"


class Database(Protocol):
    """Runs transactions. If `transact` returns, the result is durable; if it raises, nothing was written."""

    def transact(self, work: Transaction[T]) -> Awaitable[T]:
        """Run all of it or nothing. A cancellation before the commit rolls it back; a later one has no effect."""
        ...

    async def read(self, work: Transaction[T]) -> T:
        """Run a transaction that only reads, on one consistent state, without waiting for writers."""
        ...

    async def scrub(self) -> None:
        """Remove traces of deleted rows from the log and from free space."""
        ...

    def listen(self, topic: str) -> AbstractContextManager[asyncio.Event]:
        """Return an event that is set after a transaction that notifies `topic`. Listen, read, then wait."""
        ...

    def hear(self, topic: str, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Call a function on the event loop instead of setting an event."""
        ...

    async def close(self) -> None: ...
