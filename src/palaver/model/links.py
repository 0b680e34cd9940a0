"""Links between identities: which of them are one person, and how long an offer to link is valid."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import NamedTuple

OFFER_LIFETIME = timedelta(minutes=10)
"""How long a code can be entered and, once it was entered, how long both sides have to agree."""


class Link(NamedTuple):
    """Proof, given under both identities, that they are one person."""

    number: int
    one: str
    other: str


def group_identities(identities: Iterable[str], links: Iterable[Link]) -> list[frozenset[str]]:
    """Return the people: identities joined by a chain of links are one. Each identity is in exactly one group."""
    group = {identity: frozenset({identity}) for identity in identities}
    for link in links:
        joined = group[link.one] | group[link.other]
        group.update(dict.fromkeys(joined, joined))
    return list(dict.fromkeys(group.values()))


def replacement_links(identity: str, links: Sequence[Link]) -> list[tuple[str, str]]:
    """Return the pairs to link so that the others stay together when `identity` is taken out."""
    neighbours = [link.other if link.one == identity else link.one for link in links if identity in link[1:]]
    return list(pairwise(neighbours))
