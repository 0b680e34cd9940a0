"""The registry: every command declared once, with its help, who may use it, and the work it stands for."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from palaver.domain.access import AccessRole
from palaver.domain.command import Command, Invocation, command_table, parse_command
from palaver.domain.errors import NotAllowed
from palaver.ports.commands import Spoken
from palaver.ports.work import Work

__all__ = ["Performance", "Registry"]

Does = Callable[[Invocation, Spoken], Work[str] | Awaitable[Work[str]]]
"""What a command awaits comes first and leaves no trace; its work and its answer are one step."""


@dataclass(frozen=True, slots=True)
class Performance:
    """A command and what it does."""

    command: Command
    does: Does


class Registry:
    def __init__(self, performances: Iterable[Performance]) -> None:
        self._does: Mapping[str, Does] = {each.command.name: each.does for each in performances}
        self.table = command_table(*(each.command for each in performances))

    def parse(self, text: str) -> Invocation | None:
        return parse_command(text, self.table)

    async def perform(self, invocation: Invocation, spoken: Spoken) -> Work[str]:
        command = invocation.command
        if (spoken.received.role or AccessRole.GUEST) < command.role:
            raise NotAllowed(f"/{command.name}", command.role.name.lower())
        does = self._does[command.name](invocation, spoken)
        return does if isinstance(does, Work) else await does
