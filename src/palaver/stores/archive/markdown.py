"""Archives as Markdown: what was said, quoted line by line so that nothing in it can pass for structure."""

import re
from collections.abc import Iterator

from palaver.domain.transcript import Entry
from palaver.stores.archive.form import Record
from palaver.stores.archive.legible import (
    facts,
    file_lines,
    heading,
    legible,
    marks,
    moment_text,
    shown_entries,
    speaker,
)

__all__ = ["markdown"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~&])")


def markdown(record: Record, *, hidden: bool = False) -> Iterator[str]:
    entries = shown_entries(record, hidden=hidden)
    yield f"# {_escaped(heading(record.session))}\n\n"
    for name, value in facts(record.session, len(entries)):
        yield f"- {name}: {_code(value)}\n"
    for entry in entries:
        yield "\n" + "\n".join(_entry(entry)) + "\n"
    yield "\n"


def _entry(entry: Entry) -> Iterator[str]:
    special = "".join(f" · {_escaped(mark)}" for mark in marks(entry))
    yield f"**{_escaped(speaker(entry))}** · {moment_text(entry.at)}{special}"
    yield ""
    if entry.text:
        yield from (f"> {line}".rstrip() for line in legible(entry.text).split("\n"))
    for line in file_lines(entry):
        yield f"> with the file {_escaped(line)}"
    for call in entry.calls:
        yield f"> calls {_code(call.name)} with {_code(call.arguments)}"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _code(text: str) -> str:
    """Between more backticks than the text itself has in a row."""
    text = " ".join(legible(text).split())
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{padding}{text}{padding}{fence}"
