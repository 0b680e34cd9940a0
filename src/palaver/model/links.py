"""Linking: which identities are one person, given the links between them, and how long an offer to link is good."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import NamedTuple

__all__ = [
    "VALID_FOR",
    "Link",
    "bridges",
    "circles",
]

VALID_FOR = timedelta(minutes=10)
"""How long a code may be entered and, once it was, how long both sides have to agree."""


class Link(NamedTuple):
    """Somebody showed, under both identities, that they are one person."""

    number: int
    one: str
    other: str

    def touches(self, identity: str) -> bool:
        return identity in {self.one, self.other}


def circles(identities: Iterable[str], links: Iterable[Link]) -> list[frozenset[str]]:
    """The people: identities that a chain of links joins are one. Each identity is in exactly one circle."""
    circle = {each: frozenset({each}) for each in identities}
    for link in links:
        joined = circle[link.one] | circle[link.other]
        circle.update(dict.fromkeys(joined, joined))
    return list(dict.fromkeys(circle.values()))


def bridges(identity: str, links: Sequence[Link]) -> list[tuple[str, str]]:
    """The links that keep the others together when one of them goes."""
    neighbours = [link.other if link.one == identity else link.one for link in links if link.touches(identity)]
    return list(pairwise(neighbours))
