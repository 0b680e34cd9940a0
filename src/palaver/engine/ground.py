"""What every part of the engine stands on."""

import random
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from palaver.domain.source import Source
from palaver.engine.budget import Budget
from palaver.engine.following import Moved, following, where_now
from palaver.engine.happenings import Happenings
from palaver.engine.limits import Limits
from palaver.engine.news import News
from palaver.engine.options import Options
from palaver.engine.replies import Replies
from palaver.engine.waiting import through_outages
from palaver.engine.waitingroom import WaitingRoom
from palaver.ports.agent import Agents
from palaver.ports.clock import Clock
from palaver.ports.files import Shelf
from palaver.ports.meter import Meter, NoMeter
from palaver.ports.repositories import Store
from palaver.ports.tools import Toolset
from palaver.ports.work import Work

__all__ = ["Ground"]

T = TypeVar("T")


@dataclass(kw_only=True, slots=True)
class Ground:
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
    news: News
    waiting: WaitingRoom
    """Where programs wait for answers."""
    shelf: Shelf | None = None
    """Where files are kept; None where none are taken."""
    toolsets: Sequence[Toolset] = ()
    """What the agent can be given to use."""
    happenings: Happenings = field(default_factory=Happenings)
    meter: Meter = field(default_factory=NoMeter)
    budget: Budget = field(default_factory=Budget)
    limits: Limits = field(default_factory=Limits)
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

    def surely(self, work: Work[T]) -> Coroutine[Any, Any, T]:
        """Write, however long the store does not answer: what was worked out must not be lost for that."""
        return through_outages(lambda: self.store.transact(work))
