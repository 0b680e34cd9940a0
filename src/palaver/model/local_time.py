"""Wall clocks: which instant a local date and time means in a time zone, whatever the clocks do that day."""

import re
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from palaver.model.errors import MalformedTime, UnknownZone

__all__ = [
    "first_instant",
    "format_instant",
    "instants_of",
    "parse_age",
    "parse_instant",
    "parse_past",
    "parse_zone",
    "to_local",
    "to_utc",
]

# "right/" counts leap seconds, "posix…" doubles the rest, "localtime" is another zone on each machine.
_ZONE = re.compile(r"(?!right/|posix|localtime$)[A-Za-z][\w+-]*(/[\w+-]+)*", re.ASCII)
_TIME = re.compile(
    r"\s*(?P<day>\d{4}-\d\d-\d\d)"
    r"([Tt ](?P<time>\d\d:\d\d(:\d\d(\.\d{1,6})?)?)(?P<offset>[Zz]|[+-]\d\d(:?\d\d)?)?)?\s*",
    re.ASCII,
)
_AGE = re.compile(r"\s*(?P<count>[0-9]{1,5}) ?(?P<unit>[mhdwy])?\s*", re.ASCII)
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_YEAR = timedelta(days=365)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_LONGEST = 64
# Schedules and resets reach ten years ahead, and the calendar ends with 9999.
_FIRST_YEAR, _LAST_YEAR = 2, 9980
_ALLOWED_TIME = "a date, a time and an offset or Z (ISO 8601), years 2 to 9980"
_EXAMPLE_TIME = "2026-03-29T09:30:00+02:00"


def parse_zone(name: str) -> ZoneInfo:
    if len(name) > _LONGEST or not _ZONE.fullmatch(name):
        raise _unknown(name)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise _unknown(name) from error


def _unknown(name: str) -> UnknownZone:
    close = _close_zones(name[:_LONGEST])
    return UnknownZone(
        "There is no time zone",
        found=name[: 2 * _LONGEST],
        allowed=f"a name of the IANA time zone database{', perhaps ' + ' or '.join(close) if close else ''}",
        example=close[0] if close else "Europe/Berlin",
    )


def _close_zones(name: str) -> list[str]:
    """Known zones that look like `name`, whole or by their city, the closest first."""
    known = sorted(filter(_ZONE.fullmatch, available_timezones()))
    cities = {zone.rpartition("/")[2].lower(): zone for zone in known}
    spelled = cities | {zone.lower(): zone for zone in known}
    wanted = name.strip().lower().replace(" ", "_")
    return list(dict.fromkeys(spelled[close] for close in get_close_matches(wanted, spelled)))


def to_utc(moment: datetime) -> datetime:
    if moment.tzinfo is UTC:
        return moment
    if moment.utcoffset() is None:
        raise _malformed("An offset or Z is missing in", moment.isoformat())
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise _malformed("Out of range:", moment.isoformat()) from error


def to_local(instant: datetime, zone: ZoneInfo) -> datetime:
    """What the wall clock there reads at `instant`, as a naive time."""
    try:
        return to_utc(instant).astimezone(zone).replace(tzinfo=None, fold=0)
    except OverflowError as error:
        raise _malformed("Out of range:", instant.isoformat()) from error


def instants_of(local: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """The instants at which the clock there reads exactly `local`: none in a gap, two when it is put back."""
    return tuple(instant for instant in _meanings(local, zone) if to_local(instant, zone) == local)


def first_instant(local: datetime, zone: ZoneInfo) -> datetime:
    """The earliest instant at which the clock there reads `local` or later.

    A time that exists twice means the first; one that does not, or whose day does not, the moment of the jump.
    """
    exact = instants_of(local, zone)
    return exact[0] if exact else _jump(local, zone)


def _meanings(local: datetime, zone: ZoneInfo) -> list[datetime]:
    """`local` read with the offset before and after the nearest change, in order."""
    return sorted({to_utc(local.replace(tzinfo=zone, fold=fold)) for fold in (0, 1)})


def _jump(local: datetime, zone: ZoneInfo) -> datetime:
    """The second at which the clock passed over `local`: between the two meanings of a time in a gap."""
    before, after = (instant.replace(microsecond=0) for instant in _meanings(local, zone))

    def passed(second: int) -> bool:
        return to_local(before + timedelta(seconds=second), zone) >= local

    seconds = range(int((after - before).total_seconds()))
    return before + timedelta(seconds=bisect_left(seconds, True, key=passed))


def parse_instant(text: str, default: ZoneInfo | None = None) -> datetime:
    """The instant, in UTC. Without `default`, a time that does not say its offset is refused."""
    shape = _TIME.fullmatch(text)
    if shape is None:
        raise _malformed("Not a date and time:", text)
    if shape["time"] is None:
        raise _malformed("The time of day is missing in", text)
    return _instant(text, default if shape["offset"] is None else None)


def parse_age(text: str) -> timedelta | None:
    """`90d`, `12w`, `36h`; a number alone means days; None for anything else."""
    found = _AGE.fullmatch(text)
    return int(found["count"]) * _UNITS.get(found["unit"] or "d", _YEAR) if found else None


def parse_past(text: str, now: datetime, zone: ZoneInfo) -> datetime:
    """So long ago, the beginning of a day, or a time; MalformedTime where it is neither."""
    age = parse_age(text)
    if age is None:
        return parse_instant(f"{text}T00:00" if _DAY.fullmatch(text) else text, default=zone)
    try:
        return now - age
    except OverflowError as error:
        raise _malformed("Out of range is the time", text) from error


def _instant(text: str, zone: ZoneInfo | None) -> datetime:
    try:
        moment = datetime.fromisoformat(text.strip().upper())
    except ValueError as error:
        raise _malformed("There is no date and time", text) from error
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise _malformed("Out of range is the time", text)
    return to_utc(moment) if zone is None else first_instant(moment, zone)


def format_instant(instant: datetime) -> str:
    """`instant` in UTC, as `parse_instant` reads it back."""
    return f"{to_utc(instant).replace(tzinfo=None).isoformat()}Z"


def _malformed(problem: str, found: str) -> MalformedTime:
    return MalformedTime(problem, found=found[: 2 * _LONGEST], allowed=_ALLOWED_TIME, example=_EXAMPLE_TIME)
