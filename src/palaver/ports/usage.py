"""What a store knows about use: running sums of tokens and cost."""

from collections.abc import Collection
from datetime import date, datetime, tzinfo
from enum import StrEnum
from typing import Protocol

from palaver.domain.caps import Spent
from palaver.domain.session import Principal
from palaver.domain.turn import Turn
from palaver.ports.work import Work

__all__ = ["By", "Uses"]


class By(StrEnum):
    PERSON = "person"
    MODEL = "model"
    DAY = "day"


class Uses(Protocol):
    """Who used how much, when, with which model. What is told is always all there is, summed up already or not."""

    def fold(self, *, least: int = 1) -> Work[int]:
        """Add turns that have ended to the sums, a page of them; gives how many. Fewer than `least` may wait."""
        ...

    def charge(self, turn: int) -> Work[None]:
        """A turn that answers nobody counts for whoever was answered before it in its session."""
        ...

    def uncount(self, turn: Turn) -> Work[None]:
        """What a turn that was settled in this step has used counts, but it is none of the turns that are counted."""
        ...

    def spent(self, since: datetime, identities: Collection[str] | None = None) -> Work[Spent]:
        """Since the quarter of an hour in which `since` lies: by these, or by everybody."""
        ...

    def table(
        self, by: By, principal: Principal, *, since: datetime, until: datetime | None = None, zone: tzinfo
    ) -> Work[dict[str | date, Spent]]:
        """Sums in order: of people and models those who used most first, of days the newest."""
        ...
