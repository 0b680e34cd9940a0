"""Command policy: which commands an agent can run, for whom, and which need approval.

It keeps an agent from doing by mistake what cannot be undone. It is no wall: a program can do anything that its user
can. Run commands in a sandbox if you do not trust them.

Only a line that is read surely, of plain words, can be allowed by a rule. Any other line asks, if there is a rule to
get around; and rules that ask or refuse are searched for in it loosely.
"""

import re
import unicodedata
from collections.abc import Iterator

from palaver.model.access import AccessRole
from palaver.model.destructive import DESTRUCTIVE, in_order
from palaver.model.tools import ApprovalMode
from palaver.model.value import value

_STRICTNESS = {ApprovalMode.ALWAYS: 0, ApprovalMode.ASK: 1, ApprovalMode.NEVER: 2}
MAX_LENGTH = 20_000
"""Longer lines are not looked at."""
_UNSURE = re.compile(r"[\\$`#{}<>()]|[^\S \t\n]|[\x00-\x08\x0e-\x1f\x7f]")
"""What can give the words around it another meaning."""
_TOKEN = re.compile(r"""[ \t]+|(?P<operator>[;|&\n]+)|(?P<word>(?:[^ \t\n;|&'"]|'[^'\n]*'|"[^"\n]*")+)""")
_QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
_QUOTES = re.compile(r"""\$(?=['"])|[\\'"]""")
_BLANKS = re.compile(r"(?:[ \t\r\f\v]|\$IFS|\$\{IFS\})+")
_REDIRECTION = re.compile(r"\d{0,4}(?:&>|[<>]{1,3}[&|]?) ?[^ ;|&()<>`\n]+")
_SEPARATORS = re.compile(r"[;|&\n()<>`{}]+")
_MAX_OPTIONS = 20
"""Between a program and its subcommand."""


@value
class CommandRule:
    pattern: str
    """`*` stands for anything. It is compared with each command of a line."""
    mode: ApprovalMode
    roles: frozenset[AccessRole] = frozenset()
    """For whom it holds; for everybody if it is empty."""


@value
class CommandPolicy:
    rules: tuple[CommandRule, ...] = ()
    """The first one that matches a command decides about it."""
    default: ApprovalMode = ApprovalMode.ALWAYS
    destructive: ApprovalMode = ApprovalMode.ASK

    def mode(self, line: str, role: AccessRole) -> ApprovalMode:
        """Return the strictest mode of all commands in a line. Guests never run commands."""
        if role is AccessRole.GUEST or len(line) > MAX_LENGTH:
            return ApprovalMode.NEVER
        rules, default = self._for(role)
        commands = plain_commands(line)
        if commands is None:
            limits = [rule for rule in rules if rule.mode is not ApprovalMode.ALWAYS]
            modes = [default, *([ApprovalMode.ASK] if limits else [])]
            modes += [rule.mode for rule in limits if _is_in(line, rule.pattern)]
        else:
            modes = [_mode_of(command, rules, default) for command in commands]
        if is_destructive(line):
            modes.append(self.destructive)
        return max(modes, key=_STRICTNESS.__getitem__, default=default)

    def _for(self, role: AccessRole) -> tuple[list[CommandRule], ApprovalMode]:
        """Return the rules for a role, and what holds for all other commands: a rule for all of them ends the list."""
        rules: list[CommandRule] = []
        for rule in self.rules:
            if rule.roles and role not in rule.roles:
                continue
            if rule.pattern == "*":
                return rules, rule.mode
            rules.append(rule)
        return rules, self.default


def _mode_of(command: str, rules: list[CommandRule], default: ApprovalMode) -> ApprovalMode:
    for rule in rules:
        if rule.mode is ApprovalMode.ALWAYS:
            matches = _matches(_without_quotes(command), rule.pattern)
        else:
            matches = _is_in(command, rule.pattern)
        if matches:
            return rule.mode
    return default


def is_destructive(line: str) -> bool:
    """Tell whether a line looks as if it destroys something."""
    text = unicodedata.normalize("NFKC", line.replace("\\\n", ""))
    in_one_line = _QUOTED.sub(lambda quoted: quoted[0].replace("\n", " "), text)
    lines = {part for each in (text, in_one_line) for part in _without_quotes(each).split("\n")}
    return any(in_order(each, chain) for each in lines for chain in DESTRUCTIVE)


def plain_commands(line: str) -> list[str] | None:
    """Return the commands of a line as they are written; None if that is not certain."""
    if _UNSURE.search(line):
        return None
    commands: list[list[str]] = [[]]
    at = 0
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None:  # an open quote
            return None
        if token["operator"]:
            commands.append([])
        elif token["word"]:
            commands[-1].append(token["word"])
        at = token.end()
    return [" ".join(words) for words in commands if words]


def _without_quotes(text: str) -> str:
    return _BLANKS.sub(" ", _QUOTES.sub("", text)).strip(" ")


def _is_in(line: str, pattern: str) -> bool:
    """Tell whether a line may run what a pattern names: anywhere in it, by any path and with options in between."""
    plain = _without_quotes(line.replace("\\\n", ""))
    pieces = {
        piece.strip()
        for text in (plain, _BLANKS.sub(" ", _REDIRECTION.sub(" ", plain)))
        for piece in _SEPARATORS.split(text)
    }
    return any(
        _matches(piece, pattern, at) or _matches_later(piece, pattern, at) for piece in pieces for at in _starts(piece)
    )


def _starts(text: str) -> Iterator[int]:
    """Yield where each word begins, and the name of a program at the end of its path."""
    yield from (found.start(1) for found in re.finditer(r"(?:^|[ /])([^ /])", text))


def _matches_later(text: str, pattern: str, at: int) -> bool:
    """Match `git push` with `git -C folder push`."""
    program, _, rest = pattern.partition(" ")
    after = text.find(" ", at)
    if not rest or "*" in program or after < 0 or text[at:after] != program:
        return False
    places = [after + 1]
    for place in places:  # It grows: after each option, and after its value.
        if _matches(text, rest, place):
            return True
        if text.startswith("-", place) and len(places) < _MAX_OPTIONS:
            after = text.find(" ", place) + 1
            later = 0 if text.startswith("-", after) else text.find(" ", after) + 1
            places += [each for each in (after, later) if each > place]
    return False


def _matches(text: str, pattern: str, at: int = 0) -> bool:
    """Match a pattern in which only `*` is special with a text from there on, in linear time."""
    first, *others = pattern.split("*")
    if not others:
        return len(text) - at == len(pattern) and text.endswith(pattern)
    *middle, last = others
    if not text.startswith(first, at):
        return False
    at += len(first)
    for part in middle:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(text) - len(last) >= at and text.endswith(last)
