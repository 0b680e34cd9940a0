"""What a store does for the web chat: what was said and sent there, as one talk."""

from datetime import datetime
from typing import Protocol

from palaver.domain.attachment import Attachment
from palaver.domain.key import SessionKey
from palaver.domain.session import Principal
from palaver.domain.value import value
from palaver.ports.work import Work

__all__ = ["Line", "Talks"]


@value
class Line:
    """One message in a talk."""

    name: str
    """Under which it is found again: `in-12`, `out-7168`."""
    id: str
    """What the platform calls it: the same while it grows, and when it is whole."""
    at: datetime
    text: str
    is_mine: bool
    """Said by whoever reads it; else sent to them."""
    files: tuple[Attachment, ...] = ()
    problem: str | None = None
    """Why it was not taken."""


class Talks(Protocol):
    """Read for the person whose chat it is, and for nobody else, whoever else may see everything."""

    def talk(
        self, place: SessionKey, chat: str, principal: Principal, *, before: datetime | None = None, limit: int = 50
    ) -> Work[list[Line]]:
        """The newest lines before then, the oldest in front."""
        ...

    def line(self, name: str, chat: str, principal: Principal) -> Work[Line]:
        """Raises NotFound."""
        ...
