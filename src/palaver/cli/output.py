"""Print text, tables, JSON and errors."""

import json
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from typing import TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from palaver.model.errors import BadArgument
from palaver.model.local_time import format_instant
from palaver.model.text import escape_invisible

FAILED = 1
WRONG = 2
"""The input, the configuration or the store is wrong: trying again does not help."""
INTERNAL = 70
TEMPORARY = 75


# Characters that could trick a terminal or cannot be encoded are escaped.
_UNPRINTABLE = re.compile(
    "[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\U000e0000-\U000e007f]"
)


def print_json(value: Mapping[str, object]) -> None:
    is_utf = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=not is_utf, indent=2, default=_json_value)
    print(_UNPRINTABLE.sub(lambda found: json.dumps(found[0])[1:-1], text))


def _json_value(value: object) -> object:
    if isinstance(value, datetime):
        return format_instant(value)
    return value.value if isinstance(value, Enum) else str(value)


def pick(value: object, names: str) -> dict[str, object]:
    """Return the named attributes, for JSON."""
    return {name: getattr(value, name) for name in names.split()}


def print_result(fields: Mapping[str, object], *lines: str, as_json: bool) -> None:
    """Print the result of a command as JSON or as text."""
    if as_json:
        print_json(fields)
    for line in () if as_json else lines:
        print_line(line)


def print_line(text: str) -> None:
    _console().print(Text(escape_invisible(text)), soft_wrap=True)


def print_text(*parts: tuple[str, str]) -> None:
    """Print styled parts; the caller has escaped them."""
    _console().print(Text.assemble(*parts), soft_wrap=True)


def print_note(sentence: str) -> None:
    """Print a remark on standard error."""
    Console(stderr=True, highlight=False).print(Text(escape_invisible(sentence), style="dim"), soft_wrap=True)


def print_heading(text: str) -> None:
    _console().print(Text(escape_invisible(text), style="bold"), soft_wrap=True)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and values, aligned."""
    table = Table.grid(padding=(0, 2))
    for name, value in facts:
        table.add_row(Text(name, style="dim"), Text(escape_invisible(value)))
    _print_table(table)


def print_found(
    fields: Mapping[str, object], titles: Sequence[str], rows: Sequence[Sequence[str]], *, as_json: bool
) -> None:
    """Print what was found as JSON or as a table. Without rows there is no table: `ask` has said so."""
    if as_json:
        print_json(fields)
    elif rows:
        print_rows(titles, rows)


def print_rows(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(escape_invisible(value)) for value in row))
    _print_table(table)


def print_list(columns: Mapping[str, str], rows: Iterable[Sequence[str]]) -> None:
    """Print one line per row; shorten the last column, then the second, to fit."""
    texts = [[Text(escape_invisible(value)) for value in row] for row in rows]
    titles = list(columns)
    widths = [max([len(title), *(row[at].cell_len for row in texts)]) + 2 for at, title in enumerate(titles)]
    for at in (len(titles) - 1, 1):
        excess = max(0, sum(widths) - 2 - _console().width)
        widths[at] = max(len(titles[at]) + 2, widths[at] - excess)
        for row in texts:
            row[at].truncate(widths[at] - 2, overflow="ellipsis")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for position, (title, style) in enumerate(columns.items()):
        table.add_column(
            title, style=style, no_wrap=True, overflow="ellipsis", min_width=len(title) if position else 26
        )
    for row in texts:
        table.add_row(*row)
    _print_table(table)


def print_verdict(name: str, found: str, *, ok: bool, is_warning: bool = False, fix: str = "") -> None:
    """Print the result of a check and, if it failed, how to fix it."""
    mark = ("warn  ", "yellow") if is_warning else ("ok    ", "green") if ok else ("error ", "bold red")
    print_text(mark, (f"{escape_invisible(name)}: ", "bold"), (escape_invisible(found), ""))
    if fix:
        print_text((f"      {escape_invisible(fix)}", "dim"))


def confirmed(question: str) -> bool:
    """Ask on standard error, so that the answer on standard output stays clean."""
    print(f"{escape_invisible(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def confirm(question: str, example: str, *, yes: bool) -> None:
    """Ask first, and exit if the answer is no; without a terminal, require --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadArgument(
            "Standard input is not a terminal, so nobody can confirm.",
            found="",
            allowed="--yes to do it without asking",
            example=f"{example.removesuffix(' --dry-run').removesuffix(' --yes')} --yes",
        )
    if not confirmed(question):
        raise typer.Exit(1)


@contextmanager
def progress(what: str) -> Generator[Callable[[int], None]]:
    """Show a count on standard error if it is a terminal, until the work is done or fails."""
    with progress_line() as show:
        yield lambda count: show(f"{count} {what} ")


@contextmanager
def progress_line() -> Generator[Callable[[str], None]]:
    def show(text: str) -> None:
        if is_watched:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    is_watched = sys.stderr.isatty()
    try:
        yield show
    finally:
        show("")


def print_error(sentence: str, *, as_json: bool) -> None:
    """Print an error on standard error; with `--json` also as JSON on standard output."""
    lines = "\n".join(map(escape_invisible, sentence.split("\n")))
    try:
        Console(stderr=True, highlight=False).print(Text(f"palaver: {lines}"), soft_wrap=True)
    except OSError:
        discard(sys.stderr)  # the exit code still tells
    if as_json:
        print_json({"error": sentence})


def discard(stream: TextIO) -> None:
    """Redirect standard output or error to /dev/null, so that flushing at exit cannot fail again.

    Otherwise Python's exit code for that, 120, would replace the command's own.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _print_table(table: Table) -> None:
    """Print a table without trailing spaces."""
    console = _console()
    with console.capture() as printed:
        console.print(table)
    print(*(line.rstrip() for line in printed.get().split("\n")), sep="\n", end="")


def _console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)
