"""What the engine asks of a command registry, and what a command knows about its call."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from palaver.db.transaction import Transaction
from palaver.engine.attachments import CommandFiles
from palaver.engine.jobs.creation import JobRules
from palaver.model.access import AccessRole, Grant
from palaver.model.command import Command, Invocation
from palaver.model.key import Scope
from palaver.model.memory import MemoryLimits
from palaver.model.session import Principal, Session
from palaver.model.source import DM, Source
from palaver.model.split import ReplyRoutes
from palaver.model.turn import Received
from palaver.model.value import value
from palaver.protocols.agent import Agent
from palaver.protocols.tools import Tool

UTC = ZoneInfo("UTC")


async def _no_tools() -> Sequence[Tool]:
    return ()


@value
class CommandContext:
    """Who called a command, where and when, and what it may use."""

    received: Received
    principal: Principal
    now: datetime
    agent: Agent | None = None
    """The agent of this conversation, if the command may ask it."""
    zone: ZoneInfo = UTC
    """The chat's time zone."""
    tools: Callable[[], Awaitable[Sequence[Tool]]] = _no_tools
    """Returns the tools that the agent may use here for the caller."""
    tool_problems: Callable[[], Mapping[str, str]] = dict[str, str]
    """Returns why tools are missing, by the name of what does not work."""
    files: CommandFiles | None = None
    """Sends files to this chat; None if it takes none."""
    roles: Mapping[str, AccessRole] = field(default_factory=dict[str, AccessRole])
    """The role that a command needs, by name, if the configuration changes it."""
    scope_of: Callable[[Source], Scope] = lambda _: Scope()
    """Returns the configured scope of a chat, which decides how its conversations are shared."""
    grants: Sequence[Grant] = ()
    """The configured grants, beside those in the store."""
    jobs: JobRules = field(default_factory=JobRules)
    """What this gateway can do for a scheduled job."""
    memory_limits: MemoryLimits = field(default_factory=MemoryLimits)
    """How many notes one person or one chat can have."""
    routes: ReplyRoutes = field(default_factory=ReplyRoutes)
    """How to send a notice to another chat."""
    speaks: bool = False
    """Whether this gateway can speak answers."""
    mentioned: list[Session] = field(default_factory=list[Session])
    """Conversations that the answer quotes, even if it is a refusal: it is deleted together with them."""

    @property
    def is_overheard(self) -> bool:
        """Tell whether others can read the answer."""
        return self.received.inbound.source.chat_kind != DM

    @property
    def audience(self) -> Principal:
        """Return for whom to list and search: if others can read the answer, only what belongs to this chat."""
        here = self.received.place or self.received.key
        return replace(self.principal, within=here) if self.is_overheard else self.principal

    def is_in(self, session: Session) -> bool:
        """Tell whether the command was called in this session."""
        return session.key == self.received.key and session.ended is None


class Commands(Protocol):
    table: Mapping[str, Command]
    """Every command under each of its names."""

    def listed(self, role: AccessRole, roles: Mapping[str, AccessRole]) -> Sequence[Command]:
        """Return the commands that a role may use, in the order of the help."""
        ...

    async def perform(self, invocation: Invocation, context: CommandContext, /) -> Transaction[str]:
        """Return the transaction that does the work and returns the answer.

        Raises PalaverError if it cannot be done. Everything to be awaited is awaited here and changes nothing: only
        the transaction is committed.
        """
        ...
