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
│   ├── EmptyTitle
│   └── UnknownStore
├── NotAllowed              a command that needs a higher role
├── LastOwner               a change after which nobody would own the gateway
├── LockedOut               too many wrong codes
├── NothingToCompact        a compaction that would gain nothing
├── NotServed               only the worker that serves an account can do it
├── IllegalTransition       a life cycle was asked for a step it does not have
└── StoreError              durable state could not be read or written
    ├── StoreUnavailable    it may be tried again later
    ├── StoreInUse          another gateway owns the database
    ├── NewerSchema         a newer Palaver wrote the database
    ├── StaleFence          the turn belongs to somebody else now; nothing was written
    ├── SessionBusy         the session is in the middle of a turn
    └── NotFound            nothing there, or nothing this principal may see
"""

from datetime import datetime
from enum import Enum

from palaver.model.text import quoted

__all__ = [
    "BadArgument",
    "EmptyTitle",
    "IllegalTransition",
    "InvalidInput",
    "LastOwner",
    "LockedOut",
    "MalformedKey",
    "MalformedSchedule",
    "MalformedSource",
    "MalformedTarget",
    "MalformedTime",
    "NewerSchema",
    "NotAllowed",
    "NotFound",
    "NotServed",
    "NothingToCompact",
    "PalaverError",
    "SessionBusy",
    "StaleFence",
    "StoreError",
    "StoreInUse",
    "StoreUnavailable",
    "UnknownCommand",
    "UnknownPlatform",
    "UnknownStore",
    "UnknownZone",
]


class PalaverError(Exception):
    """Anything Palaver itself raises."""


class InvalidInput(PalaverError):
    """One sentence: what was found, what is allowed, an example that works."""

    def __init__(self, problem: str, *, found: str, allowed: str, example: str) -> None:
        super().__init__(f"{problem} {quoted(found)}; allowed: {allowed}; for example: {example}")
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


class UnknownStore(InvalidInput): ...


class NotAllowed(PalaverError):
    def __init__(self, what: str, needs: str) -> None:
        super().__init__(f"{what} is for people with the role {needs}; ask the owner of this gateway for it")
        self.what = what
        self.needs = needs


class LastOwner(PalaverError):
    def __init__(self) -> None:
        super().__init__(
            "nobody would own this gateway any more, but for its terminal: make somebody else owner first, or force it"
        )


class LockedOut(PalaverError):
    def __init__(self, until: datetime) -> None:
        super().__init__(f"too many codes were wrong: none is looked at until {until:%Y-%m-%d %H:%M} UTC")
        self.until = until


class NothingToCompact(PalaverError):
    """Raised instead of a compaction that would save nothing."""


class NotServed(PalaverError):
    def __init__(self, account: str) -> None:
        super().__init__(
            f"how far {account} was read is kept by the worker that serves it, in `run`; a call over HTTP cannot say it"
        )
        self.account = account


class IllegalTransition(PalaverError):
    def __init__(self, current: Enum, wanted: Enum, legal: frozenset[Enum]) -> None:
        names = ", ".join(sorted(str(state.value) for state in legal)) or "nothing, it is final"
        super().__init__(
            f"{type(current).__name__} {current.value} cannot become {wanted.value}; it can become: {names}"
        )
        self.current = current
        self.wanted = wanted
        self.legal = legal


class StoreError(PalaverError):
    """Durable state could not be read or written."""


class StoreUnavailable(StoreError):
    """The database does not answer now; nothing was written, or the sentence says that it is not known."""


class StoreInUse(StoreError):
    """Another gateway owns the database."""


class NewerSchema(StoreError):
    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"the database has schema {found}, this Palaver knows schemas up to {known}: install a newer Palaver, "
            "or open the backup that was made before the upgrade"
        )
        self.found = found
        self.known = known


class StaleFence(StoreError):
    """A write came too late: somebody else has taken over. Nothing was written."""

    def __init__(self, what: str, number: int, fence: int) -> None:
        super().__init__(f"{what} {number} is no longer held under fence {fence}; nothing was written")
        self.number = number
        self.fence = fence


class SessionBusy(StoreError):
    def __init__(self, session: str) -> None:
        super().__init__(f"session {session} is in the middle of a turn: try again when it has answered")
        self.session = session


class NotFound(StoreError):
    """Not there, or not for this principal: which of the two is nobody's business."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(f"there is no {what} {quoted(name)} that you may see")
        self.what = what
        self.name = name
