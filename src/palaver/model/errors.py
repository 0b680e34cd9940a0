"""Errors: one tree. Each error carries its facts and a message for the person who reads it.

PalaverError                anything Palaver itself raises
├── InvalidInput            input is not valid: what was found, what is allowed, an example
│   ├── BadArgument
│   ├── MalformedSource
│   ├── MalformedTime
│   ├── UnknownCommand
│   └── UnknownPlatform
├── NotAllowed              the command needs a higher role
├── LastOwner               the change would leave the gateway without an owner
├── LockedOut               too many wrong codes
├── NothingToCompact        compacting would save nothing
├── NotServed               only the worker that serves the account can do it
├── IllegalTransition       a life cycle has no such step
└── StoreError              durable state could not be read or written
    ├── StoreUnavailable    try again later
    ├── StoreInUse          another gateway owns the database
    ├── NewerSchema         a newer Palaver wrote the database
    ├── Unreadable          a stored row is damaged
    ├── StaleFence          another worker holds the turn now; nothing was written
    ├── SessionBusy         the session is in the middle of a turn
    └── NotFound            it does not exist, or this principal cannot see it
"""

from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import cast

from palaver.model.text import quoted

INTERNAL_ERROR = "Something went wrong. The gateway log has the details."
"""For a person whom the error itself tells nothing."""


class PalaverError(Exception): ...


def first_error(error: BaseException) -> BaseException:
    """Return the first error of a group, and any other error as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


class InvalidInput(PalaverError):
    """Something a person or a peer gave us is not valid. The message is `invalid_message` of the facts."""

    def __init__(self, problem: str, *, found: str, allowed: str, example: str, fix: str | None = None) -> None:
        super().__init__(invalid_message(problem, found=found, allowed=allowed, example=example, fix=fix))
        self.problem = problem
        self.found = found
        self.allowed = allowed
        self.example = example
        self.fix = fix


def invalid_message(problem: str, *, found: str, allowed: str, example: str, fix: str | None = None) -> str:
    """Return "Unknown model 'x'. Use provider:model, for example openai:gpt-5-mini".

    `{found}` in `problem` stands for the quoted input; otherwise the input follows. `fix` says what to do instead of
    "Use <allowed>". A `problem` or `fix` that ends a sentence is complete: neither input nor example is added to it.
    There is no full stop after an example, so that it can be copied.
    """
    if "{found}" in problem:
        problem = problem.replace("{found}", quoted(found))
    elif not problem.endswith("."):
        problem = f"{problem} {quoted(found)}"
    advice = fix if fix is not None else f"Use {allowed}" if allowed else ""
    if example and advice and not advice.endswith((".", "?")) and example not in advice:
        advice = f"{advice}, for example {example}"
    return f"{problem.removesuffix('.')}. {advice}".rstrip()


class BadArgument(InvalidInput): ...


class MalformedSource(InvalidInput): ...


class MalformedTime(InvalidInput): ...


class UnknownCommand(InvalidInput): ...


class UnknownPlatform(InvalidInput):
    def __init__(self, name: str, known: Iterable[str], example: str = "") -> None:
        super().__init__("Unknown platform", found=name, allowed=", ".join(sorted(known)), example=example)


class NotAllowed(PalaverError):
    def __init__(self, what: str, needs: str) -> None:
        super().__init__(f"{what} needs the {needs} role. Ask the owner of this gateway for it.")
        self.needs = needs


class NoAccess(PalaverError):
    """The person for whom a key was made has no access any more."""

    def __init__(self, identity: str) -> None:
        super().__init__(
            f"{identity} has no access to this gateway now. The owner can give it: palaver grants add {identity}"
        )


class LastOwner(PalaverError):
    def __init__(self) -> None:
        super().__init__("Make somebody else owner first, or use --force: this is the last owner of the gateway.")


class LockedOut(PalaverError):
    def __init__(self, until: datetime) -> None:
        super().__init__(f"Too many wrong codes. Try again after {until:%Y-%m-%d %H:%M} UTC.")


class NothingToCompact(PalaverError): ...


class NotServed(PalaverError):
    def __init__(self, account: str) -> None:
        super().__init__(
            f"Only the worker that serves {account} knows how far it was read, in `run`. HTTP calls cannot set it."
        )


class IllegalTransition(PalaverError):
    def __init__(self, current: Enum, wanted: Enum, legal: frozenset[Enum]) -> None:
        names = ", ".join(sorted(str(state.value) for state in legal))
        names = f", only {names}" if names else ": it is final"
        super().__init__(f"{type(current).__name__} {current.value} cannot become {wanted.value}{names}.")


class StoreError(PalaverError): ...


class StoreUnavailable(StoreError):
    """The database does not answer. Nothing was written, unless the message says that this is not known."""


class StoreDamaged(StoreUnavailable):
    """A gateway has found its database damaged, and writes no more into it."""


class StoreInUse(StoreError): ...


class NewerSchema(StoreError):
    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"Install a newer Palaver, or open the backup made before the upgrade: the database has schema {found}, "
            f"and this Palaver knows schemas up to {known}."
        )


class Unreadable(StoreError):
    def __init__(self, what: str, name: str) -> None:
        super().__init__(
            f"The {what} {quoted(name)} cannot be read: its row in the database is damaged. Restore a backup, or copy "
            "everything readable into a new store: palaver doctor --salvage NEW_STORE"
        )
        self.name = name


class StaleFence(StoreError):
    """The write came too late: another worker has taken over. Nothing was written."""

    def __init__(self, what: str, number: int, fence: int) -> None:
        super().__init__(f"{what} {number} is no longer held under fence {fence}. Nothing was written.")


class SessionBusy(StoreError):
    def __init__(self, session: str) -> None:
        super().__init__(f"Try again when session {session} has answered: it is in the middle of a turn.")
        self.session = session


class NotFound(StoreError):
    """It does not exist, or this principal cannot see it. The message does not say which."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(f"There is no {what} {quoted(name)} that you can see.")
        self.what = what
        self.name = name
