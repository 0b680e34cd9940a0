"""Hooks: functions that the gateway calls when something happens."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum

from palaver.model.value import value

__all__ = [
    "EventKind",
    "GatewayEvent",
    "Hook",
    "PartialAnswer",
    "PartialAnswerListener",
]


class EventKind(StrEnum):
    SESSION_STARTED = "session started"
    SESSION_RESET = "session reset"
    SESSION_ENDED = "session ended"
    SESSION_FINALISED = "session finalised"
    TURN_STARTED = "turn started"
    TURN_FINISHED = "turn finished"
    TURN_FAILED = "turn failed"
    MESSAGE_DELIVERED = "message delivered"


@value
class GatewayEvent:
    """Something that happened, by ids; it holds no content."""

    kind: EventKind
    at: datetime
    key: str | None = None
    session: str | None = None
    turn: int | None = None
    delivery: int | None = None
    reason: str | None = None


@value
class PartialAnswer:
    """The text so far of an answer in progress. It holds content: pass it only to those who can read the session."""

    session: str
    turn: int
    text: str


PartialAnswerListener = Callable[[PartialAnswer], None]
"""Called each time the answer grows. It must return at once."""

Hook = Callable[[GatewayEvent], Awaitable[None]]
"""If it raises, the error is logged; only for SESSION_FINALISED is it called again, at most twice."""
