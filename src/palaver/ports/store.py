"""The store's face: durable state as small groups of work, each piece one atomic step."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import Protocol, TypeVar
from zoneinfo import ZoneInfo

from palaver.domain.busy import Choice
from palaver.domain.key import SessionKey
from palaver.domain.lifecycle import EndReason
from palaver.domain.reset import ResetPolicy
from palaver.domain.session import Session
from palaver.domain.source import Source
from palaver.domain.transcript import Entry
from palaver.domain.turn import Outbound, Received, Turn
from palaver.domain.value import value
from palaver.ports.work import Work

__all__ = [
    "ACCOUNTS",
    "INBOX",
    "JOURNAL",
    "OUTBOX",
    "PEOPLE",
    "TURNS",
    "Begun",
    "Choose",
    "Database",
    "Decision",
    "Greet",
    "Held",
    "Offer",
    "Opened",
    "Opening",
    "OperationKind",
    "Preview",
    "ResetRule",
    "ResetRules",
    "Signals",
    "Status",
    "Undone",
    "Welcome",
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

    def transact(self, work: Work[T]) -> Awaitable[T]:
        """Run the work as one transaction, whole or not at all. Once it commits, a cancellation comes too late."""
        ...

    async def read(self, work: Work[T]) -> T:
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


@value
class ResetRule:
    """What decides whether a conversation goes on: see `decide_reset`."""

    policy: ResetPolicy
    zone: ZoneInfo
    process_limit: timedelta = timedelta(hours=24)


ResetRules = Callable[[Source], ResetRule]


class Opening(StrEnum):
    CREATED = "created"
    REUSED = "reused"
    REOPENED = "reopened"
    RESET = "reset"


@value
class Opened:
    """A conversation's open session and how it came to be."""

    session: Session
    opening: Opening
    reason: EndReason | None = None
    """Why the session before it ended, where that was not somebody's wish."""
    before: str | None = None
    """The session that a reset left behind."""
    ended: str | None = None
    """The same, where it had not ended by itself earlier."""
    before_had_words: bool = False
    is_alone: bool = False
    """Whoever speaks is known to be the only one who takes part, and no other place leads there."""
    is_first_contact: bool = False
    """Whoever speaks never took part in a session of the profile before."""
    lacks_home: bool = False
    """Nobody has said yet where output for the platform goes; looked up at a first contact."""


@value
class Begun:
    """A turn, the messages it answers, and the session it runs in."""

    turn: Turn
    opened: Opened
    messages: tuple[Received, ...]


@value
class Held:
    """No turn was begun: the head of the line stands alone or, with a time given, waits for what belongs to it."""

    head: Received
    until: datetime | None = None


@value
class Welcome:
    """What is said when a conversation opens: to the agent, and to the chat."""

    notes: tuple[str, ...] = ()
    notices: tuple[Outbound, ...] = ()


@value
class Signals:
    """What was said to a running turn."""

    key: SessionKey
    """Of the conversation as it is now: it may have got another since the turn began."""
    stop: bool = False
    waiting: tuple[Received, ...] = ()
    """Messages that it does not answer."""


@value
class Status:
    """What is going on in a conversation."""

    session: Session | None = None
    """None also where there is one that the principal may not see."""
    running_since: datetime | None = None
    question: str | None = None
    """The name of what a turn asks, where one waits for somebody's permission."""
    waiting: int = 0

    @property
    def is_parked(self) -> bool:
        return self.question is not None


class Decision(Enum):
    """What became of an answer to a question."""

    DONE = "done"
    NOTHING = "nothing"
    """Nothing is asked."""
    OTHER = "other"
    """Something else is asked by now."""


Choose = Callable[[Sequence[Received]], Choice]
"""Given what waits in a conversation, the first in front: how much of it becomes a turn. May be asked again."""
Offer = Callable[[Sequence[Received]], Sequence[Received]]
"""Given what waits in a conversation: what of it goes into the turn that runs. May be asked again."""
Greet = Callable[[Opened, Received], Welcome]
"""Given the message that is answered last."""


class OperationKind(StrEnum):
    RESET = "reset"
    SWITCH = "switch"
    UNDO = "undo"
    COMPACTION = "compaction"
    BRANCH = "branch"
    ATTACH = "attach"
    HANDOFF = "handoff"
    REVISION = "revision"


@value
class Undone:
    """What an operation took out of sight, or brought back."""

    kind: OperationKind
    session: str
    entries: tuple[Entry, ...] = ()
    deed: str | None = None
    """What people know it as, where that is not its kind."""


@value
class Preview:
    """A session in a list, with the last thing a person said in it."""

    session: Session
    last_said: str
