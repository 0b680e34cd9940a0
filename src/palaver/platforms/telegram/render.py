"""Markdown as Telegram shows it: plain text, and marks that say which parts of it are bold, code, a link …"""

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple
from urllib.parse import urlsplit

from rich.cells import cell_len

from palaver.model.split import Unit
from palaver.platforms.markdown.parser import read
from palaver.platforms.markdown.tree import (
    Block,
    Code,
    Fence,
    Heading,
    Inline,
    Link,
    Listing,
    Paragraph,
    Quote,
    Rule,
    Style,
    Styled,
    Table,
    Words,
    words_of,
)

__all__ = ["MOST_MARKS", "Mark", "Rendered", "render"]

MOST_MARKS = 100
"""Telegram overlooks what is beyond."""
_STYLES = {Style.BOLD: "bold", Style.ITALIC: "italic", Style.STRUCK: "strikethrough"}
_BULLET = "• "
_RULE = "———"
_STEP = "   "


class Mark(NamedTuple):
    """A part of the text, counted in UTF-16 units, and what it is to Telegram."""

    kind: str
    offset: int
    length: int
    detail: str = ""
    """The address of a link, the language of code."""


class Rendered(NamedTuple):
    text: str
    marks: tuple[Mark, ...] = ()


def render(text: str, room: int) -> Rendered:
    """At most `room` UTF-16 units. What would be longer rendered, or have too many marks, stays as it was written."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    blocks = read(text)
    for is_even in (True, False):
        shown = _Page(is_even=is_even).of(blocks)
        if shown.text.strip() and Unit.UTF16.measure(shown.text) <= room and len(shown.marks) <= MOST_MARKS:
            return shown
    return Rendered(text)


class _Open(NamedTuple):
    """A mark that is being written. Two that stand side by side are two, even if they are alike."""

    number: int
    kind: str
    detail: str = ""


_Marks = tuple[_Open, ...]


class _Page:
    """What is written so far: pieces of text, each with the marks it stands in, the outermost first."""

    def __init__(self, *, is_even: bool) -> None:
        self._is_even = is_even
        self._pieces: list[tuple[str, _Marks]] = []
        self._numbers = count()

    def of(self, blocks: Sequence[Block]) -> Rendered:
        self._blocks(blocks, (), "", "")
        return Rendered("".join(text for text, _ in self._pieces), tuple(self._marks()))

    def _marks(self) -> list[Mark]:
        """A mark ends where a piece does without it: one around code becomes two."""
        done: list[Mark] = []
        begun: dict[_Open, int] = {}
        at = 0
        for text, marks in [*self._pieces, ("", ())]:
            for each in [each for each in begun if each not in marks]:
                start = begun.pop(each)
                done.append(Mark(each.kind, start, at - start, each.detail))
            begun |= {each: at for each in marks if each not in begun}
            at += Unit.UTF16.measure(text)
        return sorted(done, key=lambda mark: (mark.offset, -mark.length))

    def _write(self, text: str, marks: _Marks) -> None:
        if text:
            self._pieces.append((text, marks))

    def _in(self, marks: _Marks, kind: str, detail: str = "") -> _Marks:
        return (*marks, _Open(next(self._numbers), kind, detail))

    # Blocks. `lead` stands before their first line, `indent` before the others.

    def _blocks(self, blocks: Sequence[Block], marks: _Marks, lead: str, indent: str, gap: str = "\n\n") -> None:
        if not blocks:
            self._write(lead.rstrip(" "), marks)
        for number, block in enumerate(blocks):
            if number:
                self._write(gap, marks)
            self._block(block, marks, indent if number else lead, indent)

    def _block(self, block: Block, marks: _Marks, lead: str, indent: str) -> None:
        match block:
            case Paragraph():
                self._line(block.inside, marks, lead, indent)
            case Heading():
                self._line(block.inside, self._in(marks, "bold"), lead, indent)
            case Fence():
                self._code(block.text, block.info, marks, lead)
            case Table():
                self._code(_grid(block, is_even=self._is_even), "", marks, lead)
            case Quote():
                self._quote(block, marks, lead, indent)
            case Listing():
                self._listing(block, marks, lead, indent)
            case Rule():
                self._write(lead + _RULE, marks)

    def _line(self, inside: Sequence[Inline], marks: _Marks, lead: str, indent: str) -> None:
        self._write(lead, tuple(each for each in marks if each.kind == "blockquote"))
        self._inlines(inside, marks, indent)

    def _code(self, text: str, language: str, marks: _Marks, lead: str) -> None:
        # What stands before it on its line is no code.
        self._write(lead.rstrip(" ") and f"{lead.rstrip(' ')}\n", marks)
        self._write(text or " ", self._in(marks, "pre", language))

    def _quote(self, quote: Quote, marks: _Marks, lead: str, indent: str) -> None:
        """A quotation in a quotation is shown as people write one."""
        if marks:
            self._blocks(quote.blocks, marks, f"{lead}> ", f"{indent}> ")
        else:
            self._write(lead, ())
            self._blocks(quote.blocks, self._in((), "blockquote"), "", indent)

    def _listing(self, listing: Listing, marks: _Marks, lead: str, indent: str) -> None:
        gap = "\n" if listing.tight else "\n\n"
        for number, item in enumerate(listing.items):
            if number:
                self._write(gap, marks)
            sign = _BULLET if listing.start is None else f"{listing.start + number}. "
            self._blocks(item, marks, f"{indent if number else lead}{sign}", indent + _STEP, gap)

    # What stands in a line

    def _inlines(self, inside: Sequence[Inline], marks: _Marks, indent: str) -> None:
        for each in inside:
            match each:
                case Words():
                    self._write(each.text.replace("\n", f"\n{indent}"), marks)
                case Code():
                    self._write(each.text, self._as_code(marks))
                case Styled():
                    self._inlines(each.inside, self._in(marks, _STYLES[each.style]), indent)
                case Link():
                    self._link(each, marks, indent)

    def _as_code(self, marks: _Marks) -> _Marks:
        """Code stands in a quotation at most, and not in a link."""
        if any(each.kind == "text_link" for each in marks):
            return marks
        return self._in(tuple(each for each in marks if each.kind == "blockquote"), "code")

    def _link(self, link: Link, marks: _Marks, indent: str) -> None:
        is_marked = _is_linked(link) and not any(each.kind == "text_link" for each in marks)
        self._inlines(link.inside, self._in(marks, "text_link", link.url) if is_marked else marks, indent)
        self._write(_beside(link, is_shown=is_marked), marks)


def _is_linked(link: Link) -> bool:
    """Telegram links to addresses on the web that have a full name, and only words."""
    try:
        address = urlsplit(link.url)
        host = address.hostname or ""
    except ValueError:
        return False
    return bool(words_of(link.inside).strip()) and address.scheme in {"http", "https"} and "." in host


def _beside(link: Link, *, is_shown: bool) -> str:
    """What of a link has to be written behind its words."""
    words, title = words_of(link.inside).strip(), f"({link.title})" if link.title else ""
    if not words:
        return " ".join(filter(None, (link.url, title)))
    address = "" if is_shown or words == link.url or not link.url else f"({link.url})"
    return "".join(f" {each}" for each in (address, title) if each)


def _flat(inside: Sequence[Inline]) -> str:
    return "".join(
        each.text
        if isinstance(each, Words | Code)
        else _flat(each.inside) + (_beside(each, is_shown=False) if isinstance(each, Link) else "")
        for each in inside
    )


def _grid(table: Table, *, is_even: bool) -> str:
    """Columns below each other, or cells beside each other where that takes too much room."""
    rows = [[_flat(cell) for cell in row] for row in table.rows]
    if not is_even:
        return "\n".join("|".join(row) for row in rows)
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = [" | ".join(_padded(cell, width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - cell_len(cell))
