"""The table of commands in the docs. `python -m tests.commands.page` writes it anew."""

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path

from palaver.commands.builtin import builtin_commands
from palaver.commands.help import grouped, spellings
from palaver.model.access import AccessRole
from palaver.model.command import Command
from palaver.store.opening import open_store

__all__ = ["PAGE", "written"]

PAGE = Path(__file__).parents[2] / "docs/commands.md"
BEGIN, END = "<!-- commands -->\n", "<!-- end of commands -->\n"


async def _table() -> Mapping[str, Command]:
    with tempfile.TemporaryDirectory() as folder:
        async with await open_store(f"{folder}/p.db") as store:
            return builtin_commands(store).table


def _lines(table: Mapping[str, Command]) -> list[str]:
    lines: list[str] = []
    for group, commands in grouped(table).items():
        lines += ["", f"### {group.capitalize()}", "", "| command | what it does | for |", "|---|---|---|"]
        lines += [_line(command) for command in commands]
    return lines


def _line(command: Command) -> str:
    others = f", also {spellings(command).partition(', ')[2]}" if command.aliases else ""
    marks = " *At once.*" if command.urgent else ""
    usage = command.usage.replace("|", "\\|")
    example = f" Example: `{command.example}`" if command.example != f"/{command.name}" else ""
    return f"| `{usage}`{others} | {command.help}.{example}{marks} | {_for(command.role)} |"


def _for(role: AccessRole) -> str:
    return "everybody" if role is AccessRole.GUEST else f"{role.name.lower()}s"


async def written(page: str) -> str:
    """The page with the table that the registry gives."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(_lines(await _table()))
    return f"{before}{BEGIN}{table}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(asyncio.run(written(PAGE.read_text())))
