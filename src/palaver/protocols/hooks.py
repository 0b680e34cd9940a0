"""Hooks: what others may be told as it happens."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum

from palaver.model.value import value

__all__ = [
    "Growth",
    "Happening",
    "Hook",
    "Kind",
    "Watch",
]


class Kind(StrEnum):
    SESSION_STARTED = "session started"
    SESSION_RESET = "session reset"
    SESSION_ENDED = "session ended"
    SESSION_FINALISED = "session finalised"
    TURN_STARTED = "turn started"
    TURN_FINISHED = "turn finished"
    TURN_FAILED = "turn failed"
    MESSAGE_DELIVERED = "message delivered"


@value
class Happening:
    """What happened, by ids: it holds no content."""

    kind: Kind
    at: datetime
    key: str | None = None
    session: str | None = None
    turn: int | None = None
    delivery: int | None = None
    reason: str | None = None


@value
class Growth:
    """What there is of an answer that is being given. It holds content, and goes to nobody but who may read it."""

    session: str
    turn: int
    text: str


Watch = Callable[[Growth], None]
"""Told again and again while answers grow; it takes no time."""

Hook = Callable[[Happening], Awaitable[None]]
"""One that raises is logged and hurts nobody else; only for SESSION_FINALISED is it called again, twice at most."""
