"""Local time: convert between instants and local clock times across clock changes, and parse times and ages."""

import re
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from palaver.model.errors import BadArgument, MalformedTime

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
_MAX_ZONE_LENGTH = 64
_MAX_FOUND_LENGTH = 128
# Schedules and resets reach ten years ahead, and the calendar ends with 9999.
_FIRST_YEAR, _LAST_YEAR = 2, 9980
_ALLOWED_TIME = "a date, a time and an offset or Z (ISO 8601)"
_EXAMPLE_TIME = "2026-03-29T09:30:00+02:00"
_OUT_OF_RANGE = f"{{found}} is not in the years {_FIRST_YEAR} to {_LAST_YEAR}"


def parse_zone(name: str) -> ZoneInfo:
    if len(name) > _MAX_ZONE_LENGTH or not _ZONE.fullmatch(name):
        raise _unknown_zone(name)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise _unknown_zone(name) from error


def _unknown_zone(name: str) -> BadArgument:
    close = _close_zones(name[:_MAX_ZONE_LENGTH])
    return BadArgument(
        "Unknown time zone",
        found=name[:_MAX_FOUND_LENGTH],
        allowed="a name from the IANA time zone database",
        fix=f"Did you mean {' or '.join(close)}?" if close else None,
        example=close[0] if close else "Europe/Berlin",
    )


@cache
def _known_zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _close_zones(name: str) -> list[str]:
    """Return known zones that resemble `name`, by full name or city, closest first."""
    known = sorted(filter(_ZONE.fullmatch, _known_zones()))
    cities = {zone.rpartition("/")[2].lower(): zone for zone in known}
    spelled = cities | {zone.lower(): zone for zone in known}
    wanted = name.strip().lower().replace(" ", "_")
    return list(dict.fromkeys(spelled[close] for close in get_close_matches(wanted, spelled)))


def to_utc(moment: datetime) -> datetime:
    if moment.tzinfo is UTC:
        return moment
    if moment.utcoffset() is None:
        raise _malformed("{found} has no time zone", moment.isoformat(), fix="Add an offset or Z")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise _malformed(_OUT_OF_RANGE, moment.isoformat()) from error


def to_local(instant: datetime, zone: ZoneInfo) -> datetime:
    """Return the local clock time in `zone` at `instant`, as a naive datetime."""
    try:
        return to_utc(instant).astimezone(zone).replace(tzinfo=None, fold=0)
    except OverflowError as error:
        raise _malformed(_OUT_OF_RANGE, instant.isoformat()) from error


def instants_of(local: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Return the instants at which the clock shows exactly `local`: none in a gap, two when it is put back."""
    return tuple(instant for instant in _candidates(local, zone) if to_local(instant, zone) == local)


def first_instant(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the earliest instant at which the clock shows `local` or later.

    A time that occurs twice means the first; a time or day that was skipped means the moment of the clock change.
    """
    exact = instants_of(local, zone)
    return exact[0] if exact else _clock_change(local, zone)


def _candidates(local: datetime, zone: ZoneInfo) -> list[datetime]:
    """Return `local` with the offset before and after the nearest clock change, in order."""
    return sorted({to_utc(local.replace(tzinfo=zone, fold=fold)) for fold in (0, 1)})


def _clock_change(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the second at which the clock skipped `local`, by bisection between its two candidates."""
    before, after = (instant.replace(microsecond=0) for instant in _candidates(local, zone))

    def passed(second: int) -> bool:
        return to_local(before + timedelta(seconds=second), zone) >= local

    seconds = range(int((after - before).total_seconds()))
    return before + timedelta(seconds=bisect_left(seconds, True, key=passed))


def parse_instant(text: str, default: ZoneInfo | None = None) -> datetime:
    """Return the instant in UTC. A time without an offset is read in the zone `default`, or refused."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise _malformed("{found} is not a date and time", text)
    if match["time"] is None:
        raise _malformed("{found} has no time of day", text)
    return _instant(text, default if match["offset"] is None else None)


def parse_local(text: str, zone: ZoneInfo) -> datetime:
    """Return the time on the clock of a zone, without the zone. A time with an offset is converted."""
    instant = parse_instant(text, zone)
    match = _TIME.fullmatch(text)
    if match is None or match["offset"]:
        return to_local(instant, zone)
    # Not from the instant: the clock of the zone may skip this time.
    return datetime.fromisoformat(text.strip().upper())


def parse_age(text: str) -> timedelta | None:
    """Parse `90d`, `12w` or `36h`; a number alone means days. Return None for anything else."""
    match = _AGE.fullmatch(text)
    return int(match["count"]) * _UNITS.get(match["unit"] or "d", _YEAR) if match else None


def parse_past(text: str, now: datetime, zone: ZoneInfo) -> datetime:
    """Parse an age before `now`, a day (meaning its start) or a time. Raise MalformedTime for anything else."""
    age = parse_age(text)
    if age is None:
        return parse_instant(f"{text}T00:00" if _DAY.fullmatch(text) else text, default=zone)
    try:
        return now - age
    except OverflowError as error:
        raise _malformed(_OUT_OF_RANGE, text) from error


def _instant(text: str, zone: ZoneInfo | None) -> datetime:
    try:
        moment = datetime.fromisoformat(text.strip().upper())
    except ValueError as error:
        raise _malformed("{found} does not exist", text) from error
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise _malformed(_OUT_OF_RANGE, text)
    return to_utc(moment) if zone is None else first_instant(moment, zone)


def format_instant(instant: datetime) -> str:
    """Return the instant in UTC, in the form that `parse_instant` reads."""
    return f"{to_utc(instant).replace(tzinfo=None).isoformat()}Z"


def _malformed(problem: str, found: str, fix: str | None = None) -> MalformedTime:
    return MalformedTime(
        problem, found=found[:_MAX_FOUND_LENGTH], allowed=_ALLOWED_TIME, example=_EXAMPLE_TIME, fix=fix
    )
