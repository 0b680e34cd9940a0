"""What is said about commands to somebody who asks: only those that they may use, group by group."""

from collections.abc import Mapping

from palaver.model.access import AccessRole
from palaver.model.command import Command
from palaver.model.errors import UnknownCommand

__all__ = [
    "allowed",
    "explain",
    "grouped",
    "list_commands",
    "spellings",
]

_GROUPS = ("conversations", "transcripts", "finding", "answers", "people", "gateway")
"""In this order; others come after, by name."""


def grouped(table: Mapping[str, Command]) -> dict[str, list[Command]]:
    commands = sorted(dict.fromkeys(table.values()), key=lambda each: (_rank(each.group), each.group, each.name))
    groups: dict[str, list[Command]] = {}
    for command in commands:
        groups.setdefault(command.group, []).append(command)
    return groups


def _rank(group: str) -> int:
    return _GROUPS.index(group) if group in _GROUPS else len(_GROUPS)


def spellings(command: Command) -> str:
    return _slashed(command.name, *command.aliases)


def _slashed(*names: str) -> str:
    return ", ".join(f"/{name}" for name in names)


def allowed(table: Mapping[str, Command], role: AccessRole) -> dict[str, list[Command]]:
    """What somebody with that role may use."""
    return grouped({name: command for name, command in table.items() if command.role <= role})


def list_commands(table: Mapping[str, Command], role: AccessRole) -> str:
    lines: list[str] = []
    for group, commands in allowed(table, role).items():
        lines += [f"{group}:", *(f"{spellings(command)}: {command.help}" for command in commands), ""]
    return "\n".join([*lines, "/help and the name of one explains it."])


def explain(table: Mapping[str, Command], name: str) -> str:
    command = table.get(name.removeprefix("/").lower())
    if command is None:
        known = ", ".join(sorted(table))
        raise UnknownCommand("There is no command", found=name, allowed=known, example="/help new")
    return "\n".join((command.usage, command.help, f"for example: {command.example}", *_facts(command)))


def _facts(command: Command) -> list[str]:
    facts = {
        f"also called {_slashed(*command.aliases)}": bool(command.aliases),
        "acts at once, also while an answer is being worked on": command.urgent,
        "says what it would do, and does it with --yes": command.confirms,
        f"for people with the role {command.role.name.lower()}": command.role > AccessRole.MEMBER,
    }
    return [fact for fact, holds in facts.items() if holds]
