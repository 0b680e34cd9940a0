"""How commands write what others have written, and when."""

from collections.abc import Iterable
from datetime import datetime, timedelta, tzinfo

from palaver.domain.session import Session
from palaver.domain.text import one_line

__all__ = ["ago", "called", "counted", "listed", "name_of", "quoted", "when"]

_LONGEST_QUOTE = 80
_LISTED = 20


def quoted(text: str, limit: int = _LONGEST_QUOTE) -> str:
    """On one line, nothing invisible in it, and not for ever."""
    return f"“{one_line(text, limit)}”"


def when(moment: datetime, zone: tzinfo) -> str:
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M %Z}"


def name_of(session: Session) -> str:
    return session.title or session.id


def called(session: Session) -> str:
    """Within a sentence."""
    return quoted(session.title) if session.title else f"the untitled conversation {session.id}"


def counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def listed(names: Iterable[str]) -> str:
    """`a, b, c`; of many, so many, and how many more there are."""
    every = list(names)
    more = len(every) - _LISTED
    return ", ".join(every) if more <= 0 else f"{', '.join(every[:_LISTED])} and {more} more"


_STEPS = (
    (timedelta(days=365), "year"),
    (timedelta(days=30), "month"),
    (timedelta(weeks=1), "week"),
    (timedelta(days=1), "day"),
    (timedelta(hours=1), "hour"),
    (timedelta(minutes=1), "minute"),
)


def ago(instant: datetime, present: datetime) -> str:
    """`3 hours ago`, `just now`, `in 2 days`."""
    distance = abs(present - instant)
    for unit, name in _STEPS:
        count = distance // unit
        if count:
            words = f"{count} {name}{'s' if count > 1 else ''}"
            return f"{words} ago" if instant < present else f"in {words}"
    return "just now"
