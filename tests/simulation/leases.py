"""Watches that nobody takes a turn from another worker before its lease has run out, with any clocks."""

import math
import sqlite3
from typing import NamedTuple

__all__ = ["LeaseWatch"]

_RUNNING = "SELECT no, worker, fence, lease_until FROM turns WHERE state = 'running'"
_ROUNDING_SECONDS = 0.01


class _Held(NamedTuple):
    worker: str
    fence: int
    until: int
    """By the clock of the worker."""
    since: float
    """When it asked for it, by nobody's clock."""


class LeaseWatch:
    def __init__(self) -> None:
        self.seconds = 0.0
        """How long a lease is."""
        self.stolen: list[str] = []
        self._held: dict[int, _Held] = {}

    def look(self, db: sqlite3.Connection, asked: float) -> None:
        """After each commit; `asked` is when somebody wanted it."""
        held: dict[int, _Held] = {}
        for number, worker, fence, until in db.execute(_RUNNING).fetchall():
            before = self._held.get(number)
            is_old = before is not None and before[:3] == (worker, fence, until)
            held[number] = before if before and is_old else _Held(worker, fence, until, asked)
            if before and before.worker != worker and asked < before.since + self.seconds - _ROUNDING_SECONDS:
                early = before.since + self.seconds - asked
                self.stolen.append(f"turn {number} was taken from {before.worker} by {worker}, {early:.1f} s too early")
        self._held = held

    def begin_anew(self, db: sqlite3.Connection) -> None:
        """What was written last may be gone: it is not known since when the others hold what they hold."""
        self._held = {}
        self.look(db, -math.inf)
