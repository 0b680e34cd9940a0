"""Parse chat commands: `/name arguments`, with helpful errors."""

import difflib
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from itertools import count

from palaver.model.access import AccessRole
from palaver.model.errors import BadArgument, UnknownCommand
from palaver.model.turn import BusyMode, Cause, Inbound
from palaver.model.value import value


class ArgKind(StrEnum):
    WORD = "word"
    NUMBER = "number"
    REST = "rest"
    FLAG = "flag"
    """`--name`, before or after the other arguments."""
    COUNT = "count"
    """`--name N`, likewise."""
    OPTION = "option"
    """`--name word`, likewise."""


@value
class Arg:
    name: str
    kind: ArgKind = ArgKind.WORD
    required: bool = False
    choices: tuple[str, ...] = ()
    hint: str = ""
    """Shown in the usage instead of the name."""
    synonyms: tuple[tuple[str, str], ...] = ()
    """Words that people try, each with the choice that they mean."""

    @property
    def usage(self) -> str:
        shape = "n" if self.kind is ArgKind.COUNT else "|".join(self.choices) or self.hint or self.name
        value = "" if self.kind is ArgKind.FLAG else f"<{shape}>"
        usage = f"--{self.name} {value}".rstrip() if self.kind in _OPTIONS else value
        return usage if self.required else f"[{usage}]"


_OPTIONS = {ArgKind.FLAG: 1, ArgKind.COUNT: 2, ArgKind.OPTION: 2}
"""How many words each kind takes."""
_NUMBERS = {ArgKind.NUMBER, ArgKind.COUNT}
YES = Arg(name="yes", kind=ArgKind.FLAG)
"""Confirms a command that otherwise only shows what it would do."""


@value
class Command:
    name: str
    help: str
    example: str
    args: tuple[Arg, ...] = ()
    aliases: tuple[str, ...] = ()
    role: AccessRole = AccessRole.MEMBER
    for_all: frozenset[str] = frozenset()
    """With these words first it needs no role: people can always see and stop what is theirs."""
    urgent: bool = False
    group: str = "more"
    """The heading in lists."""
    remote: bool = False
    """Can be sent from outside the chat, for example the dashboard: it is about the conversation, not the sender."""
    busy_mode: BusyMode | None = None
    """Set for commands that send their text as a message with this busy mode."""

    def __post_init__(self) -> None:
        for name in (self.name, *self.aliases):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a command name: use lowercase letters, digits, - and _")

    @property
    def confirms(self) -> bool:
        """Return whether it only shows what it would do without `--yes`."""
        return YES in self.args

    @property
    def usage(self) -> str:
        return " ".join((f"/{self.name}", *(arg.usage for arg in self.args)))


@value
class Invocation:
    command: Command
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    flags: frozenset[str] = frozenset()

    @property
    def is_for_all(self) -> bool:
        """Return whether it needs no role. Without any word it does what the first of its choices names."""
        first = next(iter(self.command.args), None)
        return first is not None and self.words.get(first.name, next(iter(first.choices), "")) in self.command.for_all


_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
# Letters are spelled out: with IGNORECASE the long s and the Kelvin sign would count as s and k.
_SHAPE = re.compile(r"/(?P<name>[A-Za-z][A-Za-z0-9_-]*)(?:@\w+)?(?:\s+(?P<rest>.*))?", re.DOTALL)
# Phones turn two hyphens into a dash.
_FLAG = re.compile(r"(?:--|[\u2013\u2014])(?P<name>[A-Za-z][A-Za-z-]*)")
_CLAUSE_END = re.compile(r"(?<=[.;]) ")
_NAMED = re.compile(r"(?<![^\s(])/([a-z][a-z0-9_-]*)(?![\w/]|\.\w)")
# Invisible characters that nothing people write keeps in an answer.
_SAID, _END_OF_SAID = "\ufff9", "\ufffb"
_MARKS = re.compile(f"[{_SAID}{_END_OF_SAID}]")
_MARKED = re.compile(f"{_SAID}.*?{_END_OF_SAID}", re.DOTALL)
_LARGEST_NUMBER, _MAX_DIGITS = 999_999_999, 10
_LONGEST_GUESS = 64


def command_table(*commands: Command) -> Mapping[str, Command]:
    """Map every name and alias to its command; raise ValueError if a name is used twice."""
    table: dict[str, Command] = {}
    for command in commands:
        for name in (command.name, *command.aliases):
            if table.setdefault(name, command) is not command:
                raise ValueError(f"/{name} is declared twice: {table[name].usage} and {command.usage}")
    return table


def can_use(
    command: str,
    role: AccessRole | None,
    roles: Mapping[str, AccessRole],
    *,
    needed: AccessRole = AccessRole.MEMBER,
) -> bool:
    """Tell whether a role can use a command that `needed` can use unless `roles` says otherwise."""
    return (role or AccessRole.GUEST) >= roles.get(command, needed)


def can_answer(role: AccessRole | None, roles: Mapping[str, AccessRole]) -> bool:
    """Tell whether a role can answer what the agent asks it; guests can."""
    return can_use("answer", role, roles, needed=AccessRole.GUEST)


def name_usable(text: str, role: AccessRole | None, roles: Mapping[str, AccessRole]) -> str:
    """Leave out of a notice what names commands that its reader cannot use; words of people stay as they are."""
    if not roles and role and role >= AccessRole.MEMBER:
        return text
    # Put a number for what people said: it can contain anything, and several lines.
    said, numbers = _MARKED.findall(text), count()
    lines = _MARKED.sub(lambda _: f"{_SAID}{next(numbers)}{_END_OF_SAID}", text).split("\n")
    usable = [(line, _usable_clauses(line, role, roles)) for line in lines]
    kept = "\n".join(rest for line, rest in usable if rest or not line)
    return _MARKED.sub(lambda found: said[int(found[0][1:-1])], kept)


def _usable_clauses(line: str, role: AccessRole | None, roles: Mapping[str, AccessRole]) -> str:
    parts = _CLAUSE_END.split(line)
    kept: list[str] = []
    is_last = False
    for part in reversed(parts):
        if is_usable := all(can_use(name, role, roles) for name in _NAMED.findall(part)):
            kept.append(f"{part[:-1]}." if is_last and part.endswith(";") else part)
        is_last = not is_usable
    return " ".join(reversed(kept))


def usable_answer(answer: str, role: AccessRole | None, table: Mapping[str, Command]) -> str:
    """Return an answer without what names commands that its reader cannot use, if that leaves something."""
    others = dict.fromkeys(_NAMED.findall(answer), AccessRole.GUEST)  # such as the folder /srv
    return name_usable(answer, role, others | {name: command.role for name, command in table.items()}) or answer


def with_roles(table: Mapping[str, Command], roles: Mapping[str, AccessRole]) -> Mapping[str, Command]:
    """Return the table with other roles for some commands."""
    if not roles:
        return table
    return {name: replace(each, role=roles.get(each.name, each.role)) for name, each in table.items()}


def parse_command(text: str, table: Mapping[str, Command], *, has_files: bool = False) -> Invocation | None:
    """Parse `text`, with or without the name of a bot (`/new@palaver_bot`); return None for text (`/usr/bin`).

    A command that sends its text as a message needs none beside files.
    """
    found = _SHAPE.fullmatch(text.strip())
    if not found:
        return None
    name = found["name"].lower()
    if name not in table:
        raise _unknown(name, table)
    command = table[name]
    if has_files and command.busy_mode and not found["rest"]:
        return Invocation(command=command)
    return _invocation(command, found["rest"] or "")


def with_slash(text: str, table: Mapping[str, Command]) -> str:
    """Return `!help` as `/help`; leave text alone that is no known command."""
    command = f"/{text.strip().removeprefix('!')}"
    found = _SHAPE.fullmatch(command) if text.strip().startswith("!") else None
    return command if found and found["name"].lower() in table else text


def as_said(text: str) -> str:
    """Mark words of people inside an answer of the gateway: `with_bang` keeps them as they are, and drops the marks."""
    return f"{_SAID}{_MARKS.sub('', text)}{_END_OF_SAID}"


def with_bang(text: str, names: Container[str]) -> str:
    """Return a notice with `!help` for `/help`, as people type it where clients keep `/` for themselves."""

    def rewrite(part: str) -> str:
        return _NAMED.sub(lambda found: f"!{found[1]}" if found[1] in names else found[0], part)

    # Every other part is what people said. The pattern of a name looks at the character before it.
    parts = _MARKS.split(text)
    return "".join(part if index % 2 else rewrite(part) for index, part in enumerate(parts))


def is_command(inbound: Inbound) -> bool:
    """Tell whether a message is a command, valid or not.

    Only people give commands, only when they speak to the agent, and never by an edit.
    """
    is_message = inbound.busy or inbound.plain or inbound.cause is not Cause.HUMAN or inbound.observed
    return not is_message and inbound.revision is None and _SHAPE.fullmatch(inbound.text.strip()) is not None


def runs_alone(inbound: Inbound) -> bool:
    """Tell whether a message is done in one step instead of answered by a turn."""
    return inbound.revision is not None or is_command(inbound)


def _unknown(name: str, table: Mapping[str, Command]) -> UnknownCommand:
    close = difflib.get_close_matches(name[:_LONGEST_GUESS], table, n=3)
    guesses = " or ".join(f"/{known}" for known in close)
    return UnknownCommand(
        "Unknown command",
        found=f"/{name}",
        allowed=guesses or ("a command that /help lists" if table else "ordinary text"),
        example=next((table[known].example for known in (*close, "help") if known in table), "hello"),
        fix=f"Did you mean {guesses}?" if guesses else "Send /help to list all commands." if table else None,
    )


def _invocation(command: Command, rest: str) -> Invocation:
    options, rest = _take_options(command, rest)
    words: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for arg in command.args:
        if arg.kind in _OPTIONS and (arg.kind is ArgKind.FLAG or arg.name not in options):
            continue
        if arg.kind in _OPTIONS:
            value = options[arg.name]
        else:
            value, rest = (rest, "") if arg.kind is ArgKind.REST else _take_word(rest)
        _check(command, arg, value)
        if value and arg.kind in _NUMBERS:
            numbers[arg.name] = min(int(value.lstrip("0")[:_MAX_DIGITS] or "0"), _LARGEST_NUMBER)
        elif value:
            words[arg.name] = value
    if rest:
        raise _bad(command, "does not take" if command.args else "takes no arguments.", rest)
    flags = frozenset(arg.name for arg in command.args if arg.kind is ArgKind.FLAG and arg.name in options)
    return Invocation(command=command, words=words, numbers=numbers, flags=flags)


def _take_options(command: Command, rest: str) -> tuple[dict[str, str], str]:
    """Take options before and after the other arguments; in the middle and after `--` they are text."""
    if command.busy_mode:
        return {}, rest
    lengths = {arg.name: _OPTIONS[arg.kind] for arg in command.args if arg.kind in _OPTIONS}
    pieces = re.split(r"(\s+)", rest)  # Words and the white space between them.
    taken: dict[str, str] = {}
    start, end = 0, len(pieces)
    ahead, behind = dict(lengths), dict(lengths)
    while start < end and (length := ahead.pop(_flag(pieces[start]), 0)):
        taken[_flag(pieces[start])] = " ".join(pieces[start + 2 : start + 2 * length : 2])
        start += 2 * length
    if pieces[start:end][:1] == ["--"]:
        return taken, "".join(pieces[start + 2 :])
    while (last := _last_option(pieces, start, end, behind)) is not None:
        taken[_flag(pieces[last])] = " ".join(pieces[last + 2 : end : 2])
        del behind[_flag(pieces[last])]
        end = last - 1
    _refuse_unknown(command, pieces[start : max(start, end) : 2], lengths)
    return taken, "".join(pieces[start : max(start, end)])


def _refuse_unknown(command: Command, words: Sequence[str], lengths: Mapping[str, int]) -> None:
    """Raise for an unknown option where options are allowed."""
    edges = (*words[:1], *words[-max(lengths.values(), default=1) :])
    for word in edges:
        if word.startswith("--") and _flag(word) and _flag(word) not in lengths:
            raise _no_option(command, word)


def _no_option(command: Command, word: str) -> BadArgument:
    problem = f"/{command.name} has no option"
    if all(arg.kind is not ArgKind.REST for arg in command.args):
        return BadArgument(problem, found=word, allowed=command.usage, example=command.example)
    allowed = f"{command.usage}, with -- before text that starts with --"
    return BadArgument(problem, found=word, allowed=allowed, example=f"/{command.name} -- --text")


def _last_option(pieces: Sequence[str], start: int, end: int, lengths: Mapping[str, int]) -> int | None:
    """Return where the last option begins; one without its value stands alone."""
    places = ((end + 1 - 2 * length, length) for length in (1, 2))
    return next((at for at, length in places if at >= start and lengths.get(_flag(pieces[at]), 0) >= length), None)


def _flag(word: str) -> str:
    """Return the name in `--name`, or "" if the word is no flag."""
    found = _FLAG.fullmatch(word)
    return found["name"].lower() if found else ""


def _take_word(rest: str) -> tuple[str, str]:
    end = r'"|\Z' if rest.startswith('"') else r"\s|\Z"
    word, tail = re.split(end, rest.removeprefix('"'), maxsplit=1)
    return word, tail.strip()


def _check(command: Command, arg: Arg, value: str) -> None:
    if not value and arg.kind not in _OPTIONS:
        if arg.required:
            raise _bad(command, f"needs <{arg.name}>.", "")
    elif not value and arg.kind is ArgKind.OPTION:
        raise _bad(command, f"needs a value after --{arg.name}.", "")
    elif arg.kind in _NUMBERS and not (value.isascii() and value.isdigit()):
        raise _bad(command, f"needs a whole number for {arg.name}, not", value)
    elif arg.choices and value not in arg.choices:
        option = f" after --{arg.name}" if arg.kind is ArgKind.OPTION else ""
        meant = dict(arg.synonyms).get(value) or next(
            iter(difflib.get_close_matches(value[:_LONGEST_GUESS], arg.choices)), ""
        )
        dashes = f"--{arg.name} " if option else ""
        fix = f"Did you mean /{command.name} {dashes}{meant}?" if meant else None
        raise _bad(command, f"does not take {{found}}{option}", value, fix=fix)


def _bad(command: Command, problem: str, found: str, *, fix: str | None = None) -> BadArgument:
    return BadArgument(
        f"/{command.name} {problem}",
        found=found,
        allowed=command.usage,
        example=command.example,
        fix=fix if command.args else "",
    )
