"""Results: the values that transactions of the queue return and take."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from zoneinfo import ZoneInfo

from palaver.model.addressing import Batch
from palaver.model.key import SessionKey
from palaver.model.reset import ResetPolicy
from palaver.model.session import EndReason, Session
from palaver.model.source import Source
from palaver.model.transcript import Entry
from palaver.model.turn import Outbound, Received, Turn, account_text
from palaver.model.value import value


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
    """The sender is the only participant, and no other chat is attached."""
    is_first_contact: bool = False
    """The sender never took part in a session of this profile before."""
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
class BusyNotices:
    """Notices to send once for each open turn that a new message has to wait for."""

    running: Outbound | None = None
    parked: Outbound | None = None
    """While the turn waits for an approval."""


@value
class RepeatSafety:
    """The accounts at which a send can be repeated without showing the message twice."""

    accounts: frozenset[str] = frozenset()
    edits: frozenset[str] = frozenset()
    """Where that holds for edits of a sent message."""

    def covers(self, outbound: Outbound) -> bool:
        account = account_text(outbound.platform, outbound.account)
        return account in self.accounts or (outbound.edits is not None and account in self.edits)


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


Choose = Callable[[Sequence[Received]], Batch]
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
    command_name: str | None = None
    """What people know it as, where that is not its kind."""


@value
class Preview:
    """A session in a list, with the last thing a person said in it."""

    session: Session
    last_said: str
