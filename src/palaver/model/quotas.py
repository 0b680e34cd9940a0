"""Caps: how much may be used by a person, in a conversation, in a day; and what is said when it is reached."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from palaver.model.access import AccessRole
from palaver.model.local_time import first_instant, to_local
from palaver.model.value import value

__all__ = [
    "UNLIMITED",
    "Quota",
    "QuotaKind",
    "QuotaReached",
    "QuotaRules",
    "UsageTotal",
    "check_quotas",
    "period_end",
    "period_start",
]


class QuotaKind(StrEnum):
    """Of what a cap counts the use."""

    PERSON_DAY = "person_day"
    PERSON_MONTH = "person_month"
    SESSION = "session"
    DAY = "day"


@value
class UsageTotal:
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    """Millionths of the price table's currency."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@value
class Quota:
    """Nothing more is begun once so much is used; None for as much as anybody likes."""

    tokens: int | None = None
    cost_micros: int | None = None

    def is_reached(self, spent: UsageTotal) -> bool:
        return (self.tokens is not None and spent.tokens >= self.tokens) or (
            self.cost_micros is not None and spent.cost_micros >= self.cost_micros
        )


UNLIMITED = Quota()


@value
class QuotaRules:
    """What holds for everybody, and what holds instead for a role."""

    caps: Mapping[QuotaKind, Quota] = field(default_factory=dict[QuotaKind, Quota])
    roles: Mapping[AccessRole, Mapping[QuotaKind, Quota]] = field(
        default_factory=dict[AccessRole, Mapping[QuotaKind, Quota]]
    )

    def of(self, role: AccessRole | None) -> dict[QuotaKind, Quota]:
        """Those that cap anything."""
        found = {**self.caps, **(self.roles.get(role, {}) if role else {})}
        return {measure: cap for measure, cap in found.items() if cap != UNLIMITED}


@value
class QuotaReached:
    """The cap that is reached, how much is used, and when it is free again: None for as long as the conversation."""

    measure: QuotaKind
    cap: Quota
    spent: UsageTotal
    free: datetime | None


def check_quotas(
    caps: Mapping[QuotaKind, Quota], used: Mapping[QuotaKind, UsageTotal], now: datetime, zone: ZoneInfo
) -> QuotaReached | None:
    """Whether a turn may begin; of several caps that are reached, the one that holds longest."""
    reached = [
        QuotaReached(measure=measure, cap=cap, spent=used[measure], free=period_end(measure, now, zone))
        for measure, cap in caps.items()
        if measure in used and cap.is_reached(used[measure])
    ]
    return max(reached, key=lambda each: (each.free is None, each.free or now), default=None)


def period_start(measure: QuotaKind, now: datetime, zone: ZoneInfo) -> datetime:
    """Since when use counts: the day or the month on the clock of the chat."""
    return first_instant(_first(measure, now, zone), zone)


def period_end(measure: QuotaKind, now: datetime, zone: ZoneInfo) -> datetime | None:
    if measure is QuotaKind.SESSION:
        return None
    first = _first(measure, now, zone)
    later = first + timedelta(days=32 if measure is QuotaKind.PERSON_MONTH else 1)
    return first_instant(_first(measure, later.replace(tzinfo=zone), zone), zone)


def _first(measure: QuotaKind, now: datetime, zone: ZoneInfo) -> datetime:
    today = to_local(now, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    return today.replace(day=1) if measure is QuotaKind.PERSON_MONTH else today
