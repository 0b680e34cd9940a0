"""Quotas: how much a person, a conversation or the whole gateway can use, and when a used-up quota is free again."""

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from palaver.model.access import AccessRole
from palaver.model.local_time import first_instant, to_local
from palaver.model.session import UsageTotal
from palaver.model.value import value


class QuotaKind(StrEnum):
    """Whose usage a quota counts, and over which period."""

    PERSON_DAY = "person_day"
    PERSON_MONTH = "person_month"
    SESSION = "session"
    DAY = "day"


@value
class Quota:
    """No turn begins once this much is used. None means unlimited.

    Usage of unknown price could cost anything, so it uses up a limit on money.
    """

    tokens: int | None = None
    cost_micros: int | None = None

    def is_reached(self, spent: UsageTotal) -> bool:
        return (self.tokens is not None and spent.tokens >= self.tokens) or (
            self.cost_micros is not None and (spent.cost_micros >= self.cost_micros or spent.unpriced_tokens > 0)
        )


UNLIMITED = Quota()


@value
class QuotaRules:
    """The quotas for everybody, and those that replace them for a role."""

    caps: Mapping[QuotaKind, Quota] = field(default_factory=dict[QuotaKind, Quota])
    roles: Mapping[AccessRole, Mapping[QuotaKind, Quota]] = field(
        default_factory=dict[AccessRole, Mapping[QuotaKind, Quota]]
    )

    def of(self, role: AccessRole | None) -> dict[QuotaKind, Quota]:
        """Return the quotas that limit this role."""
        found = {**self.caps, **(self.roles.get(role, {}) if role else {})}
        return {measure: cap for measure, cap in found.items() if cap != UNLIMITED}


@value
class QuotaReached:
    """The used-up quota, how much was used, and when it is free again: None while the conversation lasts."""

    measure: QuotaKind
    cap: Quota
    spent: UsageTotal
    free: datetime | None

    @property
    def is_never_free(self) -> bool:
        """Tell whether the quota allows nothing at all."""
        return 0 in {self.cap.tokens, self.cap.cost_micros}

    @property
    def is_unpriced(self) -> bool:
        """Tell whether only usage of unknown price uses up the quota."""
        return not self.cap.is_reached(replace(self.spent, unpriced_tokens=0))


def check_quotas(
    caps: Mapping[QuotaKind, Quota], used: Mapping[QuotaKind, UsageTotal], now: datetime, zone: ZoneInfo
) -> QuotaReached | None:
    """Return the used-up quota that blocks a turn longest, or None if the turn can begin."""
    reached = [
        QuotaReached(measure=measure, cap=cap, spent=used[measure], free=period_end(measure, now, zone))
        for measure, cap in caps.items()
        if measure in used and cap.is_reached(used[measure])
    ]
    # A new conversation is free of a used-up one at once, so every other quota blocks longer.
    return max(reached, key=lambda quota: (quota.is_never_free, quota.free or now), default=None)


def period_start(measure: QuotaKind, now: datetime, zone: ZoneInfo) -> datetime:
    """Return when the current day or month began in the chat's time zone."""
    return first_instant(_local_start(measure, now, zone), zone)


def period_end(measure: QuotaKind, now: datetime, zone: ZoneInfo) -> datetime | None:
    if measure is QuotaKind.SESSION:
        return None
    in_next_period = _local_start(measure, now, zone) + timedelta(days=32 if measure is QuotaKind.PERSON_MONTH else 1)
    return first_instant(_local_start(measure, in_next_period.replace(tzinfo=zone), zone), zone)


def _local_start(measure: QuotaKind, now: datetime, zone: ZoneInfo) -> datetime:
    today = to_local(now, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    return today.replace(day=1) if measure is QuotaKind.PERSON_MONTH else today
