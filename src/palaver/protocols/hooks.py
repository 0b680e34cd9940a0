"""Hooks: functions that the gateway calls when something happens."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum

from palaver.model.value import value


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


Hook = Callable[[GatewayEvent], Awaitable[None]]
"""If it raises, the error is logged; only for SESSION_FINALISED is it called again, at most twice."""
