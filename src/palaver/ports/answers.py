"""What a store does for programs that wait: whether a message is answered yet, and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Protocol

from palaver.domain.key import SessionKey
from palaver.domain.lifecycle import TurnState
from palaver.domain.session import Principal, Session
from palaver.domain.source import Source
from palaver.domain.transcript import Entry, ToolCall
from palaver.domain.turn import Received, Turn, Usage
from palaver.domain.value import value
from palaver.domain.view import left_open
from palaver.ports.work import Work

__all__ = ["Answers", "Progress", "Reply"]


@value
class Progress:
    """How far a message has come; it holds no content."""

    number: int
    turn: int | None
    """The turn that answers it, once there is one."""
    is_settled: bool
    """Nothing more comes by itself: it is answered, refused, or waits for somebody."""


@value
class Reply:
    """A message and what came of it so far."""

    received: Received
    turn: Turn | None = None
    """None where no turn answers it, or none that the principal may see."""
    ended: datetime | None = None
    usage: Usage = field(default_factory=Usage)
    entries: tuple[Entry, ...] = ()
    """What the turn has written that nothing hides, in order."""
    notices: tuple[str, ...] = ()
    """What was said in return beside the transcript: the answer to a command, what a turn asks, why it failed."""

    @property
    def is_parked(self) -> bool:
        return self.turn is not None and self.turn.state is TurnState.PARKED

    @property
    def waits_with(self) -> tuple[ToolCall, ...]:
        """The calls of a parked turn that have no result, where whoever is answered offered to use them."""
        offered = {tool.name for tool in self.received.inbound.offers}
        if self.turn is None or not self.is_parked:
            return ()
        return tuple(call for call in left_open(self.entries, str(self.turn.number)) if call.name in offered)


class Answers(Protocol):
    def said(self, sources: Sequence[Source], principal: Principal) -> Work[Received | None]:
        """The message that was said under one of these ids, if it is the principal's own."""
        ...

    def progress(self, numbers: Sequence[int]) -> Work[list[Progress]]:
        """Of these messages, as far as they are there."""
        ...

    def reply(self, number: int, principal: Principal) -> Work[Reply]:
        """Raises NotFound for what is not there and for what the principal did not say, alike."""
        ...

    def heard(self, turn: int, principal: Principal) -> Work[Received | None]:
        """The message of the principal's that a turn answers."""
        ...

    def give_results(self, turn: int, results: Mapping[str, str], now: datetime, principal: Principal) -> Work[bool]:
        """What came of calls that a parked turn left to whoever it answers: it goes on with that.

        Only their own person gives them. False, and nothing done, where it waits for none of them.
        """
        ...

    def at(self, keys: Sequence[SessionKey], principal: Principal) -> Work[list[Session]]:
        """The sessions of these conversations, open and ended, those used last in front."""
        ...
