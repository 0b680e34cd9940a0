"""What every part of the engine stands on."""

import random
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from palaver.db.transaction import Transaction
from palaver.engine.delivery.drafts import Budget
from palaver.engine.delivery.replies import Replies
from palaver.engine.hooks import EventOutbox, Hooks
from palaver.engine.metrics import Meter, NoMeter
from palaver.engine.options import Moved, Options, following, where_now
from palaver.engine.reply_waiter import ReplyWaiter
from palaver.engine.retry import Timeouts, retry_outage
from palaver.model.source import Source
from palaver.protocols.agent import Agents
from palaver.protocols.clock import Clock
from palaver.protocols.tools import Toolset
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.store import Store

__all__ = [
    "EngineContext",
]

T = TypeVar("T")


@dataclass(kw_only=True, slots=True)
class EngineContext:
    store: Store
    options: Options
    """To be read where they are needed: they may be exchanged while the gateway runs."""
    agents: Agents
    """Likewise."""
    clock: Clock
    replies: Replies
    worker: str
    """The name of this process among all that ever worked on the store."""
    alone: bool
    """No other gateway can be at work on this store, so whatever another worker holds has no owner."""
    event_outbox: EventOutbox
    waiting: ReplyWaiter
    """Where programs wait for answers."""
    shelf: BlobStore | None = None
    """Where files are kept; None where none are taken."""
    toolsets: Sequence[Toolset] = ()
    """What the agent can be given to use."""
    hooks: Hooks = field(default_factory=Hooks)
    meter: Meter = field(default_factory=NoMeter)
    budget: Budget = field(default_factory=Budget)
    timeouts: Timeouts = field(default_factory=Timeouts)
    chance: random.Random = field(default_factory=random.Random)
    """Spreads retries; keeps no secret."""
    moved: Moved = field(default_factory=dict[str, Mapping[str, str]])
    """The chats that have another id by now."""
    connecting: set[str] = field(default_factory=set[str])
    """Accounts that are served here, or are about to be, and have not been connected yet."""
    unfetched: dict[int, datetime] = field(default_factory=dict[int, datetime])
    """Since when the files of messages, by their numbers, are asked for in vain."""

    def adopt(self, options: Options) -> None:
        self.options = following(options, self.moved)

    def follow(self, moved: Moved) -> None:
        """Whatever is set for a chat holds wherever it is now."""
        self.moved = moved
        self.adopt(self.options)

    def where_now(self, source: Source) -> Source:
        return where_now(source, self.moved)

    def retry_until_stored(self, work: Transaction[T]) -> Coroutine[Any, Any, T]:
        """Write, however long the store does not answer: what was worked out must not be lost for that."""
        return retry_outage(lambda: self.store.transact(work))
