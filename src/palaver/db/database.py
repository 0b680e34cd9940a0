"""Database: runs transactions on SQLite or PostgreSQL, and wakes listeners after a commit."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from palaver.db.transaction import Transaction
from palaver.model.key import SessionKey

__all__ = [
    "ACCOUNTS",
    "INBOX",
    "JOURNAL",
    "OUTBOX",
    "PEOPLE",
    "TURNS",
    "Database",
    "key_topic",
]

T = TypeVar("T")

# What one may listen to.
ACCOUNTS = "accounts"
INBOX = "inbox"
JOURNAL = "journal"
OUTBOX = "outbox"
PEOPLE = "people"
TURNS = "turns"


def key_topic(key: SessionKey) -> str:
    """Something was said to the turn that runs in this conversation."""
    return f"key {hashlib.sha256(key.text.encode()).hexdigest()[:32]}"


class Database(Protocol):
    """Drives work. What `transact` returned is durable; what it raised left no trace."""

    def transact(self, work: Transaction[T]) -> Awaitable[T]:
        """Run the work as one transaction, whole or not at all. Once it commits, a cancellation comes too late."""
        ...

    async def read(self, work: Transaction[T]) -> T:
        """Run work that only reads, over one consistent state, without waiting for writers."""
        ...

    async def scrub(self) -> None:
        """Leave as little as can be of what was deleted where no query finds it: in logs and in free space."""
        ...

    def listen(self, topic: str) -> AbstractContextManager[asyncio.Event]:
        """An event that is set after work that notified `topic` has committed. Listen, look, then wait."""
        ...

    def hear(self, topic: str, call: Callable[[], None]) -> AbstractContextManager[None]:
        """The same, as a call on the event loop; for those who seldom hear anything."""
        ...

    async def close(self) -> None: ...
