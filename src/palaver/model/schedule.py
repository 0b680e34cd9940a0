"""Schedules: one parser for every way to say when a job fires."""

import re
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import count
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from palaver.model import local_time
from palaver.model.errors import BadArgument, MalformedTime
from palaver.model.value import value

_WORDS = {
    "weeks": "w(?:(?:ee)?ks?)?",
    "days": "d(?:ays?)?",
    "hours": "h(?:(?:ou)?rs?)?",
    "minutes": "m(?:in(?:ute)?s?)?",
    "seconds": "s(?:ec(?:ond)?s?)?",
}
_COUNTS = r"\s*".join(rf"(?:(?P<{unit}>[0-9]++)\s*{word})?" for unit, word in _WORDS.items())
_LENGTH = re.compile(f"(?=[0-9]){_COUNTS}", re.IGNORECASE)
_SINGLE = re.compile("week|day|hour|minute", re.IGNORECASE)
_RATES = {"hourly": "every hour", "daily": "every day", "weekly": "every week"}
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * SUN",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
"""As cron has them."""
_NUMBER_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {"a": 1, "an": 1, **{word: number for number, word in enumerate(_NUMBER_WORDS, 1)}}
_FROM_NOW = re.compile(r"in (?P<number>[a-z]+ |)(?P<rest>.+)", re.IGNORECASE)
_IN = r"(?: in (?P<zone>\S+))?"
_EVERY = re.compile(rf"every (?P<length>.+?)(?: from (?P<anchor>.+?))?{_IN}", re.IGNORECASE)
DAY_NAME = "(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?)"
)
CALENDAR_DAY = (
    rf"(?:[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}|(?:[0-9]{{1,2}}(?:st|nd|rd|th|\.)? (?:of )?{_MONTH}"
    rf"|{_MONTH} [0-9]{{1,2}}(?:st|nd|rd|th)?)(?:,? [0-9]{{4}}\b(?!:))?)"
)
_HALF = r"[ap]\.?m\b\.?"
_TIME = re.compile(
    rf"(?P<hour>[0-9]{{1,2}})(?P<minutes>:(?P<minute>[0-9]{{2}}))?(?: ?(?P<half>{_HALF}))?(?(minutes)|(?(half)|(?!)))",
    re.IGNORECASE,
)
_NAMED_TIMES = {"noon": (12, 0), "midnight": (0, 0)}
_CLOCK = rf"(?:[0-9]+:[0-9]+(?: ?{_HALF})?|[0-9]+ ?{_HALF}|{'|'.join(_NAMED_TIMES)})"
_BARE_HOUR = "(?<=at )[0-9]{1,2}"
"""Enough where a day is named: `tomorrow at 9`."""
_DAYS = rf"(?:daily|every (?:day|(?P<workdays>weekdays?)|(?P<days>{DAY_NAME}s?(?:(?:, ?| and ){DAY_NAME}s?)*)))"
_DAYS_AT = re.compile(rf"{_DAYS}(?: at (?P<time>\S+(?: {_HALF})?)|,? (?P<clock>{_CLOCK}))?{_IN}", re.IGNORECASE)
_NEXT_TIME = re.compile(rf"(?:at )?(?P<time>{_CLOCK}){_IN}", re.IGNORECASE)
_UNCLEAR_HOUR = re.compile(r"at [0-9]{1,2}", re.IGNORECASE)
_DATE = (
    rf"(?:(?P<near>today|tomorrow|(?:the )?day after tomorrow)|(?:on )?(?:the )?(?P<calendar>{CALENDAR_DAY})"
    rf"|(?P<on>next |on |this )?(?P<day>{DAY_NAME}))"
)
_ON_DAY = re.compile(rf"{_DATE}(?:,? (?:at )?(?P<time>{_CLOCK}|{_BARE_HOUR}))?{_IN}", re.IGNORECASE)
_TIME_FIRST = re.compile(
    rf"(?:at )?(?P<time>{_CLOCK}|{_BARE_HOUR}),? (?P<date>{_DATE}|{_DAYS})(?P<rest>{_IN})", re.IGNORECASE
)
_OCLOCK = re.compile(r"(?<=[0-9]) ?o['\u2019]?clock\b", re.IGNORECASE)
_FIVE_FIELDS = re.compile(r"\S+(?: \S+){4}")
_CRON = re.compile(rf"(?=[0-9*,/-]+ [0-9*,/-]+ )(?P<expression>{_FIVE_FIELDS.pattern}){_IN}", re.IGNORECASE)
_DATED = re.compile(r"[0-9]{4}-.*")
_MAX_TEXT_LENGTH = 500
_FORMS = (
    "30m, in 2 hours, 18:00, 9am, tomorrow at 9, friday 18:00 or 24 December at 9am (once), every 2h, every day at "
    "18:00, @daily, five cron fields, or an ISO date and time"
)
_SECOND, _MINUTE, _DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)
_TEN_YEARS, _WEEK_DAYS = timedelta(days=3650), 7
_LEAP_YEARS = 9
"""In so many years, every day of the calendar comes."""
_HOURS_OF_A_DAY, _HOURS_OF_A_HALF, _MINUTES_OF_AN_HOUR = 24, 12, 60
_WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_BOTH = " and on "  # how cronsim joins the day of the month and the day of the week
_NO_TIME = "{found} has no time of day"
_NEVER = "No day ever matches {found}"
_END_OF_CALENDAR = "The calendar ends before {found}"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)
_UTC = ZoneInfo("UTC")


@value
class Once:
    at: datetime

    @property
    def text(self) -> str:
        return local_time.format_instant(self.at)

    def describe(self) -> str:
        return f"once at {self.text}"

    def summary(self) -> str:
        """Return when it fires, without dates and without cron fields."""
        return "once"

    def next_after(self, moment: datetime) -> datetime | None:
        return local_time.to_utc(self.at) if self.at > moment else None


@value
class Every:
    """Elapsed time: the anchor and every interval after it, regardless of clock changes."""

    interval: timedelta
    anchor: datetime

    def __post_init__(self) -> None:
        _check_length(self.interval, found=str(self.interval), least=_MINUTE)

    @property
    def text(self) -> str:
        length = "".join(f"{count}{unit[0]}" for unit, count in _counts(self.interval))
        return f"every {length} from {local_time.format_instant(self.anchor)}"

    def describe(self) -> str:
        counts = (f"{count} {unit.removesuffix('s' * (count == 1))}" for unit, count in _counts(self.interval))
        return f"every {' '.join(counts)}"

    def summary(self) -> str:
        return self.describe()

    def next_after(self, moment: datetime) -> datetime | None:
        elapsed = (moment - self.anchor) // self.interval
        try:
            return local_time.to_utc(self.anchor) + max(elapsed + 1, 0) * self.interval
        except OverflowError:
            return None


@value
class Days:
    """Whole days on the clock of a zone: the local time of the anchor, and again every `days` days.

    A time that occurs twice means the first; one that the clock skips means the clock change.
    """

    days: int
    anchor: datetime
    """A local time, without a zone."""
    zone: ZoneInfo

    def __post_init__(self) -> None:
        _check_length(timedelta(days=self.days), found=f"{self.days}d", least=_DAY)

    @property
    def text(self) -> str:
        return f"every {self.days}d from {self.anchor.isoformat()} in {self.zone}"

    def describe(self) -> str:
        weeks, rest = divmod(self.days, _WEEK_DAYS)
        number, unit = (self.days, "day") if rest else (weeks, "week")
        often = unit if number == 1 else f"{number} {unit}s"
        weekday = "" if rest else f" on {self.anchor:%A}"
        return f"every {often}{weekday} at {self.anchor:%H:%M} in {self.zone}"

    def summary(self) -> str:
        return self.describe()

    def next_after(self, moment: datetime) -> datetime | None:
        step = timedelta(days=self.days)
        try:
            # One step back: around a clock change, the local time can be ahead of the days that have passed.
            passed = (local_time.to_local(moment, self.zone) - self.anchor) // step - 1
            times = (_first_instant(self.anchor + n * step, self.zone) for n in count(max(passed, 0)))
            return next(instant for instants in times for instant in instants if instant > moment)
        except (OverflowError, MalformedTime):  # the end of the calendar
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
        return f"cron {self.text}: {self._meaning()}"

    def summary(self) -> str:
        return f"{self._meaning()} in {self.zone}"

    def _meaning(self) -> str:
        times = self._times(_NAIVE_EPOCH)
        explained = times.explain()
        meaning = f"{explained[0].lower()}{explained[1:]}"
        if times.day_and:
            return meaning
        # Either day field is enough, so write "or". Without "and" in the text, one of them is any day.
        minute, hour, _, month, _ = self.expression.split()
        any_day = CronSim(f"{minute} {hour} * {month} *", _NAIVE_EPOCH).explain()
        return meaning.replace(_BOTH, " or on ") if _BOTH in meaning else f"{any_day[0].lower()}{any_day[1:]}"

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


Schedule = Once | Every | Days | Cron


def parse_schedule(text: str, zone: ZoneInfo, now: datetime) -> Schedule:
    """Parse what a person asked for at `now`, with local times in `zone`."""
    schedule = _parse(text, zone, now)
    if schedule.next_after(now) is None:
        raise _malformed("{found} is in the past" if isinstance(schedule, Once) else _END_OF_CALENDAR, text)
    return schedule


@lru_cache(1024)
def read_schedule(text: str) -> Schedule:
    """Parse the text of a schedule, which is complete: it depends on no other zone and no time."""
    return _parse(text, _UTC, _EPOCH)


def _parse(text: str, zone: ZoneInfo, now: datetime) -> Schedule:
    if len(text) > _MAX_TEXT_LENGTH:
        raise _malformed("{found} is too long for a schedule", text)
    words, start = " ".join(text.split()), local_time.to_utc(now).replace(microsecond=0)
    words = _with_plain_words(words)
    if (found := _DAYS_AT.fullmatch(words)) and any(found.group("time", "clock", "workdays", "days")):
        return _at_time_of_day(found, _zone(found, zone))
    if found := _EVERY.fullmatch(words):
        return _repeated(found, _zone(found, zone), start)
    if moment := _moment(words, zone, start):
        return Once(at=moment)
    if found := _CRON.fullmatch(words):
        return Cron(expression=found["expression"], zone=_zone(found, zone))
    raise _malformed("{found} is not a schedule", words)


def _moment(words: str, zone: ZoneInfo, start: datetime) -> datetime | None:
    """Return the moment that words name; None if they name none, as `sunday` or `today` alone."""
    if found := _NEXT_TIME.fullmatch(words):
        return _next_time(found, _zone(found, zone), start)
    if (found := _ON_DAY.fullmatch(words)) and (found["time"] or found["on"] or _is_ahead(found["near"])):
        return _on_day(found, _zone(found, zone), start)
    if _LENGTH.fullmatch(words):
        return _later(start, words)
    if found and found["calendar"]:
        raise _malformed(_NO_TIME, words)
    if _UNCLEAR_HOUR.fullmatch(words):
        raise _malformed("{found} can be before or after noon", words)
    return _instant(words, zone) if _DATED.fullmatch(words) else None


def _is_ahead(near: str | None) -> bool:
    """Tell whether a day near today needs no time of day."""
    return near is not None and near.lower() != "today"


def _with_plain_words(words: str) -> str:
    """Return a schedule in the words that the patterns know."""
    words = _OCLOCK.sub("", words)
    if (first := words.partition(" ")[0].lower()) in _NICKNAMES:
        return _NICKNAMES[first] + words[len(first) :]
    if (found := _FROM_NOW.fullmatch(words)) and _LENGTH.fullmatch(length := _length_text(found)):
        return length
    if found := _TIME_FIRST.fullmatch(words):
        return f"{found['date']} at {found['time']}{found['rest']}"
    return _RATES.get(words.lower(), words)


def _length_text(found: re.Match[str]) -> str:
    number, rest = found["number"].strip().lower(), found["rest"].lower()
    if f"{number} {rest}" == "half an hour":
        return "30m"
    return f"{_NUMBERS.get(number, number)} {rest}".strip()


def _zone(found: re.Match[str], default: ZoneInfo) -> ZoneInfo:
    return local_time.parse_zone(found["zone"]) if found["zone"] else default


def _at_time_of_day(found: re.Match[str], zone: ZoneInfo) -> Cron:
    text = found["time"] or found["clock"]
    if text is None:
        raise _malformed(_NO_TIME, found[0])
    names = re.findall(DAY_NAME, found["days"] or "", re.IGNORECASE)
    days = ",".join(dict.fromkeys(name[:3].upper() for name in names))
    days = "MON-FRI" if found["workdays"] else days or "*"
    hour, minute = _time_on_a_day(text)
    return Cron(expression=f"{minute} {hour} * * {days}", zone=zone)


def _time_on_a_day(text: str) -> tuple[int, int]:
    """Return the hour and the minute; where the day is named, `9` is enough."""
    return parse_time_of_day(f"{text}:00" if text.isdecimal() else text)


def parse_time_of_day(text: str) -> tuple[int, int]:
    """Return the hour and the minute of `18:00`, `6 pm`, `6:30pm` or `noon`."""
    if text.lower() in _NAMED_TIMES:
        return _NAMED_TIMES[text.lower()]
    found = _TIME.fullmatch(text)
    if found is None:
        raise _bad_time("{found} is not a time of day", text)
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    if found["half"]:
        if not 1 <= hour <= _HOURS_OF_A_HALF:
            raise _bad_time("The hour of {found} is not from 1 to 12", text)
        hour = hour % _HOURS_OF_A_HALF + (_HOURS_OF_A_HALF if found["half"][0] in "pP" else 0)
    if hour >= _HOURS_OF_A_DAY:
        raise _bad_time("The hour of {found} is not from 0 to 23", text)
    if minute >= _MINUTES_OF_AN_HOUR:
        raise _bad_time("The minute of {found} is not from 00 to 59", text)
    return hour, minute


def _bad_time(problem: str, found: str) -> BadArgument:
    return BadArgument(problem, found=found, allowed="18:00, 6 pm, noon or midnight", example="18:00")


def _repeated(found: re.Match[str], zone: ZoneInfo, start: datetime) -> Every | Days:
    """Return whole days and weeks on the wall clock, everything else in elapsed time."""
    text, anchor = found["length"], found["anchor"]
    counts = _LENGTH.fullmatch(f"1 {text}" if _SINGLE.fullmatch(text) else text)
    if counts is None:
        raise _malformed("{found} is not a duration", text)
    units = {unit for unit, number in counts.groupdict().items() if number}
    if units - {"weeks", "days"}:
        least = _instant(anchor, zone) if anchor else start
        return Every(interval=_length(counts, text, _MINUTE), anchor=least)
    local = _local(anchor, zone) if anchor else local_time.to_local(start, zone).replace(second=0)
    return Days(days=_length(counts, text, _DAY) // _DAY, anchor=local, zone=zone)


def _on_day(found: re.Match[str], zone: ZoneInfo, start: datetime) -> datetime:
    """Return the time on that day; without a time, the one that the clock shows now. `next` never means today."""
    try:
        local = local_time.to_local(start, zone).replace(second=0)
        hour, minute = _time_on_a_day(found["time"]) if found["time"] else (local.hour, local.minute)
        today = local.replace(hour=hour, minute=minute)
        if found["calendar"]:
            return _on_date(found["calendar"], today, zone, start)
        if near := found["near"]:
            return local_time.first_instant(today + {"today": 0, "tomorrow": 1}.get(near.lower(), 2) * _DAY, zone)
        ahead = (_WEEK.index(found["day"][:3].lower()) - local.weekday()) % _WEEK_DAYS
        is_over = found["time"] is None or local_time.first_instant(today, zone) <= start
        if ahead == 0 and (is_over or (found["on"] or "").lower() == "next "):
            ahead = _WEEK_DAYS
        return local_time.first_instant(today + ahead * _DAY, zone)
    except (OverflowError, MalformedTime) as error:
        raise _malformed(_END_OF_CALENDAR, found[0]) from error


def _on_date(text: str, today: datetime, zone: ZoneInfo, start: datetime) -> datetime:
    """Return that time of day on the date: of its year, or of the first year in which it is ahead."""
    month, day, *year = _month_and_day(text)
    for each in year or range(today.year, today.year + _LEAP_YEARS):
        with suppress(ValueError):
            moment = local_time.first_instant(datetime.combine(date(each, month, day), today.time()), zone)
            if year or moment > start:
                return moment
    raise _malformed("{found} does not exist", text)


def _month_and_day(text: str) -> list[int]:
    """Return month and day, and the year if it is named."""
    numbers = [int(number) for number in re.findall("[0-9]+", text)]
    if name := re.search("[a-z]{3,}", text, re.IGNORECASE):
        return [_MONTHS.index(name[0][:3].lower()) + 1, *numbers]
    year, month, day = numbers
    return [month, day, year]


def _next_time(found: re.Match[str], zone: ZoneInfo, start: datetime) -> datetime:
    """Return when the clock of a zone shows this time next."""
    hour, minute = parse_time_of_day(found["time"])
    try:
        local = local_time.to_local(start, zone)
        today = local.replace(hour=hour, minute=minute, second=0)
        times = (local_time.first_instant(today + n * _DAY, zone) for n in count())
        return next(instant for instant in times if instant > start)
    except (OverflowError, MalformedTime) as error:
        raise _malformed(_END_OF_CALENDAR, found[0]) from error


def _length(counts: re.Match[str], text: str, least: timedelta) -> timedelta:
    try:
        length = timedelta(**{unit: int(number) for unit, number in counts.groupdict(default="0").items()})
    except OverflowError:
        length = timedelta.max
    _check_length(length, found=text, least=least)
    return length


def _later(start: datetime, text: str) -> datetime:
    counts = _LENGTH.fullmatch(text)
    if counts is None:
        raise _malformed("{found} is not a duration", text)
    try:
        return start + _length(counts, text, _SECOND)
    except OverflowError as error:
        raise _malformed(_END_OF_CALENDAR, text) from error


def _check_length(length: timedelta, found: str, least: timedelta) -> None:
    if length > _TEN_YEARS:
        raise _malformed("{found} is longer than 3650d", found)
    if length < least or length % _SECOND:
        limit = {_SECOND: "1s", _MINUTE: "1m", _DAY: "1d"}[least]
        raise _malformed(f"{{found}} is not {limit} or more, in whole seconds", found)


def _counts(length: timedelta) -> list[tuple[str, int]]:
    """Return the length in hours, minutes and seconds, without zeros. Days are not elapsed time."""
    minutes, seconds = divmod(length // _SECOND, 60)
    hours, minutes = divmod(minutes, 60)
    return [(unit, number) for unit, number in (("hours", hours), ("minutes", minutes), ("seconds", seconds)) if number]


def _instant(text: str, zone: ZoneInfo) -> datetime:
    try:
        return local_time.parse_instant(text, zone)
    except MalformedTime as error:
        raise _malformed(error.problem, text) from error


def _local(text: str, zone: ZoneInfo) -> datetime:
    """Return a local time: as it is written, or on the clock of the zone if it has an offset."""
    try:
        return local_time.parse_local(text, zone)
    except MalformedTime as error:
        raise _malformed(error.problem, text) from error


def _malformed(problem: str, found: str) -> BadArgument:
    return BadArgument(problem, found=found[:_MAX_TEXT_LENGTH], allowed=_FORMS, example="0 9 * * MON-FRI")


def next_occurrences(schedule: Schedule, after: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    while len(found) < count and (moment := schedule.next_after(found[-1] if found else after)):
        found.append(moment)
    return found


def due_occurrence(
    schedule: Schedule, due: datetime, now: datetime, grace: timedelta
) -> tuple[datetime | None, datetime | None]:
    """Return which occurrence to run now, and the next one after now.

    Of those since `due`, that is the latest, unless it is older than the grace period: a backlog runs once.
    """
    following = schedule.next_after(due)
    if following is None or following > now:
        return (due if now - due <= grace else None), following
    span = _MINUTE
    while (moment := _first_since(schedule, max(due, now - min(span, grace)))) is None or moment > now:
        if span >= min(grace, now - due):
            return None, schedule.next_after(now)
        span *= 2
    latest = moment
    while (moment := schedule.next_after(latest)) is not None and moment <= now:
        latest = moment
    return latest, moment


def _first_since(schedule: Schedule, moment: datetime) -> datetime | None:
    return schedule.next_after(moment - timedelta(microseconds=1))
