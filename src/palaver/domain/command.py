"""Commands as text: what `/name arguments` means, and a helpful answer where it means nothing."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from palaver.domain.access import AccessRole
from palaver.domain.errors import BadArgument, UnknownCommand

__all__ = ["Arg", "ArgKind", "Command", "Invocation", "command_table", "parse_command"]


class ArgKind(StrEnum):
    WORD = "word"
    NUMBER = "number"
    REST = "rest"
    FLAG = "flag"


@dataclass(frozen=True, kw_only=True, slots=True)
class Arg:
    name: str
    kind: ArgKind = ArgKind.WORD
    required: bool = False
    choices: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        shape = "|".join(self.choices) or self.name
        shape = f"--{self.name}" if self.kind is ArgKind.FLAG else f"<{shape}>"
        return shape if self.required else f"[{shape}]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    name: str
    help: str
    example: str
    args: tuple[Arg, ...] = ()
    aliases: tuple[str, ...] = ()
    role: AccessRole = AccessRole.MEMBER
    urgent: bool = False

    @property
    def usage(self) -> str:
        return " ".join((f"/{self.name}", *(arg.usage for arg in self.args)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Invocation:
    command: Command
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    flags: frozenset[str] = frozenset()


# Letters are spelled out: with IGNORECASE the long s and the Kelvin sign would count as s and k.
_SHAPE = re.compile(r"/(?P<name>[A-Za-z][A-Za-z0-9_-]*)(?:@(?P<bot>\w+))?(?:\s+(?P<rest>.*))?", re.DOTALL)
# Phones turn two hyphens into a dash.
_FLAG = re.compile(r"(?:--|[\u2013\u2014])(?P<name>[A-Za-z][A-Za-z-]*)")
_LARGEST_NUMBER_LENGTH = 9


def command_table(*commands: Command) -> Mapping[str, Command]:
    """Every name and alias of the commands; a name used twice is a mistake in the code."""
    table: dict[str, Command] = {}
    for command in commands:
        for name in (command.name, *command.aliases):
            if table.setdefault(name, command) is not command:
                raise ValueError(f"/{name} is declared twice: {table[name].usage} and {command.usage}")
    return table


def parse_command(text: str, table: Mapping[str, Command], bot: str | None = None) -> Invocation | None:
    """The command that `text` invokes; None where it is ordinary text (`/usr/bin`) or addresses another bot."""
    found = _SHAPE.fullmatch(text.strip())
    if not found or (found["bot"] and bot and found["bot"].casefold() != bot.casefold()):
        return None
    name = found["name"].lower()
    if name not in table:
        raise _unknown(name, table)
    return _invocation(table[name], found["rest"] or "")


def _unknown(name: str, table: Mapping[str, Command]) -> UnknownCommand:
    close = difflib.get_close_matches(name, table, n=3) or sorted(table)
    examples = [table[known].example for known in ("help", *close) if known in table]
    return UnknownCommand(
        "Unknown command",
        found=f"/{name}",
        allowed=", ".join(f"/{known}" for known in close) or "ordinary text",
        example=next(iter(examples), "hello"),
    )


def _invocation(command: Command, rest: str) -> Invocation:
    flags, rest = _take_flags(command, rest)
    words: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for arg in command.args:
        if arg.kind is ArgKind.FLAG:
            continue
        value, rest = (rest, "") if arg.kind is ArgKind.REST else _take_word(rest)
        _check(command, arg, value)
        if value and arg.kind is ArgKind.NUMBER:
            numbers[arg.name] = int(value)
        elif value:
            words[arg.name] = value
    if rest:
        raise _bad(command, "has no place for", rest)
    return Invocation(command=command, words=words, numbers=numbers, flags=flags)


def _take_flags(command: Command, rest: str) -> tuple[frozenset[str], str]:
    """Flags stand before or after the other arguments; what only looks like one stays text for a REST argument."""
    declared = {arg.name for arg in command.args if arg.kind is ArgKind.FLAG}
    pieces = re.split(r"(\s+)", rest)  # Words, and the white space between each two.
    before = list(takewhile(declared.__contains__, map(_flag, pieces[::2])))
    pieces = pieces[2 * len(before) :]
    after = list(takewhile(declared.__contains__, map(_flag, pieces[::-2])))
    return frozenset(before + after), "".join(pieces[: len(pieces) - 2 * len(after)])


def _flag(word: str) -> str:
    """The name in `--name`; nothing where the word is no flag."""
    found = _FLAG.fullmatch(word)
    return found["name"].lower() if found else ""


def _take_word(rest: str) -> tuple[str, str]:
    end = r'"|\Z' if rest.startswith('"') else r"\s|\Z"
    word, tail = re.split(end, rest.removeprefix('"'), maxsplit=1)
    return word, tail.strip()


def _check(command: Command, arg: Arg, value: str) -> None:
    if not value:
        if arg.required:
            raise _bad(command, f"needs a {arg.name}, not", "")
    elif arg.kind is ArgKind.NUMBER and not (
        value.isascii() and value.isdigit() and len(value) <= _LARGEST_NUMBER_LENGTH
    ):
        raise _bad(command, f"takes a whole number as {arg.name}, not", value)
    elif arg.choices and value not in arg.choices:
        raise _bad(command, f"does not know the {arg.name}", value)


def _bad(command: Command, problem: str, found: str) -> BadArgument:
    return BadArgument(f"/{command.name} {problem}", found=found, allowed=command.usage, example=command.example)
