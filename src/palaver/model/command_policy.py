"""Command policy: which commands an agent can run, for whom, and which need approval.

It keeps an agent from doing by mistake what cannot be undone. It is no wall: a program can do anything that its user
can. Run commands in a sandbox if you do not trust them.
"""

import re
import shlex
import unicodedata
from collections.abc import Iterator

from palaver.model.access import AccessRole
from palaver.model.tools import ApprovalMode
from palaver.model.value import value

_STRICTNESS = {ApprovalMode.ALWAYS: 0, ApprovalMode.ASK: 1, ApprovalMode.NEVER: 2}
_OPERATORS = frozenset(";|&()\n")
_SUBSTITUTION = re.compile(r"`|\$\(|[<>]\(")
_QUOTES = re.compile(r"[\\'\"]")
_BLANKS = re.compile(r"[ \t\r]+|\$IFS|\$\{IFS\}")
MAX_LENGTH = 20_000
"""Longer lines are not looked at."""

# Every repetition is bounded, so that no text takes long.
_ANY, _WORDS = r".{0,300}", r"(?:\S+ ){0,10}"
_START = r"(?:^|[;&|(] ?|\bsudo )"
DESTRUCTIVE = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        rf"\brm (?:{_ANY} )?(?:-\w*[rf]\w*|--recursive|--force)\b",
        rf"\b(?:find\b{_ANY} -(?:delete|exec rm)|xargs\b{_ANY}\brm)\b",
        r"\b(?:shred|wipefs|fdisk|sfdisk|parted|mkswap|blkdiscard|mkfs(?:\.\w+)?)\b",
        rf"\bdd\b{_ANY}\bof=",
        r"> ?/(?:dev/(?:sd|nvme|hd|vd|xvd|mmcblk|disk|mapper|loop)|etc/)",
        r"\btee (?:-a )?/etc/",
        rf"{_START}(?:shutdown|reboot|halt|poweroff|init [06]|passwd|visudo|userdel|groupdel)\b",
        rf"\bgit {_WORDS}push\b{_ANY}(?:--force|--mirror|--delete| -f\b| \+)",
        rf"\bgit {_WORDS}(?:reset\b{_ANY}--hard|clean\b{_ANY}-\w*[fdx]|filter-branch|checkout (?:-- )?\.(?: |$))",
        rf"\bch(?:mod|own|grp)\b{_ANY} (?:-\w*r\w*|--recursive)\b",
        r"\b(?:drop|truncate) (?:table|database|schema)\b",
        r"\bdelete from \S+ ?(?:;|$)",
        rf"\b(?:kill|pkill|killall)\b{_ANY} -(?:9|kill|sigkill|s (?:9|kill|sigkill)|1)\b",
        rf"\b(?:curl|wget)\b{_ANY}\| ?(?:sudo )?(?:\w*sh|python\w*|perl|ruby|node)\b",
        rf"\bsystemctl {_WORDS}(?:stop|disable|mask|poweroff|reboot|kill)\b",
        rf"\bcrontab {_WORDS}-r\b",
        rf"\b(?:iptables|nft)\b{_ANY}(?:-f\b|flush)",
        rf"\b(?:docker|podman) {_WORDS}(?:prune|rm\b{_ANY}-\w*f|rmi|kill)\b",
        rf"\bkubectl {_WORDS}delete\b",
        rf"\bterraform {_WORDS}destroy\b",
        rf"\b(?:apt|apt-get|dnf|yum|pacman) {_WORDS}(?:remove|purge|autoremove|-r\w*)\b",
        r": ?\( ?\) ?\{.{0,20}: ?\| ?:",
        rf"\btruncate\b{_ANY}-s",
        rf"\bcryptsetup\b{_ANY}(?:erase|luksformat)",
    )
)
"""Commands that can destroy what cannot be brought back: without quotes, with single blanks, in lower case."""


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
        modes = [self._mode_of(command, role, line) for command in split_commands(line)]
        if is_destructive(line):
            modes.append(self.destructive)
        return max(modes, key=_STRICTNESS.__getitem__, default=self.default)

    def _mode_of(self, command: str, role: AccessRole, line: str) -> ApprovalMode:
        for rule in self.rules:
            if rule.roles and role not in rule.roles:
                continue
            # What a substitution runs is not known, so it is never allowed by the command around it.
            if rule.mode is ApprovalMode.ALWAYS:
                matches = _matches(command, rule.pattern) and not _SUBSTITUTION.search(line)
            else:
                matches = any(_matches(words, rule.pattern) for words in _endings(command))
            if matches:
                return rule.mode
        return self.default


def is_destructive(line: str) -> bool:
    """Tell whether a line looks as if it destroys something, however it is quoted."""
    text = unicodedata.normalize("NFKC", line.replace("\\\n", " "))
    plain = _BLANKS.sub(" ", _QUOTES.sub("", text)).lower()
    return any(pattern.search(plain) for pattern in DESTRUCTIVE)


def split_commands(line: str) -> list[str]:
    """Return the commands of a shell line, those in substitutions included, each with single spaces."""
    return [command for part in _split(line) if (command := " ".join(part))]


def _split(line: str) -> Iterator[list[str]]:
    words: list[str] = []
    try:
        lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars=";|&()\n<>")
        lexer.whitespace, lexer.whitespace_split = " \t\r", True
        lexer.commenters = ""
        tokens = list(lexer)
    except ValueError:  # an open quote
        tokens = line.replace('"', " ").replace("'", " ").split()
    for token in tokens:
        if token and set(token) <= _OPERATORS:
            yield words
            words = []
        else:
            words.append(token)
            for inner in _substituted(token):
                yield from _split(inner)
    yield words


def _substituted(token: str) -> list[str]:
    """Return what a word runs in backquotes or parentheses, if it stood in quotes."""
    return [found for pair in re.findall(r"`([^`]*)`|\$\((.*)\)", token, re.DOTALL) for found in pair if found]


def _endings(command: str) -> Iterator[str]:
    """Yield a command, and what follows each of its words: `sudo rm x` runs `rm x`."""
    words = command.split(" ")
    for start in range(min(len(words), _MAX_ENDINGS)):
        yield " ".join(words[start:])


_MAX_ENDINGS = 20


def _matches(command: str, pattern: str) -> bool:
    """Match a pattern in which only `*` is special, in linear time."""
    first, *others = pattern.split("*")
    if not others:
        return command == pattern
    *middle, last = others
    if not command.startswith(first):
        return False
    at = len(first)
    for part in middle:
        found = command.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(command) - len(last) >= at and command.endswith(last)
