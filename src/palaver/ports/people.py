"""What a store knows about people: who is who, who is linked with whom, and under which other names."""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from palaver.domain.label import Label
from palaver.domain.session import Principal
from palaver.domain.source import Source
from palaver.domain.value import value
from palaver.ports.work import Work

__all__ = ["Aliases", "Identity", "Links", "Offer", "Party", "People", "Person"]


@value
class Identity:
    """One account of a human on a platform."""

    identity: str
    name: Label | None
    since: datetime


@value
class Person:
    id: str
    name: Label | None
    since: datetime
    identities: tuple[Identity, ...] = ()


@value
class Party:
    """One side of an offer to link: who, where they were told of it, and every identity that comes with them."""

    identity: str
    address: Source
    identities: tuple[Identity, ...]


@value
class Offer:
    """Two who would be one person, as whoever asks sees it."""

    mine: Party
    theirs: Party
    linked: bool = False
    """Both have agreed, and it is done."""
    changed: bool = False
    """One of them is not any more whom the other agreed to: both are asked again."""


class People(Protocol):
    """Who is who."""

    def person_of(self, identity: str, now: datetime, *, name: str | None = None) -> Work[str]:
        """The person behind an identity; a new one at first contact."""
        ...

    def principal_of(self, identity: str) -> Work[Principal]: ...

    def speaking(self, source: Source) -> Work[Principal]:
        """On whose behalf somebody speaks there. Read it in the step that it is used in."""
        ...

    def linked(self) -> Work[Mapping[str, str]]:
        """The person behind every identity that is linked with another."""
        ...

    def everybody(self, principal: Principal, *, after: str = "", limit: int = 100) -> Work[list[Person]]: ...

    def find_person(self, name: str, principal: Principal) -> Work[Person]:
        """By the id of the person or by an identity. Raises NotFound."""
        ...


class Links(Protocol):
    """Identities are one person once somebody has shown and said it under both, until they take it back."""

    def offer(self, source: Source, name: Label | None, code_hash: str, now: datetime) -> Work[None]:
        """Whoever enters the code may ask to be one person with this one; it takes the place of an earlier offer."""
        ...

    def enter(self, source: Source, name: Label | None, code_hash: str, now: datetime) -> Work[Offer | None]:
        """None for a wrong code, which is counted. Raises LockedOut where too many were wrong."""
        ...

    def agree(self, identity: str, now: datetime) -> Work[Offer | None]:
        """Say yes; when both have, it is done. None where nothing was asked."""
        ...

    def withdraw(self, identity: str, now: datetime) -> Work[Offer | None]:
        """Say no to what was asked, and take back what was offered. None where nobody else has to know."""
        ...

    def link(self, one: str, other: str, now: datetime, *, by: str) -> Work[str]:
        """Make two identities, with all they are linked with, one person: the elder of the two."""
        ...

    def unlink(self, identity: str, now: datetime, *, by: str) -> Work[list[frozenset[str]]]:
        """Take an identity out of its person; gives the people they are now. What they had in common is parted.

        Nobody is given, and nothing done, where a turn is at work on that: it is asked to stop.
        """
        ...

    def unlink_last(self, identity: str, now: datetime, *, by: str) -> Work[list[frozenset[str]]]:
        """Take back the last link of a person that still stands: they are the people that they were before it."""
        ...


class Aliases(Protocol):
    """Several forms of one id, as platforms tell of them."""

    def learn(self, platform: str, alias: str, known_as: str, now: datetime) -> Work[bool]:
        """Whatever was known under the one goes on under the other. False where this is known already."""
        ...

    def of(self, platform: str) -> Work[Mapping[str, str]]: ...

    def everywhere(self) -> Work[Mapping[str, Mapping[str, str]]]:
        """Of every platform."""
        ...
