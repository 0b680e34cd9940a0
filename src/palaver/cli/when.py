"""Times on the command line: as people write and read them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from palaver.commands.phrases import ago
from palaver.domain.errors import BadArgument, MalformedTime
from palaver.domain.wall import instant_text, parse_age, parse_past

__all__ = ["ago", "iso", "moment", "now", "span"]

_UTC = ZoneInfo("UTC")


def now() -> datetime:
    """The one place where commands about sessions read the clock."""
    return datetime.now(UTC)


def span(option: str, text: str, example: str) -> timedelta:
    """`90d`, `12w`, `36h`; a number alone means days."""
    age = parse_age(text)
    if age is None:
        raise BadArgument(f"{option} cannot be", found=text, allowed="30m, 36h, 90d, 12w or 2y", example=example)
    return age


def moment(option: str, text: str, example: str) -> datetime | None:
    """A time with its offset, the beginning of a day in UTC, or so long ago; None for nothing."""
    if not text:
        return None
    try:
        return parse_past(text, now(), _UTC)
    except MalformedTime as error:
        raise BadArgument(
            f"{option} cannot be",
            found=text,
            allowed="a date, a time (ISO 8601), or an age such as 7d",
            example=example,
        ) from error


def iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant_text(instant)
