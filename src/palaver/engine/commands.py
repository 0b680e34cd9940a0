"""Commands as the engine sees them: what a message invokes, and the work that it stands for."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from palaver.db.transaction import Transaction
from palaver.model.access import AccessRole
from palaver.model.attachment import Attachment, NewFile
from palaver.model.command import Command, Invocation
from palaver.model.scope import Scope
from palaver.model.session import Principal, Session
from palaver.model.source import DM, Source
from palaver.model.turn import Received
from palaver.model.value import value
from palaver.protocols.agent import Agent
from palaver.protocols.tools import Tool

__all__ = [
    "Commands",
    "Desk",
    "Spoken",
]

_UTC = ZoneInfo("UTC")


async def _no_tools() -> Sequence[Tool]:
    return ()


class Desk(Protocol):
    """Where a command puts a file for whoever commanded."""

    async def keep(self, new: NewFile) -> Attachment:
        """Before the step; what is not owed then is removed after a while."""
        ...

    def owe(self, file: Attachment, now: datetime) -> Transaction[None]:
        """In the step that does the command."""
        ...


@value
class Spoken:
    """A command as it was said: by whom, where and when."""

    received: Received
    principal: Principal
    now: datetime
    agent: Agent | None = None
    """Who answers here; None where nobody asks it."""
    zone: ZoneInfo = _UTC
    """Whose clock counts in this chat."""
    tools: Callable[[], Awaitable[Sequence[Tool]]] = _no_tools
    """What the agent may use here for whoever commands."""
    desk: Desk | None = None
    """Where files for this chat are put; None where it takes none."""
    roles: Mapping[str, AccessRole] = field(default_factory=dict[str, AccessRole])
    """Which role commands need, by their names, where that was chosen here."""
    scope_of: Callable[[Source], Scope] = lambda _: Scope()
    """The configured scope of a chat: which conversation its messages belong to."""
    mentioned: list[Session] = field(default_factory=list[Session])
    """Conversations that the answer, also a refusal, has words of: it goes when one of them is removed."""

    @property
    def is_overheard(self) -> bool:
        """Others read the answer too."""
        return self.received.inbound.source.chat_kind != DM

    @property
    def audience(self) -> Principal:
        """On whose behalf lists and finds are read out: where others read along, only what is of this place."""
        here = self.received.place or self.received.key
        return replace(self.principal, within=here) if self.is_overheard else self.principal

    def is_in(self, session: Session) -> bool:
        """Whether it was said in this session."""
        return session.key == self.received.key and session.ended is None


class Commands(Protocol):
    def listed(self, role: AccessRole, roles: Mapping[str, AccessRole]) -> Sequence[Command]:
        """What somebody with that role may use, in the order in which people are shown it."""
        ...

    def parse(self, text: str) -> Invocation | None:
        """None where the text invokes nothing. Raises InvalidInput with an answer for whoever wrote it."""
        ...

    async def perform(self, invocation: Invocation, spoken: Spoken) -> Transaction[str]:
        """The work and the words to answer with. Raises PalaverError, and changes nothing, where it cannot be done.

        Whatever has to be awaited is awaited here and changes nothing either: only the work is committed.
        """
        ...
