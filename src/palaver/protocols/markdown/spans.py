"""Render Markdown as plain text and spans of it that are bold, code, a link and so on.

A platform shows the spans in its own way: as spans beside the text, or as marks within it (`marks`).
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple
from urllib.parse import urlsplit

from rich.cells import cell_len, set_cell_size

from palaver.model.split import Unit
from palaver.model.value import value
from palaver.protocols.markdown import tree as markdown
from palaver.protocols.markdown.tree import Style

__all__ = [
    "Layout",
    "Open",
    "Opens",
    "Piece",
    "Rendered",
    "Span",
    "align",
    "is_web_link",
    "to_pieces",
    "to_plain",
    "to_spans",
]

_RULE = "———"
_STEP = "   "


class Span(NamedTuple):
    """A span of the text, in UTF-16 units."""

    kind: Style
    offset: int
    length: int
    detail: str = ""
    """The URL of a link, the language of code."""


class Rendered(NamedTuple):
    text: str
    spans: tuple[Span, ...] = ()


def is_web_link(link: markdown.Link) -> bool:
    """Return whether it is a web address with a full host name, around some text."""
    try:
        address = urlsplit(link.url)
        host = address.hostname or ""
    except ValueError:
        return False
    return bool(markdown.text_of(link.inside).strip()) and address.scheme in {"http", "https"} and "." in host


@value
class Layout:
    """What a platform can show. It writes the rest as text."""

    is_linked: Callable[[markdown.Link], bool] = lambda _: False
    """Whether the platform shows a link. The URL of any other is written behind its text."""
    has_quotes: bool = False
    """It shows a quote, but none within another. Otherwise > is written before each line."""
    is_even: bool = True
    """Whether to align the columns of tables, which takes room."""
    bullet: str = "• "


def to_spans(text: str, layout: Layout) -> Rendered:
    pieces = to_pieces(text, layout)
    return Rendered("".join(piece.text for piece in pieces), tuple(_spans(pieces)))


def to_plain(text: str, room: int | None = None, unit: Unit = Unit.CODE_POINTS) -> str:
    """Return the text without formatting; as written if nothing is left of it, or if it gets longer than `room`."""
    shown = to_spans(text, Layout(is_even=False)).text.strip()
    return shown if shown and (room is None or unit.measure(shown) <= room) else text


class Open(NamedTuple):
    """An open span. The number keeps equal neighbours apart."""

    number: int
    kind: Style
    detail: str = ""


Opens = tuple[Open, ...]
"""The outermost first."""


class Piece(NamedTuple):
    text: str
    opens: Opens
    is_content: bool = True
    """It was written by the author, not added as a bullet, an indent or a line break between blocks."""


def to_pieces(text: str, layout: Layout) -> Sequence[Piece]:
    page = _Page(layout)
    page.blocks(markdown.parse_markdown(text), (), "", "")
    return page.pieces


def _spans(pieces: Sequence[Piece]) -> list[Span]:
    """Close a span at the first piece without it: one around code becomes two."""
    done: list[Span] = []
    begun: dict[Open, int] = {}
    at = 0
    for text, opens, _ in [*pieces, Piece("", ())]:
        for each in [each for each in begun if each not in opens]:
            start = begun.pop(each)
            done.append(Span(each.kind, start, at - start, each.detail))
        begun |= {each: at for each in opens if each not in begun}
        at += Unit.UTF16.measure(text)
    return sorted(done, key=lambda span: (span.offset, -span.length))


class _Page:
    """Collects pieces of text, each with its open spans."""

    def __init__(self, layout: Layout) -> None:
        self.pieces: list[Piece] = []
        self._layout = layout
        self._numbers = count()

    def _write(self, text: str, opens: Opens, *, is_content: bool = False) -> None:
        if text:
            self.pieces.append(Piece(text, opens, is_content))

    def _in(self, opens: Opens, kind: Style, detail: str = "") -> Opens:
        return (*opens, Open(next(self._numbers), kind, detail))

    # Blocks. `lead` goes before their first line, `indent` before the others.

    def blocks(self, blocks: Sequence[markdown.Block], opens: Opens, lead: str, indent: str, gap: str = "\n\n") -> None:
        if not blocks:
            self._write(lead.rstrip(" "), opens)
        for number, block in enumerate(blocks):
            if number:
                self._write(gap, opens)
            self._block(block, opens, indent if number else lead, indent)

    def _block(self, block: markdown.Block, opens: Opens, lead: str, indent: str) -> None:
        match block:
            case markdown.Paragraph():
                self._paragraph(block.inside, opens, lead, indent)
            case markdown.Heading():
                self._paragraph(block.inside, self._in(opens, Style.BOLD), lead, indent)
            case markdown.CodeBlock():
                self._code(block.text, block.info, opens, lead)
            case markdown.Table():
                self._code(align(block, is_even=self._layout.is_even), "", opens, lead)
            case markdown.Quote():
                self._quote(block, opens, lead, indent)
            case markdown.List():
                self._listing(block, opens, lead, indent)
            case markdown.Rule():
                self._write(lead + _RULE, opens)

    def _paragraph(self, inside: Sequence[markdown.Inline], opens: Opens, lead: str, indent: str) -> None:
        self._write(lead, _quotes(opens))
        self._inlines(inside, opens, indent)

    def _code(self, text: str, language: str, opens: Opens, lead: str) -> None:
        # Text before it on the line is not code.
        self._write(lead.rstrip(" ") and f"{lead.rstrip(' ')}\n", opens)
        self._write(text or " ", self._in(opens, Style.CODE_BLOCK, language), is_content=True)

    def _quote(self, quote: markdown.Quote, opens: Opens, lead: str, indent: str) -> None:
        if opens or not self._layout.has_quotes:
            self.blocks(quote.blocks, opens, f"{lead}> ", f"{indent}> ")
        else:
            self._write(lead, ())
            self.blocks(quote.blocks, self._in((), Style.QUOTE), "", indent)

    def _listing(self, listing: markdown.List, opens: Opens, lead: str, indent: str) -> None:
        gap = "\n" if listing.tight else "\n\n"
        for number, item in enumerate(listing.items):
            if number:
                self._write(gap, opens)
            sign = self._layout.bullet if listing.start is None else f"{listing.start + number}. "
            self.blocks(item, opens, f"{indent if number else lead}{sign}", indent + _STEP, gap)

    # Inline

    def _inlines(self, inside: Sequence[markdown.Inline], opens: Opens, indent: str) -> None:
        for each in inside:
            match each:
                case markdown.Text():
                    self._text(each.text, opens, indent)
                case markdown.Code():
                    self._write(each.text, self._as_code(opens), is_content=True)
                case markdown.Styled():
                    self._inlines(each.inside, self._in(opens, each.style), indent)
                case markdown.Link():
                    self._link(each, opens, indent)

    def _text(self, text: str, opens: Opens, indent: str) -> None:
        for number, line in enumerate(text.split("\n")):
            if number:
                self._write(f"\n{indent}", opens)
            self._write(line, opens, is_content=True)

    def _as_code(self, opens: Opens) -> Opens:
        """Code can be in a quote, but not in a link or a style."""
        if any(each.kind is Style.LINK for each in opens):
            return opens
        return self._in(_quotes(opens), Style.CODE)

    def _link(self, link: markdown.Link, opens: Opens, indent: str) -> None:
        is_marked = self._layout.is_linked(link) and not any(each.kind is Style.LINK for each in opens)
        self._inlines(link.inside, self._in(opens, Style.LINK, link.url) if is_marked else opens, indent)
        self._write(_beside(link, is_shown=is_marked), opens, is_content=True)


def _quotes(opens: Opens) -> Opens:
    return tuple(each for each in opens if each.kind is Style.QUOTE)


def _beside(link: markdown.Link, *, is_shown: bool) -> str:
    """Return what to write behind the text of a link: the URL if it is not linked, and the title."""
    words, title = markdown.text_of(link.inside).strip(), f"({link.title})" if link.title else ""
    if not words:
        return " ".join(filter(None, (link.url, title)))
    address = "" if is_shown or words == link.url or not link.url else f"({link.url})"
    return "".join(f" {each}" for each in (address, title) if each)


def _flat(inside: Sequence[markdown.Inline]) -> str:
    return "".join(
        each.text
        if isinstance(each, markdown.Text | markdown.Code)
        else _flat(each.inside) + (_beside(each, is_shown=False) if isinstance(each, markdown.Link) else "")
        for each in inside
    )


def align(table: markdown.Table, *, is_even: bool = True) -> str:
    """Align the columns, or only separate the cells if that takes too much room."""
    rows = [[_flat(cell) for cell in row] for row in table.rows]
    if not is_even:
        return "\n".join("|".join(row) for row in rows)
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = [" | ".join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)
