"""What commands print: text for people, JSON for machines, one sentence for mistakes."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["complain", "print_facts", "print_heading", "print_json", "print_line", "print_rows"]


def print_json(value: Mapping[str, object]) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_line(text: str) -> None:
    _console().print(Text(text), soft_wrap=True)


def print_heading(text: str) -> None:
    _console().print(Text(text, style="bold"), soft_wrap=True)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Names and values, aligned."""
    table = Table.grid(padding=(0, 2))
    for name, value in facts:
        table.add_row(Text(name, style="dim"), Text(value))
    _console().print(table)


def print_rows(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    _console().print(table)


def complain(sentence: str, *, as_json: bool) -> None:
    """Say what is wrong on standard error; with `--json` say it on standard output too, for the machine."""
    if as_json:
        print_json({"error": sentence})
    Console(stderr=True, highlight=False).print(Text(f"palaver: {sentence}"), soft_wrap=True)


def _console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)
