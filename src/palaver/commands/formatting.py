"""Format sessions, times and quotes for people."""

from datetime import datetime, timedelta, tzinfo

from palaver.model.command import as_said
from palaver.model.memory import Note
from palaver.model.session import Session
from palaver.model.text import counted, one_line

_MAX_QUOTE_CHARS = 80


def in_quotes(text: str, limit: int = _MAX_QUOTE_CHARS) -> str:
    """Quote `text` of people on one line, shortened and without invisible characters."""
    return f"“{as_said(one_line(text, limit))}”"


def format_time(moment: datetime, zone: tzinfo) -> str:
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M %Z}"


def session_name(session: Session) -> str:
    return session.title or session.id


def session_phrase(session: Session) -> str:
    """Return the session's name for use in a sentence."""
    return in_quotes(session.title) if session.title else f"the untitled conversation {session.id}"


def deleted_note(note: Note) -> str:
    older = f", and {counted(len(note.replaced), 'note')} that it replaced" if note.replaced else ""
    return f"Deleted note {note.number}{older}."


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
            words = counted(count, name)
            return f"{words} ago" if instant < present else f"in {words}"
    return "just now"
