"""What a store knows about places that are attached to a conversation which is at home elsewhere."""

from datetime import datetime
from typing import Protocol

from palaver.domain.key import SessionKey
from palaver.domain.session import Principal, Session
from palaver.domain.turn import Outbound
from palaver.ports.work import Work

__all__ = ["Attaching"]


class Attaching(Protocol):
    """One conversation reached from several places. A place leads to one conversation, a conversation leads nowhere."""

    def leads_to(self, place: SessionKey) -> Work[SessionKey]:
        """The conversation that is spoken to in a place: its own, unless it is attached to another."""
        ...

    def attachable(self, target: str, place: SessionKey, principal: Principal) -> Work[Session]:
        """What `target` names, held until the end of the work. Raises where it does not go on anywhere else."""
        ...

    def has_others(self, session: Session, principal: Principal) -> Work[bool]:
        """Whether somebody else than the principal took part in it, too."""
        ...

    def several_take_part(self, session: Session) -> Work[bool]:
        """Whether it is the conversation of more than one person, however many accounts they have."""
        ...

    def is_shared(self, session: Session) -> Work[bool]:
        """Whether several take part in it, or may: in its own place, or in one that is attached to it."""
        ...

    def attached_to(self, key: SessionKey) -> Work[list[SessionKey]]:
        """The places that lead to a conversation besides its own."""
        ...

    def attach(self, place: SessionKey, session: Session, now: datetime, *, by: str, farewell: Outbound) -> Work[None]:
        """From now on what is said in the place is said to that conversation; what waits there goes along.

        `farewell` is owed once somebody else than the place itself has ended that.
        """
        ...

    def detach(self, place: SessionKey, now: datetime) -> Work[bool]:
        """The place leads to its own conversation again, and what it said that still waits goes along."""
        ...
