"""What a store knows about access: grants, what changed them, and strangers who ask to be let in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from palaver.domain.access import AccessRole, Grant
from palaver.domain.key import SessionKey
from palaver.domain.label import Label
from palaver.domain.source import Source
from palaver.domain.turn import Inbound, Outbound
from palaver.domain.value import value
from palaver.ports.work import Work

__all__ = ["Change", "ChangeKind", "Grants", "Pairing", "Stranger", "Table"]


class ChangeKind(StrEnum):
    GRANTED = "granted"
    REVOKED = "revoked"
    ASKED = "asked"
    """A stranger was given a code."""
    APPROVED = "approved"
    DENIED = "denied"
    WRONG_CODE = "wrong-code"
    LINKED = "linked"
    UNLINKED = "unlinked"
    MOVED = "moved"
    """A chat has another id, and grants for it name that."""


@value
class Change:
    """Who changed what about access, and when."""

    number: int
    at: datetime
    by: str
    kind: ChangeKind
    identity: str | None = None
    details: Mapping[str, str] = field(default_factory=dict[str, str])


@value
class Table:
    """Every grant under its number, as of the last change."""

    version: int = -1
    grants: Mapping[int, Grant] = field(default_factory=dict[int, Grant])
    people: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the people that grants name, every identity."""


@value
class Stranger:
    """Somebody who was given a code, or was let in with it."""

    identity: str
    source: Source
    name: Label | None
    asked: datetime
    expires: datetime
    kept: int
    """How many messages wait with them."""


class Grants(Protocol):
    """The one table of grants. Every change of it leaves a row that says who, when and what."""

    def table(self, known: Table) -> Work[Table]:
        """What is known already where nothing has changed since."""
        ...

    def add(self, grant: Grant, now: datetime, *, by: str, force: bool = False) -> Work[int]:
        """Takes the place of a grant to the same senders in another role. Raises LastOwner unless forced."""
        ...

    def remove(self, number: int, now: datetime, *, by: str, force: bool = False) -> Work[Grant | None]:
        """None if there is no such grant. Raises LastOwner unless forced."""
        ...

    def changes(self, limit: int) -> Work[list[Change]]:
        """The newest, in the order they were made."""
        ...


class Pairing(Protocol):
    """Strangers in direct chats, and the codes that let them in."""

    def ask(
        self,
        inbound: Inbound,
        key: SessionKey,
        now: datetime,
        *,
        code: str,
        answer: Callable[[], Sequence[Outbound]],
    ) -> Work[tuple[int, str] | None]:
        """Keep a stranger's message, and owe them the code if it is their turn to get one.

        Gives the number of the message and why it is not answered; None if it is known already.
        """
        ...

    def say_once(self, name: str) -> Work[None]:
        """What is owed under this name in this step holds a code."""
        ...

    def hush(self) -> Work[int]:
        """Of what held a code and was sent, or never will be, the words go."""
        ...

    def approve(
        self, code: str, role: AccessRole, now: datetime, *, by: str, answer: Callable[[Source], Sequence[Outbound]]
    ) -> Work[Stranger | None]:
        """Let in whoever has the code, tell them, and take up what they have said. None for a wrong code.

        Raises LockedOut where too many codes were wrong.
        """
        ...

    def deny(self, name: str, now: datetime, *, by: str, blocks: bool = False) -> Work[Stranger | None]:
        """Turn away whoever has this code or identity, for a while or for good. None if nobody waits under it."""
        ...

    def pending(self, now: datetime) -> Work[list[Stranger]]: ...
