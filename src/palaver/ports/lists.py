"""Lists of sessions: what is wanted, and one page of it."""

from datetime import datetime
from typing import Protocol

from palaver.domain.lifecycle import SessionState
from palaver.domain.session import Principal
from palaver.domain.value import value
from palaver.ports.store import Preview
from palaver.ports.work import Work

__all__ = ["EVERYTHING", "ListFilter", "Lists", "Page"]


@value
class ListFilter:
    """Narrows a list down; every given field must match. Times are those of the last activity."""

    platform: str | None = None
    profile: str | None = None
    state: SessionState | None = None
    titled: bool = False
    title: str | None = None
    """Text somewhere in the title, whatever its case."""
    owner: str | None = None
    person: str | None = None
    """The identity of somebody who took part: `telegram:7`."""
    since: datetime | None = None
    until: datetime | None = None


EVERYTHING = ListFilter()


@value
class Page:
    previews: tuple[Preview, ...]
    after: str | None
    """Where the next page begins; None on the last one."""


class Lists(Protocol):
    """Sessions in lists."""

    def previews(self, principal: Principal, limit: int) -> Work[list[Preview]]:
        """The sessions used last, each with the last thing a person said in it."""
        ...

    def list_sessions(
        self, principal: Principal, *, wanted: ListFilter = ..., after: str | None = None, limit: int = 50
    ) -> Work[Page]:
        """The newest sessions first. A page costs the same wherever it is. Raises BadArgument for a wrong cursor."""
        ...
