"""The store's face: durable state as small groups of work, each piece one atomic step."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeVar
from zoneinfo import ZoneInfo

from palaver.domain.reset import ResetPolicy, ResetReason
from palaver.domain.session import Session
from palaver.domain.source import Source
from palaver.domain.transcript import Entry
from palaver.domain.turn import Received, Turn
from palaver.ports.work import Work

__all__ = ["Begun", "Database", "Opened", "Opening", "OperationKind", "Preview", "ResetRule", "ResetRules", "Undone"]

T = TypeVar("T")


class Database(Protocol):
    """Drives work. What `transact` returned is durable; what it raised left no trace."""

    async def transact(self, work: Work[T]) -> T:
        """Run the work as one transaction, whole or not at all. Once it commits, a cancellation comes too late."""
        ...

    async def read(self, work: Work[T]) -> T:
        """Run work that only reads, over one consistent state, without waiting for writers."""
        ...

    def listen(self, topic: str) -> AbstractContextManager[asyncio.Event]:
        """An event that is set after work that notified `topic` has committed. Listen, look, then wait."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetRule:
    """What decides whether a conversation goes on: see `decide_reset`."""

    policy: ResetPolicy
    zone: ZoneInfo
    processes: Sequence[datetime] | None = ()
    process_limit: timedelta = timedelta(hours=24)


ResetRules = Callable[[Source], ResetRule]


class Opening(StrEnum):
    CREATED = "created"
    REUSED = "reused"
    REOPENED = "reopened"
    RESET = "reset"


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """A conversation's open session and how it came to be."""

    session: Session
    opening: Opening
    reason: ResetReason | None = None
    before: str | None = None
    """The session that a reset ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    """A turn, the messages it answers, and the session it runs in."""

    turn: Turn
    opened: Opened
    messages: tuple[Received, ...]


class OperationKind(StrEnum):
    RESET = "reset"
    SWITCH = "switch"
    UNDO = "undo"
    COMPACTION = "compaction"
    BRANCH = "branch"


@dataclass(frozen=True, kw_only=True, slots=True)
class Undone:
    """What an operation took out of sight, or brought back."""

    kind: OperationKind
    session: str
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """A session in a list, with the last thing a person said in it."""

    session: Session
    last_said: str
