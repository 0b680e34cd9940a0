"""Resets: when a conversation starts fresh, decided from policy, last human activity, now and time zone."""

from collections.abc import Iterable
from datetime import datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from palaver.model.errors import BadArgument
from palaver.model.local_time import first_instant, to_local, to_utc
from palaver.model.session import EndReason
from palaver.model.value import value


class ResetMode(StrEnum):
    NEVER = "never"
    IDLE = "idle"
    DAILY = "daily"
    BOTH = "both"


@value
class ResetPolicy:
    mode: ResetMode = ResetMode.NEVER
    idle_minutes: int = 1440
    at_hour: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.idle_minutes <= _MAX_IDLE_MINUTES:
            raise BadArgument(
                "Idle minutes cannot be {found}",
                found=str(self.idle_minutes),
                allowed=f"1 to {_MAX_IDLE_MINUTES}",
                example="1440",
            )
        if not 0 <= self.at_hour <= _LAST_HOUR:
            raise BadArgument(
                "The hour of a daily reset cannot be {found}", found=str(self.at_hour), allowed="0 to 23", example="4"
            )

    def deadlines(self, last_active: datetime, zone: ZoneInfo) -> list[tuple[datetime, EndReason]]:
        """Return when a conversation last used at `last_active` resets, and why; earliest first."""
        last_active = to_utc(last_active)
        ends: list[tuple[datetime, EndReason]] = []
        if self.mode in {ResetMode.DAILY, ResetMode.BOTH}:
            ends.append((next_daily_boundary(last_active, self.at_hour, zone), EndReason.DAILY))
        if self.mode in {ResetMode.IDLE, ResetMode.BOTH}:
            ends.append((last_active + timedelta(minutes=self.idle_minutes), EndReason.IDLE))
        return sorted(ends)

    def latest_expired(self, now: datetime, zone: ZoneInfo) -> datetime | None:
        """Return the latest activity with which a conversation can have expired by `now`; None if none ever does."""
        latest: list[datetime] = []
        if self.mode in {ResetMode.DAILY, ResetMode.BOTH}:
            latest.append(_last_daily_boundary(to_utc(now), self.at_hour, zone))
        if self.mode in {ResetMode.IDLE, ResetMode.BOTH}:
            latest.append(to_utc(now) - timedelta(minutes=self.idle_minutes))
        return max(latest, default=None)


_MAX_IDLE_MINUTES = 5_256_000  # ten years
_LAST_HOUR = 23


def next_daily_boundary(moment: datetime, hour: int, zone: ZoneInfo) -> datetime:
    """Return the first instant after `moment` at which a local day reaches `hour`, across clock changes."""
    today = to_local(moment, zone).date()
    # If the clock was put back over midnight, tomorrow has already begun once.
    days = (today + timedelta(days=offset) for offset in (0, 1, 2))
    boundaries = (first_instant(datetime.combine(day, time(hour)), zone) for day in days)
    return next(boundary for boundary in boundaries if boundary > to_utc(moment))


def _last_daily_boundary(moment: datetime, hour: int, zone: ZoneInfo) -> datetime:
    boundary = next_daily_boundary(moment - timedelta(days=3), hour, zone)
    while (following := next_daily_boundary(boundary, hour, zone)) <= moment:
        boundary = following
    return boundary


@value
class ResetDecision:
    reason: EndReason | None = None
    """None if a background process keeps the conversation open although a deadline was crossed."""
    boundary: datetime | None = None
    """The deadline that was crossed."""
    next: datetime | None = None
    """The next deadline if nobody writes from now on."""


@value
class ResetRule:
    """What decides whether a conversation goes on: see `decide_reset`."""

    policy: ResetPolicy
    zone: ZoneInfo
    process_limit: timedelta = timedelta(hours=24)


def decide_reset(
    policy: ResetPolicy,
    last_human: datetime,
    now: datetime,
    zone: ZoneInfo,
    *,
    processes: Iterable[datetime] = (),
    process_limit: timedelta = timedelta(hours=24),
) -> ResetDecision:
    """Decide about a conversation. Live background processes, by their start, hold a reset back up to the limit."""
    if policy.mode is ResetMode.NEVER:
        return ResetDecision()
    now = to_utc(now)
    boundary, reason = policy.deadlines(last_human, zone)[0]
    if now < boundary:
        return ResetDecision(next=boundary)
    if any(now - to_utc(started) < process_limit for started in processes):
        return ResetDecision(boundary=boundary)
    return ResetDecision(reason=reason, boundary=boundary, next=policy.deadlines(now, zone)[0][0])
