"""Schedules: one parser for every way to say when a job fires."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from palaver.model import local_time
from palaver.model.errors import BadArgument, MalformedTime
from palaver.model.value import value

_UNITS = {"days": "d", "hours": "h", "minutes": "m", "seconds": "s"}
_COUNTS = r"\s*".join(rf"(?:(?P<{unit}>[0-9]++)\s*{letter})?" for unit, letter in _UNITS.items())
_LENGTH = re.compile(f"(?=[0-9]){_COUNTS}", re.IGNORECASE)
_EVERY = re.compile(r"every (?P<length>.+?)(?: from (?P<anchor>.+))?", re.IGNORECASE)
_FIVE_FIELDS = re.compile(r"\S+(?: \S+){4}")
_CRON = re.compile(rf"(?P<expression>{_FIVE_FIELDS.pattern})(?: in (?P<zone>\S+))?", re.IGNORECASE)
_DATED = re.compile(r"[0-9]{4}-.*")
_MAX_TEXT_LENGTH = 500
_SECOND, _DAY, _TEN_YEARS = timedelta(seconds=1), timedelta(days=1), timedelta(days=3650)
_HOURS_OF_A_DAY = 24
_BOTH = " and on "  # how cronsim joins the day of the month and the day of the week
_NEVER = "No day ever matches {found}"
_END_OF_CALENDAR = "The calendar ends before {found}"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)


@value
class Once:
    at: datetime

    @property
    def text(self) -> str:
        return local_time.format_instant(self.at)

    def describe(self) -> str:
        return f"once at {self.text}"

    def next_after(self, moment: datetime) -> datetime | None:
        return local_time.to_utc(self.at) if self.at > moment else None


@value
class Every:
    """Elapsed time: the anchor and every interval after it, regardless of clock changes."""

    interval: timedelta
    anchor: datetime

    def __post_init__(self) -> None:
        _check_length(self.interval, found=str(self.interval))

    @property
    def text(self) -> str:
        length = "".join(f"{count}{_UNITS[unit]}" for unit, count in _counts(self.interval))
        return f"every {length} from {local_time.format_instant(self.anchor)}"

    def describe(self) -> str:
        counts = (f"{count} {unit.removesuffix('s' * (count == 1))}" for unit, count in _counts(self.interval))
        return f"every {' '.join(counts)}"

    def next_after(self, moment: datetime) -> datetime | None:
        elapsed = (moment - self.anchor) // self.interval
        try:
            return local_time.to_utc(self.anchor) + max(elapsed + 1, 0) * self.interval
        except OverflowError:
            return None


@value
class Cron:
    """Five fields, matched against the local clock of a zone.

    At chosen hours, each local time fires once: a repeated one at its first occurrence, a skipped one at the clock
    change. If every hour matches, real time counts: both passes of a repeated hour fire, and a skipped hour does not.
    """

    expression: str
    zone: ZoneInfo

    def __post_init__(self) -> None:
        if not _FIVE_FIELDS.fullmatch(self.expression):
            raise _malformed("{found} does not have five cron fields", self.expression)
        try:
            first = next(self._times(_NAIVE_EPOCH), None)
        except CronSimError as error:
            problem = _NEVER if self._is_possible_in_any_month() else f"{error} field in {{found}}"
            raise _malformed(problem, self.expression) from error
        if first is None:
            raise _malformed(_NEVER, self.expression)

    @property
    def text(self) -> str:
        return f"{self.expression} in {self.zone}"

    def describe(self) -> str:
        meaning = self._meaning()
        return f"cron {self.text}: {meaning[0].lower()}{meaning[1:]}"

    def _meaning(self) -> str:
        times = self._times(_NAIVE_EPOCH)
        meaning = times.explain()
        if times.day_and:
            return meaning
        # Either day field is enough, so write "or". Without "and" in the text, one of them is any day.
        minute, hour, _, month, _ = self.expression.split()
        any_day = CronSim(f"{minute} {hour} * {month} *", _NAIVE_EPOCH).explain()
        return meaning.replace(_BOTH, " or on ") if _BOTH in meaning else any_day

    def _is_possible_in_any_month(self) -> bool:
        minute, hour, day, month, weekday = self.expression.split()
        try:
            CronSim(f"{minute} {hour} 1 {month} {weekday}", _NAIVE_EPOCH)
            CronSim(f"{minute} {hour} {day} * {weekday}", _NAIVE_EPOCH)
        except CronSimError:
            return False
        return True

    def next_after(self, moment: datetime) -> datetime | None:
        moment = local_time.to_utc(moment)
        try:
            return self._first_after(moment)
        except (OverflowError, MalformedTime):  # the end of the calendar
            return None

    def _first_after(self, moment: datetime) -> datetime | None:
        times = self._times(self._earliest_time_after(moment))
        instants_of = local_time.instants_of if len(times.hours) == _HOURS_OF_A_DAY else _first_instant
        found: list[datetime] = []
        for time in times:
            instants = instants_of(time, self.zone)
            found += (instant for instant in instants if instant > moment)
            # First instants come in the order of the times; a second instant found earlier can precede this one.
            if instants and instants[0] > moment:
                break
        return min(found, default=None)

    def _earliest_time_after(self, moment: datetime) -> datetime:
        """Return a local time before which the clock shows nothing after `moment`, even if put back within a day."""
        return min(local_time.to_local(moment, self.zone), local_time.to_local(moment + _DAY, self.zone) - _DAY)

    def _times(self, after: datetime) -> CronSim:
        # Given naive times, cronsim only matches the calendar. Clock changes are handled by `local_time`.
        return CronSim(self.expression, after)


def _first_instant(local: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Return the one instant of a local time, or none on a day that the zone skipped."""
    instant = local_time.first_instant(local, zone)
    left_out = (
        local_time.to_local(instant - _SECOND, zone).date() < local.date() < local_time.to_local(instant, zone).date()
    )
    return () if left_out else (instant,)


Schedule = Once | Every | Cron


def parse_schedule(text: str, zone: ZoneInfo, now: datetime) -> Schedule:
    """Parse what a person asked for at `now`, with local times in `zone`."""
    schedule = _parse(text, zone, now)
    if schedule.next_after(now) is None:
        raise _malformed("{found} is in the past" if isinstance(schedule, Once) else _END_OF_CALENDAR, text)
    return schedule


def _parse(text: str, zone: ZoneInfo, now: datetime) -> Schedule:
    if len(text) > _MAX_TEXT_LENGTH:
        raise _malformed("{found} is too long for a schedule", text)
    words, start = " ".join(text.split()), local_time.to_utc(now).replace(microsecond=0)
    if every := _EVERY.fullmatch(words):
        anchor = _instant(every["anchor"], zone) if every["anchor"] else start
        return Every(interval=_length(every["length"]), anchor=anchor)
    if _LENGTH.fullmatch(words):
        return Once(at=_later(start, words))
    if _DATED.fullmatch(words):
        return Once(at=_instant(words, zone))
    if cron := _CRON.fullmatch(words):
        return Cron(expression=cron["expression"], zone=local_time.parse_zone(cron["zone"]) if cron["zone"] else zone)
    raise _malformed("{found} is not a schedule", words)


def _length(text: str) -> timedelta:
    match = _LENGTH.fullmatch(text)
    if match is None:
        raise _malformed("{found} is not a duration", text)
    try:
        length = timedelta(**{unit: int(count) for unit, count in match.groupdict(default="0").items()})
    except OverflowError:
        length = timedelta.max
    _check_length(length, found=text)
    return length


def _later(start: datetime, length: str) -> datetime:
    try:
        return start + _length(length)
    except OverflowError as error:
        raise _malformed(_END_OF_CALENDAR, length) from error


def _check_length(length: timedelta, found: str) -> None:
    if length > _TEN_YEARS:
        raise _malformed("{found} is longer than 3650d", found)
    if length < _SECOND or length % _SECOND:
        raise _malformed("{found} is not 1s or more, in whole seconds", found)


def _counts(length: timedelta) -> list[tuple[str, int]]:
    """Return the length in units, largest first, without zeros."""
    minutes, seconds = divmod(length // _SECOND, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return [(unit, count) for unit, count in zip(_UNITS, (days, hours, minutes, seconds), strict=True) if count]


def _instant(text: str, zone: ZoneInfo) -> datetime:
    try:
        return local_time.parse_instant(text, zone)
    except MalformedTime as error:
        raise _malformed(error.problem, text) from error


def _malformed(problem: str, found: str) -> BadArgument:
    allowed = "30m or 1d12h (once), every 2h, five cron fields, or an ISO date and time"
    return BadArgument(problem, found=found[:_MAX_TEXT_LENGTH], allowed=allowed, example="0 9 * * MON-FRI")


def next_occurrences(schedule: Schedule, after: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    while len(found) < count and (moment := schedule.next_after(found[-1] if found else after)):
        found.append(moment)
    return found
