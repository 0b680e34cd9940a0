"""What most parts of the engine share."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
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
from palaver.protocols.clock import Clock
from palaver.protocols.hooks import EventSubscription
from palaver.protocols.tools import Toolset
from palaver.protocols.voice import Voice
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.store import Store


@dataclass(kw_only=True, slots=True)
class EngineContext:
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
    reply_waiter: ReplyWaiter
    blob_store: BlobStore | None = None
    """Where files are stored; None if this gateway takes no files."""
    outputs: Path | None = None
    """The folder of the files that the target `local` makes."""
    scripts: Scripts | None = None
    """Runs the scripts of jobs; None if they cannot have any."""
    voice: Voice | None = None
    """What speech services this gateway has."""
    pasted_keys: PastedKeys = field(default_factory=PastedKeys)
    toolsets: Sequence[Toolset] = ()
    subscriptions: Sequence[EventSubscription] = ()
    """Accounts that get events."""
    hooks: Hooks = field(default_factory=Hooks)
    meter: Meter = field(default_factory=NoMeter)
    departures: Departures = field(default_factory=Departures)
    budget: SendBudget = field(default_factory=SendBudget)
    ended_sends: EndedSends = field(default_factory=EndedSends)
    timeouts: Timeouts = field(default_factory=Timeouts)
    rng: random.Random = field(default_factory=random.Random)
    """Spreads retries in time."""
    chat_moves: ChatMoves = field(default_factory=dict[tuple[str, str | None], Mapping[str, str]])
    connecting: set[str] = field(default_factory=set[str])
    """Accounts that this worker serves or is about to, and that have not connected yet."""
    download_failing_since: dict[int, datetime] = field(default_factory=dict[int, datetime])
    """By inbox number: when the first download of its files failed."""
    failing_profiles: Collection[str] = frozenset()
    """Profiles whose agent failed last, as of the last heartbeat: its next answer ends the problem."""
    clock_problem: str = ""
    """Why this gateway takes on no work: its machine has another time than the database."""

    @property
    def speaks(self) -> bool:
        return self.voice is not None and self.voice.speaker is not None

    def set_settings(self, settings: Settings) -> None:
        self.settings = follow_moves(settings, self.chat_moves)
        self.replies.set_quotes(self.settings.quotes)

    def follow_moves(self, moves: ChatMoves) -> None:
        """Apply the settings of a moved chat under its new id too."""
        self.chat_moves = moves
        self.set_settings(self.settings)

    def current_source(self, source: Source) -> Source:
        return follow_move(source, self.chat_moves)
