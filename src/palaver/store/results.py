"""Results: the values that transactions of the queue return and take."""

from collections.abc import Callable
from datetime import datetime
from enum import Enum, StrEnum
from typing import NamedTuple

from palaver.db.transaction import Transaction
from palaver.model.key import SessionKey
from palaver.model.session import EndReason, Session
from palaver.model.source import account_text
from palaver.model.split import ReplyPlace
from palaver.model.transcript import Entry, Sender
from palaver.model.turn import Outbound, Received, Turn
from palaver.model.value import value


class Departure(NamedTuple):
    """A request that leaves: a send at an attempt, or the draft of a turn under a fence, and who had claimed it."""

    kind: str
    """`send` or `draft`."""
    number: int
    attempt: int
    worker: str


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
    """Why the session before it ended, unless a person asked for it."""
    before: str | None = None
    """The session that a reset left behind."""
    ended: str | None = None
    """The same, unless it had already ended."""
    before_had_words: bool = False
    is_alone: bool = False
    """The sender is the only participant, and no other chat is attached."""
    is_first_contact: bool = False
    """The sender never took part in a session of this profile before."""


@value
class Begun:
    """A turn, the messages it answers, and the session it runs in."""

    turn: Turn
    opened: Opened
    messages: tuple[Received, ...]
    has_notes: bool = False
    """The agent may have notes about the person or the chat."""
    more_wait: bool = False
    """Other messages wait for it, as far as is known."""


@value
class Held:
    """No turn began: the first message is a command or, until the given time, waits for the rest of its burst.

    Without a message, another gateway has the conversation in hand until about then.
    """

    head: Received | None
    until: datetime | None = None


@value
class BusyNotices:
    """What to do about a new message while a turn waits for an approval."""

    place: ReplyPlace | None
    """None for a sender who reads no notices."""
    parked: str | None = None
    """What to say, once for each such turn."""
    answer: "TakeAnswer | None" = None
    """Takes the message of this number as the answer to what the turn asks; returns whether it is one."""
    withdraw: "Withdraw | None" = None
    """Ends such a turn, so that the message of this number need not wait for it."""


Withdraw = Callable[[SessionKey, int, datetime], Transaction[None]]
TakeAnswer = Callable[[SessionKey, int, datetime], Transaction[bool]]


@value(kw_only=False)
class Words:
    """An answer in words, and who gave it."""

    text: str
    sender: Sender | None = None


@value
class CommandResult:
    """What a command answered, and the sessions that were open before and after it."""

    answer: str
    left: Session | None = None
    """As it is after the command."""
    entered: Session | None = None


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
    """What a running turn has to react to."""

    key: SessionKey
    """The present key of the conversation, which can change while the turn runs."""
    stop: bool = False
    waiting: tuple[Received, ...] = ()
    """Messages that it does not answer."""


@value
class Status:
    """What is going on in a conversation."""

    session: Session | None = None
    """None also if the principal cannot see it."""
    running_since: datetime | None = None
    question: str | None = None
    """The id of the question, if a turn waits for a person."""
    wants_words: bool = False
    """The question wants an answer in words, not an approval."""
    waits_for_client: bool = False
    """A turn waits for the results of tools that its client runs."""
    waiting: int = 0

    @property
    def is_parked(self) -> bool:
        return self.question is not None


class Decision(Enum):
    """The outcome of an answer to a question."""

    DONE = "done"
    NOTHING = "nothing"
    """No turn asks anything."""
    OTHER = "other"
    """The turn asks something else by now."""
    WITHDRAWN = "withdrawn"
    """A message withdrew the question."""
    NEEDS_WORDS = "needs words"
    """The question wants an answer in words, not an approval."""
    NEEDS_APPROVAL = "needs approval"


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
    """What an operation hid or restored."""

    kind: OperationKind
    session: str
    entries: tuple[Entry, ...] = ()
    summaries: int = 0
    """Compactions that an undo took back first, or its redo made again."""
    command_name: str | None = None
    """The command that made it, if that is not its kind."""


@value
class Preview:
    """A session in a list, with the last thing a person said in it."""

    session: Session
    last_said: str
