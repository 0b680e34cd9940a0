"""Search over transcripts: what is asked, what is found."""

from datetime import datetime
from enum import StrEnum
from typing import Protocol

from palaver.model.session import Principal, Session
from palaver.model.transcript import Entry, Role
from palaver.model.value import value

__all__ = [
    "SAID",
    "Hit",
    "Order",
    "Search",
    "SearchFilter",
]

SAID = frozenset({Role.USER, Role.ASSISTANT})
"""What people and the agent have said, unlike what tools gave and the gateway noted."""


class Order(StrEnum):
    NEWEST = "newest"
    BEST = "best"


@value
class SearchFilter:
    """Narrows a search down; every given field must match, of a set one of its members."""

    platform: str | None = None
    people: frozenset[str] = frozenset()
    """The identities of whoever said it: `telegram:7`."""
    roles: frozenset[Role] = frozenset()
    session: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@value
class Hit:
    session: Session
    entry: Entry
    snippet: str
    """The part of the entry around what was found, on one line."""
    marks: tuple[tuple[int, int], ...] = ()
    """Where in the snippet the words stand: start and end of each."""
    before: tuple[Entry, ...] = ()
    after: tuple[Entry, ...] = ()


class Search(Protocol):
    """An index apart from the truth. It may be thrown away at any time; what it finds is checked against the truth."""

    async def find(
        self,
        query: str,
        principal: Principal,
        *,
        filter: SearchFilter = SearchFilter(),  # noqa: A002, B008
        order: Order = Order.NEWEST,
        limit: int = 20,
        neighbours: int = 0,
    ) -> list[Hit]:
        """What the principal may see and is not hidden. Catches up first, so no committed entry is missed."""
        ...

    async def catch_up(self) -> int:
        """Read the journal to its end; gives how many entries were indexed."""
        ...

    async def rebuild(self) -> int:
        """Throw the index away and make it anew from the transcripts."""
        ...

    async def strays(self) -> int:
        """How many entries the index knows that are not there any more. None, once it has caught up."""
        ...

    async def close(self) -> None: ...
