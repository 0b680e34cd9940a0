"""Errors: one tree, each error carries the facts and speaks to the person who will read it.

PalaverError
├── InvalidInput            something a person or a peer gave us; says what was found, what is allowed, an example
│   ├── UnknownPlatform
│   ├── MalformedSource
│   ├── MalformedKey
│   ├── MalformedTarget
│   ├── MalformedSchedule
│   ├── MalformedTime
│   ├── UnknownZone
│   ├── UnknownCommand
│   ├── BadArgument
│   └── EmptyTitle
├── NothingToCompact        a compaction that would gain nothing
└── IllegalTransition       a life cycle was asked for a step it does not have
"""

from enum import Enum

from palaver.domain.text import shown

__all__ = [
    "BadArgument",
    "EmptyTitle",
    "IllegalTransition",
    "InvalidInput",
    "MalformedKey",
    "MalformedSchedule",
    "MalformedSource",
    "MalformedTarget",
    "MalformedTime",
    "NothingToCompact",
    "PalaverError",
    "UnknownCommand",
    "UnknownPlatform",
    "UnknownZone",
]


class PalaverError(Exception):
    """Anything Palaver itself raises."""


class InvalidInput(PalaverError):
    """One sentence: what was found, what is allowed, an example that works."""

    def __init__(self, problem: str, *, found: str, allowed: str, example: str) -> None:
        super().__init__(f"{problem} {shown(found)}; allowed: {allowed}; for example: {example}")
        self.problem = problem
        self.found = found
        self.allowed = allowed
        self.example = example


class UnknownPlatform(InvalidInput): ...


class MalformedSource(InvalidInput): ...


class MalformedKey(InvalidInput): ...


class MalformedTarget(InvalidInput): ...


class MalformedSchedule(InvalidInput): ...


class MalformedTime(InvalidInput): ...


class UnknownZone(InvalidInput): ...


class UnknownCommand(InvalidInput): ...


class BadArgument(InvalidInput): ...


class EmptyTitle(InvalidInput): ...


class NothingToCompact(PalaverError):
    """Raised instead of a compaction that would save nothing."""


class IllegalTransition(PalaverError):
    def __init__(self, current: Enum, wanted: Enum, legal: frozenset[Enum]) -> None:
        names = ", ".join(sorted(str(state.value) for state in legal)) or "nothing, it is final"
        super().__init__(
            f"{type(current).__name__} {current.value} cannot become {wanted.value}; it can become: {names}"
        )
        self.current = current
        self.wanted = wanted
        self.legal = legal
