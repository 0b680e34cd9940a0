"""Fates: what became of messages, and what is going on now, told for a principal."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from palaver.domain.access import AccessRole
from palaver.domain.lifecycle import InboxState, OutboxState, TurnState
from palaver.domain.session import Principal, Session
from palaver.domain.transcript import Entry, ToolCall
from palaver.domain.turn import Delivery, Inbound, Turn, Usage
from palaver.domain.value import value
from palaver.ports.work import Work

__all__ = ["NAMES", "Arrival", "Fate", "Fates", "Flight", "Overview", "Run", "Sending"]

NAMES = "in:42, turn:7, out:7168, a message id of a platform, telegram:CHAT:MESSAGE, or a session"
"""What can be asked for."""


@value
class Arrival:
    """A message that came in."""

    number: int
    key: str
    state: InboxState
    received: datetime
    reason: str | None = None
    """Why it was refused or failed."""
    role: AccessRole | None = None
    inbound: Inbound | None = None
    """None for what was deleted together with its session."""
    place: str | None = None
    """The key of the place it was said in, where that place was attached to the conversation."""
    behind_turn: int | None = None
    """While it waits: the turn that has to end first."""
    behind: int = 0
    """While it waits: how many messages come before it."""


@value
class Run:
    """A turn, and what it left."""

    turn: Turn
    ended: datetime | None
    stop: str | None
    """Who asked it to stop, and when."""
    usage: Usage
    entries: tuple[Entry, ...]
    taken_back: bool = False
    """Something of it was undone or deleted: whoever does not see everything is told none of its words."""


@value
class Sending:
    """Something owed."""

    delivery: Delivery
    why: str
    """What it answers: `reply`, `command`, `busy`, `halt`, `welcome`, …"""
    worker: str | None = None
    """Who has claimed it."""
    claim_until: datetime | None = None


@value
class Fate:
    """A turn with all it answers and owes; or what never came to a turn."""

    arrivals: tuple[Arrival, ...] = ()
    run: Run | None = None
    sendings: tuple[Sending, ...] = ()


@value
class Flight:
    """A turn that has not ended, and the conversation it is in."""

    turn: Turn
    session: Session
    stop: str | None = None
    """Who asked it to stop, and when."""
    asked: ToolCall | None = None
    """What it waits for permission for."""
    question: str | None = None
    """The name of that, for an answer to it and to nothing that is asked later."""
    waiting: int = 0
    """How many messages wait behind it."""


class Fates(Protocol):
    """Read for a principal: their own messages and the turns of conversations they may see."""

    def fates(self, name: str, principal: Principal, *, limit: int = 20) -> Work[list[Fate]]:
        """Of a message, a turn or a send one; of a session those of its newest turns. Raises NotFound."""
        ...


class Overview(Protocol):
    """What is going on, and what went on lately."""

    def flights(
        self,
        principal: Principal,
        limit: int,
        session: str | None = None,
        *,
        number: int | None = None,
        states: Collection[TurnState] = (),
    ) -> Work[list[Flight]]:
        """Turns that have not ended, the oldest first: everywhere, or in one session; one of them; those in states."""
        ...

    def arrivals(
        self, principal: Principal, *, states: Collection[InboxState] = (), before: int | None = None, limit: int = 50
    ) -> Work[list[Arrival]]:
        """The newest messages with a number below `before`; who does not see everything is shown none.

        Of those in certain states only what is found among the last few thousand.
        """
        ...

    def sendings(
        self, principal: Principal, *, states: Collection[OutboxState] = (), limit: int = 50
    ) -> Work[list[Sending]]:
        """The newest of what is or was owed; as with arrivals."""
        ...
