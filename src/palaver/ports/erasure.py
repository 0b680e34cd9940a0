"""Erasure as the rest of the gateway sees it: asked for in one step, carried out in many."""

from collections import Counter
from collections.abc import Callable
from dataclasses import field
from datetime import datetime
from typing import Protocol

from palaver.domain.value import value
from palaver.ports.files import Shelf
from palaver.ports.work import Work

__all__ = ["ERASURES", "Erasures", "Found", "Outcome"]

ERASURES = "erasures"
"""What one may listen to: somebody asks to be forgotten."""


@value
class Found:
    """How much of a person there is."""

    identities: tuple[str, ...]
    own: int = 0
    """Conversations in which nobody else ever spoke."""
    own_entries: int = 0
    shared: int = 0
    """Conversations that others share."""
    said: int = 0
    """Entries of theirs in those."""
    answers: int = 0
    """Entries that answer them there, and summaries since."""
    messages: int = 0
    sends: int = 0


@value
class Outcome:
    """What an erasure has taken away so far, by kind."""

    number: int
    done: bool
    """Once over everything, nothing was found any more."""
    counts: Counter[str] = field(default_factory=Counter[str])
    busy: tuple[str, ...] = ()
    """Conversations in the middle of a turn. Without any, what is not done can be gone on with at once."""


class Erasures(Protocol):
    """Everything of a person taken away, so that it can be gone on with after any interruption."""

    async def find(self, name: str) -> Found:
        """What would be taken away of the person with this id or identity.

        Raises NotFound, and BadArgument for somebody of whom nothing is kept.
        """
        ...

    def extent(self, name: str) -> Work[tuple[int, int]]:
        """A glance: how many conversations are theirs alone, and how many they share."""
        ...

    def ask_for(
        self, name: str, now: datetime, *, by: str, keeps_access: bool = False, answer: str | None = None
    ) -> Work[int]:
        """The number of the erasure, or of the one that is under way. What lets the person in goes in this step.

        `answer` names what is owed to them for asking: it is sent before the rest is taken away.
        """
        ...

    async def carry_out(
        self,
        number: int,
        now: datetime,
        *,
        shelf: Shelf | None = None,
        progress: Callable[[Counter[str]], None] = lambda _: None,
    ) -> Outcome:
        """The content of files that nobody has any more is taken from the shelf, too."""
        ...

    async def go_on(self, now: datetime, *, shelf: Shelf | None = None) -> list[Outcome]:
        """Carry out whatever was asked for and is not done, besides what waits for its answer to be sent."""
        ...
