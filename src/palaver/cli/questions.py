"""Questions at the terminal: asked on standard error, each with what counts where nothing is said."""

import getpass
import sys
from collections.abc import Callable
from typing import TypeVar

from palaver.cli.output import print_note
from palaver.domain.errors import InvalidInput, PalaverError
from palaver.domain.text import visible

__all__ = ["Unanswered", "ask_for", "ask_secretly", "is_somebody_there"]

T = TypeVar("T")


class Unanswered(PalaverError):
    def __init__(self) -> None:
        super().__init__("nothing was changed")


def is_somebody_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_for(question: str, usual: str, read: Callable[[str], T]) -> T:
    """What `read` makes of the answer. What it refuses is told, and asked for again."""
    return _until_right(lambda: _line(f"{visible(question)}{f' [{visible(usual)}]' if usual else ''} "), usual, read)


def ask_secretly(question: str, usual: str, read: Callable[[str], T]) -> T:
    """The same, and what is typed is not shown."""
    shown = f"{visible(question)}{f' [{visible(usual)}]' if usual else ''} "
    return _until_right(lambda: getpass.getpass(shown, sys.stderr), usual, read)


def _until_right(listen: Callable[[], str], usual: str, read: Callable[[str], T]) -> T:
    while True:
        try:
            return read(listen().strip() or usual)
        except InvalidInput as refusal:
            print_note(str(refusal))
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            raise Unanswered from None


def _line(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
