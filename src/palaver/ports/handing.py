"""What a store knows about conversations that are handed off to the home channel of another platform."""

from datetime import datetime
from typing import Protocol

from palaver.domain.key import SessionKey
from palaver.domain.session import Session
from palaver.domain.source import Source
from palaver.domain.turn import Outbound
from palaver.ports.work import Work

__all__ = ["Handing"]


class Handing(Protocol):
    """A handoff is an operation: taken back, the session is where it was, be it on its way or there already."""

    def hand_off(
        self, session: Session, origin: Source, home: Source, opening: Outbound, now: datetime, *, by: str
    ) -> Work[None]:
        """The session leaves its conversation, which starts fresh; it goes on where `opening` arrives."""
        ...

    def course(self, number: int) -> Work[tuple[Source, Source] | None]:
        """From where to where a handoff goes; None once its session is deleted."""
        ...

    def arrive(
        self, number: int, place: SessionKey, address: Source, now: datetime, *, recalled: Outbound, returned: Outbound
    ) -> Work[Session | None]:
        """The session goes on in this place; None if it was taken back, or taken up elsewhere, meanwhile.

        `recalled` is owed if it is taken back from where it came, `returned` if it is sent back there.
        """
        ...

    def stay(self, number: int, now: datetime) -> Work[bool | None]:
        """It could not be handed off: True if it goes on where it was, False if something else does by now."""
        ...
