"""Ask questions in the terminal: from numbered lists, with help, and again until the answer is valid."""

import getpass
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TypeVar

from palaver.model.errors import BadArgument, InvalidInput, PalaverError
from palaver.model.text import escape_invisible
from palaver.model.value import value

T = TypeVar("T")

HELP = "?"
_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no"})
_MAX_WIDTH = 100
_MIN_COLUMN = 26
_MANY = 12
"""A longer list is shown in columns."""


class Cancelled(PalaverError):
    """The person left, or nobody is there any more."""

    def __init__(self, why: str = "", kept: str = "Nothing was changed.") -> None:
        super().__init__(f"{why} {kept}".strip())


@value(kw_only=False)
class Choice:
    name: str
    """What the program calls it; it can be typed instead of the number."""
    title: str


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def say(text: str, indent: str = "", first: str = "") -> None:
    """Print on standard error, with whole words within the width of the terminal."""
    for line in text.split("\n"):
        safe = escape_invisible(line)
        wrapped = textwrap.wrap(
            safe,
            _width(),
            initial_indent=first or indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        print("\n".join(wrapped) or indent, file=sys.stderr)
        first = ""


def say_steps(steps: Sequence[str]) -> None:
    """Print what to do: a list with numbers, if there is more than one step."""
    for number, step in enumerate(steps, 1):
        if len(steps) == 1:
            say(step)
        else:
            say(step, indent="     ", first=f"  {number}. ")


def ask_for(question: str, usual: str, read: Callable[[str], T], *, help: str = "", secret: bool = False) -> T:  # noqa: A002
    """Ask until `read` accepts the answer, and return its result. A secret is not shown while it is typed."""
    shown = f"{escape_invisible(question)}{f' [{escape_invisible(usual)}]' if usual else ''}"
    *before, prompt = textwrap.wrap(shown, _width() - 1, break_long_words=False, break_on_hyphens=False)
    while True:
        for line in before:
            print(line, file=sys.stderr)
        try:
            said = _hidden(f"{prompt} ") if secret else _line(f"{prompt} ")
        except KeyboardInterrupt:
            print(file=sys.stderr)
            raise Cancelled from None
        if said.strip() == HELP:
            say(f"{help or 'There is no more to say about this.'} Press Ctrl-C to stop.")
            continue
        try:
            return read(said.strip() or usual)
        except InvalidInput as refusal:
            say(str(refusal))


def choose(
    question: str,
    choices: Sequence[Choice],
    usual: str,
    *,
    help: str,  # noqa: A002
    other: str = "",
    accepts: Callable[[str], bool] = lambda _: False,
) -> str:
    """Show a numbered list, and return the name of the choice or another answer: `other` says which it accepts."""
    say(question)
    _show(choices)
    numbers = [f"a number from 1 to {len(choices)}", "a name"] if choices else []
    *first, last = [*numbers, other] if other else numbers
    allowed = ", ".join([*first, f"or {last}" if first else last])

    def read(said: str) -> str:
        if found := _find(said, choices):
            return found.name
        if accepts(said):
            return said
        close = get_close_matches(said.lower(), [each.name.lower() for each in choices], n=1) if said else []
        fix = f"Did you mean {close[0]}?" if close else None
        example = choices[0].name if choices else ""
        raise BadArgument("There is no choice", found=said, allowed=allowed, example=example, fix=fix)

    return ask_for("Number or name" if choices else ">", usual, read, help=f"{help} Enter {allowed}.".strip())


def agrees(question: str, *, usual: bool) -> bool:
    def read(said: str) -> bool:
        if not said:
            return usual
        if said.lower() not in _YES | _NO:
            raise BadArgument("This is neither yes nor no:", found=said, allowed="y or n", example="y")
        return said.lower() in _YES

    marks = "Y/n" if usual else "y/N"
    return ask_for(f"{question} [{marks}]", "", read, help="Enter y for yes or n for no.")


def _find(said: str, choices: Sequence[Choice]) -> Choice | None:
    wanted = said.lower()
    if said.isascii() and said.isdecimal() and 1 <= int(said) <= len(choices):
        return choices[int(said) - 1]
    for each in choices:
        if wanted in {each.name.lower(), each.title.lower()}:
            return each
    close = [each for each in choices if wanted and each.title.lower().startswith(wanted)]
    return close[0] if len(close) == 1 else None


def _show(choices: Sequence[Choice]) -> None:
    if not choices:
        return
    lines = [f"{number:>3}  {escape_invisible(each.title)}" for number, each in enumerate(choices, 1)]
    wide = max(_MIN_COLUMN, max(map(len, lines)) + 3)
    columns = max(1, _width() // wide) if len(choices) > _MANY else 1
    rows = -(-len(lines) // columns)
    for row in range(rows):
        print("".join(f"{line:<{wide}}" for line in lines[row::rows]).rstrip(), file=sys.stderr)


def _width() -> int:
    return min(_MAX_WIDTH, max(_MIN_COLUMN, shutil.get_terminal_size().columns))


def _hidden(prompt: str) -> str:
    try:
        return getpass.getpass(prompt, sys.stderr)
    except EOFError:
        raise _ended() from None


def _line(prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise _ended()
    return line


def _ended() -> Cancelled:
    print(file=sys.stderr)
    return Cancelled("The input ended before the questions did.")
