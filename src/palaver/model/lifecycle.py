"""Life cycles: the states of a session, an inbox row, a turn and an outbox row, and the steps between them.

States are not `StrEnum`s, because `InboxState.DONE` would then equal `TurnState.DONE`.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import TypeVar

from palaver.model.errors import IllegalTransition


class SessionState(Enum):
    OPEN = "open"
    ENDED = "ended"


class EndReason(StrEnum):
    IDLE = "idle"
    DAILY = "daily"
    RESET = "reset"
    SWITCHED = "switched"
    HANDED_OFF = "handed-off"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    UNLINKED = "unlinked"
    """The people who shared it are no longer linked: it stays readable for them, and nobody goes on in it."""


class InboxState(Enum):
    WAITING = "waiting"
    IN_TURN = "in-turn"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class TurnState(Enum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    PARKED = "parked"


class OutboxState(Enum):
    DUE = "due"
    CLAIMED = "claimed"
    DELIVERED = "delivered"
    DEAD = "dead"
    UNCLEAR = "unclear"


State = TypeVar("State", SessionState, InboxState, TurnState, OutboxState)

_NEXT: Mapping[Enum, frozenset[Enum]] = {
    SessionState.OPEN: frozenset({SessionState.ENDED}),
    SessionState.ENDED: frozenset({SessionState.OPEN}),
    InboxState.WAITING: frozenset({InboxState.IN_TURN, InboxState.DONE, InboxState.REFUSED, InboxState.FAILED}),
    InboxState.IN_TURN: frozenset({InboxState.DONE, InboxState.FAILED, InboxState.WAITING}),
    InboxState.DONE: frozenset(),
    InboxState.REFUSED: frozenset({InboxState.WAITING}),
    InboxState.FAILED: frozenset(),
    TurnState.RUNNING: frozenset({TurnState.DONE, TurnState.FAILED, TurnState.INTERRUPTED, TurnState.PARKED}),
    TurnState.INTERRUPTED: frozenset({TurnState.RUNNING, TurnState.FAILED}),
    TurnState.PARKED: frozenset({TurnState.RUNNING, TurnState.FAILED}),
    TurnState.DONE: frozenset(),
    TurnState.FAILED: frozenset(),
    OutboxState.DUE: frozenset({OutboxState.CLAIMED, OutboxState.DEAD}),
    OutboxState.CLAIMED: frozenset({OutboxState.DELIVERED, OutboxState.DUE, OutboxState.DEAD, OutboxState.UNCLEAR}),
    OutboxState.UNCLEAR: frozenset({OutboxState.DELIVERED, OutboxState.DUE}),
    OutboxState.DELIVERED: frozenset(),
    OutboxState.DEAD: frozenset(),
}


def advance(state: State, wanted: State) -> State:
    """Return `wanted`, or raise IllegalTransition if `state` cannot become it."""
    if wanted not in _NEXT[state]:
        raise IllegalTransition(state, wanted, frozenset(_NEXT[state]))
    return wanted
