"""What the parts of the engine share: three values, so that each takes what it needs."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from palaver.engine.delivery.departures import Departures
from palaver.engine.delivery.replies import Replies
from palaver.engine.delivery.sender import EndedSends, SendBudget
from palaver.engine.hooks import Hooks, Meter, NoMeter
from palaver.engine.intake.pasted_keys import PastedKeys
from palaver.engine.jobs.scripts import Scripts
from palaver.engine.reply_waiter import ReplyWaiter
from palaver.engine.retry import Timeouts
from palaver.engine.settings import Agents, ChatMoves, Settings, follow_move, follow_moves
from palaver.model.source import Source
from palaver.model.value import value
from palaver.protocols.clock import Clock
from palaver.protocols.hooks import EventSubscription
from palaver.protocols.tools import Toolset
from palaver.protocols.voice import Voice
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.store import Store


@dataclass(kw_only=True, slots=True)
class EngineContext:
    """Who works here, for whom, and by which settings."""

    store: Store
    settings: Settings
    """Read these when you need them: a reload replaces them."""
    agents: Agents
    """A reload replaces these too."""
    clock: Clock
    replies: Replies
    worker: str
    """The name of this process, unique among all that ever worked on the store."""
    alone: bool
    """No other gateway can work on this store, so what another worker holds has no owner."""
    subscriptions: Sequence[EventSubscription] = ()
    """Accounts that get events."""
    hooks: Hooks = field(default_factory=Hooks)
    meter: Meter = field(default_factory=NoMeter)
    timeouts: Timeouts = field(default_factory=Timeouts)
    rng: random.Random = field(default_factory=random.Random)
    """Spreads retries in time."""
    chat_moves: ChatMoves = field(default_factory=dict[tuple[str, str | None], Mapping[str, str]])

    def set_settings(self, settings: Settings) -> None:
        self.settings = follow_moves(settings, self.chat_moves)
        self.replies.set_quotes(self.settings.quotes)

    def follow_moves(self, moves: ChatMoves) -> None:
        """Apply the settings of a moved chat under its new id too."""
        self.chat_moves = moves
        self.set_settings(self.settings)

    def current_source(self, source: Source) -> Source:
        return follow_move(source, self.chat_moves)


@value
class Resources:
    """What the gateway gives to turns, jobs and commands. What is None, this gateway does not have."""

    reply_waiter: ReplyWaiter
    blob_store: BlobStore | None = None
    """Where files are stored."""
    outputs: Path | None = None
    """The folder of the files that the target `local` makes."""
    scripts: Scripts | None = None
    """Runs the scripts of jobs."""
    voice: Voice | None = None
    toolsets: Sequence[Toolset] = ()
    pasted_keys: PastedKeys = field(default_factory=PastedKeys)

    @property
    def speaks(self) -> bool:
        return self.voice is not None and self.voice.speaker is not None


@dataclass(kw_only=True, slots=True)
class LiveState:
    """What this process knows while it lives, and nobody stores: after a restart it is found out again."""

    departures: Departures
    budget: SendBudget = field(default_factory=SendBudget)
    ended_sends: EndedSends = field(default_factory=EndedSends)
    connecting: set[str] = field(default_factory=set[str])
    """Accounts that this worker serves or is about to, and that have not connected yet."""
    failing_profiles: Collection[str] = frozenset()
    """Profiles whose agent failed last, as of the last heartbeat: its next answer ends the problem."""
    clock_problem: str = ""
    """Why this gateway takes on no work: its machine has another time than the database."""
