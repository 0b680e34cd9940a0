"""What a store does with messages that were changed or deleted after they were sent."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from palaver.domain.access import AccessRole
from palaver.domain.key import SessionKey
from palaver.domain.revision import RevisionPolicy
from palaver.domain.turn import Inbound, Outbound, Received
from palaver.ports.work import Work

__all__ = ["Revisions"]


class Revisions(Protocol):
    """Changes of messages: each accepted once, each ending in a named state; entries stay as they were written."""

    def accept_revision(
        self,
        inbound: Inbound,
        key: SessionKey,
        now: datetime,
        policy: RevisionPolicy,
        *,
        role: AccessRole | None = None,
        refused: str | None = None,
        expected: bool = True,
    ) -> Work[int | None]:
        """The number of the inbox row; None for a change that is there already.

        Also where its message has not come and is not expected: then nothing is kept of it.
        """
        ...

    def go_back_to(self, received: Received, now: datetime, notices: Callable[[int], Sequence[Outbound]]) -> Work[bool]:
        """Hide a changed message and what followed it; False while a turn is open. `notices` hears how much it was."""
        ...
