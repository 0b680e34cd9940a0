"""The commands every gateway has."""

from collections.abc import Mapping

from palaver.commands.moving import moving
from palaver.commands.places import about_places
from palaver.commands.registry import Performance, Registry
from palaver.commands.turns import about_turns
from palaver.commands.usage import about_usage
from palaver.domain.command import Arg, Command, Invocation
from palaver.domain.errors import UnknownCommand
from palaver.ports.commands import Spoken
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, work

__all__ = ["standard_commands"]

_HELP = Command(
    name="help",
    help="list the commands, or explain one",
    example="/help new",
    args=(Arg(name="command"),),
    urgent=True,
)


def standard_commands(store: Store) -> Registry:
    performances = [*moving(store), *about_turns(store), *about_places(store), *about_usage(store)]
    table: dict[str, Command] = {}

    @work
    def help_(invocation: Invocation, _spoken: Spoken) -> Steps[str]:
        yield from ()
        return _explain(table, invocation.words.get("command"))

    registry = Registry([*performances, Performance(_HELP, help_)])
    table.update(registry.table)
    return registry


def _explain(table: Mapping[str, Command], name: str | None) -> str:
    if name is None:
        commands = dict.fromkeys(table.values())
        return "\n".join(
            f"{', '.join(f'/{each}' for each in (command.name, *command.aliases))}: {command.help}"
            for command in sorted(commands, key=lambda each: each.name)
        )
    command = table.get(name.removeprefix("/").lower())
    if command is None:
        known = ", ".join(sorted(table))
        raise UnknownCommand("There is no command", found=name, allowed=known, example="/help new")
    return f"{command.usage}\n{command.help}\nfor example: {command.example}"
