"""How commands write what others have written, and when."""

from datetime import datetime, tzinfo

from palaver.domain.session import Session
from palaver.domain.text import one_line

__all__ = ["called", "counted", "name_of", "quoted", "when"]

_LONGEST_QUOTE = 80


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
