"""Write the answers of /help: the commands that a role can use, by group."""

from collections.abc import Mapping

from palaver.model.access import AccessRole
from palaver.model.command import Command
from palaver.model.errors import UnknownCommand

_GROUPS = ("conversations", "transcripts", "finding", "answers", "jobs", "people", "gateway")
"""Display order; other groups follow by name."""


def grouped(table: Mapping[str, Command]) -> dict[str, list[Command]]:
    commands = sorted(dict.fromkeys(table.values()), key=lambda each: (_rank(each.group), each.group, each.name))
    groups: dict[str, list[Command]] = {}
    for command in commands:
        groups.setdefault(command.group, []).append(command)
    return groups


def _rank(group: str) -> int:
    return _GROUPS.index(group) if group in _GROUPS else len(_GROUPS)


def spellings(command: Command) -> str:
    return _with_slashes(command.name, *command.aliases)


def _with_slashes(*names: str) -> str:
    return ", ".join(f"/{name}" for name in names)


def allowed(table: Mapping[str, Command], role: AccessRole) -> dict[str, list[Command]]:
    """Return the commands that this role can use, by group."""
    return grouped({name: command for name, command in table.items() if command.role <= role})


def list_commands(table: Mapping[str, Command], role: AccessRole) -> str:
    lines: list[str] = []
    for group, commands in allowed(table, role).items():
        lines += [f"{group.capitalize()}:", *(f"{spellings(command)}: {command.help}" for command in commands), ""]
    return "\n".join([*lines, "Send /help and a command name for details."])


def explain(table: Mapping[str, Command], name: str, role: AccessRole) -> str:
    command = table.get(name.removeprefix("/").removeprefix("!").lower())
    if command is None:
        known = ", ".join(sorted(table))
        fix = "Send /help to list all commands."
        raise UnknownCommand("Unknown command", found=name, allowed=known, example="/help new", fix=fix)
    return "\n".join((command.usage, command.help, f"Example: {command.example}", *_facts(command, role)))


def _facts(command: Command, role: AccessRole) -> list[str]:
    facts = {
        f"Also: {_with_slashes(*command.aliases)}": bool(command.aliases),
        "Acts at once, even during an answer.": command.urgent,
        "May ask first. Add --yes to confirm.": command.confirms,
        f"Needs the {command.role.name.lower()} role.": command.role > min(role, AccessRole.MEMBER),
    }
    return [fact for fact, holds in facts.items() if holds]
