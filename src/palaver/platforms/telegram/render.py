"""Render Markdown for Telegram: plain text with entities for bold, code, links and so on."""

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple
from urllib.parse import urlsplit

from rich.cells import cell_len, set_cell_size

from palaver.platforms import markdown
from palaver.protocols import Unit

MAX_ENTITIES = 100
"""Telegram ignores further ones."""
_STYLES = {markdown.Style.BOLD: "bold", markdown.Style.ITALIC: "italic", markdown.Style.STRUCK: "strikethrough"}
_BULLET = "• "
_RULE = "———"
_STEP = "   "


class Entity(NamedTuple):
    """An entity: a span of the text in UTF-16 units and its kind."""

    kind: str
    offset: int
    length: int
    detail: str = ""
    """The URL of a link, the language of code."""


class Rendered(NamedTuple):
    text: str
    entities: tuple[Entity, ...] = ()


def render(text: str, room: int) -> Rendered:
    """Render at most `room` UTF-16 units; return the text unrendered if it gets longer or has too many entities."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    blocks = markdown.parse_markdown(text)
    for is_even in (True, False):
        shown = _Page(is_even=is_even).of(blocks)
        if shown.text.strip() and Unit.UTF16.measure(shown.text) <= room and len(shown.entities) <= MAX_ENTITIES:
            return shown
    return Rendered(text)


class _OpenEntity(NamedTuple):
    """An open entity. The number keeps equal neighbours apart."""

    number: int
    kind: str
    detail: str = ""


_Entities = tuple[_OpenEntity, ...]


class _Page:
    """Collects pieces of text, each with its open entities, the outermost first."""

    def __init__(self, *, is_even: bool) -> None:
        self._is_even = is_even
        self._pieces: list[tuple[str, _Entities]] = []
        self._numbers = count()

    def of(self, blocks: Sequence[markdown.Block]) -> Rendered:
        self._blocks(blocks, (), "", "")
        return Rendered("".join(text for text, _ in self._pieces), tuple(self._entities()))

    def _entities(self) -> list[Entity]:
        """Close an entity at the first piece without it: one around code becomes two."""
        done: list[Entity] = []
        begun: dict[_OpenEntity, int] = {}
        at = 0
        for text, entities in [*self._pieces, ("", ())]:
            for each in [each for each in begun if each not in entities]:
                start = begun.pop(each)
                done.append(Entity(each.kind, start, at - start, each.detail))
            begun |= {each: at for each in entities if each not in begun}
            at += Unit.UTF16.measure(text)
        return sorted(done, key=lambda entity: (entity.offset, -entity.length))

    def _write(self, text: str, entities: _Entities) -> None:
        if text:
            self._pieces.append((text, entities))

    def _in(self, entities: _Entities, kind: str, detail: str = "") -> _Entities:
        return (*entities, _OpenEntity(next(self._numbers), kind, detail))

    # Blocks. `lead` goes before their first line, `indent` before the others.

    def _blocks(
        self, blocks: Sequence[markdown.Block], entities: _Entities, lead: str, indent: str, gap: str = "\n\n"
    ) -> None:
        if not blocks:
            self._write(lead.rstrip(" "), entities)
        for number, block in enumerate(blocks):
            if number:
                self._write(gap, entities)
            self._block(block, entities, indent if number else lead, indent)

    def _block(self, block: markdown.Block, entities: _Entities, lead: str, indent: str) -> None:
        match block:
            case markdown.Paragraph():
                self._paragraph(block.inside, entities, lead, indent)
            case markdown.Heading():
                self._paragraph(block.inside, self._in(entities, "bold"), lead, indent)
            case markdown.CodeBlock():
                self._code(block.text, block.info, entities, lead)
            case markdown.Table():
                self._code(_grid(block, is_even=self._is_even), "", entities, lead)
            case markdown.Quote():
                self._quote(block, entities, lead, indent)
            case markdown.List():
                self._listing(block, entities, lead, indent)
            case markdown.Rule():
                self._write(lead + _RULE, entities)

    def _paragraph(self, inside: Sequence[markdown.Inline], entities: _Entities, lead: str, indent: str) -> None:
        self._write(lead, tuple(each for each in entities if each.kind == "blockquote"))
        self._inlines(inside, entities, indent)

    def _code(self, text: str, language: str, entities: _Entities, lead: str) -> None:
        # Text before it on the line is not code.
        self._write(lead.rstrip(" ") and f"{lead.rstrip(' ')}\n", entities)
        self._write(text or " ", self._in(entities, "pre", language))

    def _quote(self, quote: markdown.Quote, entities: _Entities, lead: str, indent: str) -> None:
        """Telegram has no nested quotes: write the inner one with >."""
        if entities:
            self._blocks(quote.blocks, entities, f"{lead}> ", f"{indent}> ")
        else:
            self._write(lead, ())
            self._blocks(quote.blocks, self._in((), "blockquote"), "", indent)

    def _listing(self, listing: markdown.List, entities: _Entities, lead: str, indent: str) -> None:
        gap = "\n" if listing.tight else "\n\n"
        for number, item in enumerate(listing.items):
            if number:
                self._write(gap, entities)
            sign = _BULLET if listing.start is None else f"{listing.start + number}. "
            self._blocks(item, entities, f"{indent if number else lead}{sign}", indent + _STEP, gap)

    # Inline

    def _inlines(self, inside: Sequence[markdown.Inline], entities: _Entities, indent: str) -> None:
        for each in inside:
            match each:
                case markdown.Text():
                    self._write(each.text.replace("\n", f"\n{indent}"), entities)
                case markdown.Code():
                    self._write(each.text, self._as_code(entities))
                case markdown.Styled():
                    self._inlines(each.inside, self._in(entities, _STYLES[each.style]), indent)
                case markdown.Link():
                    self._link(each, entities, indent)

    def _as_code(self, entities: _Entities) -> _Entities:
        """Telegram allows code in a quote, but not in a link or a style."""
        if any(each.kind == "text_link" for each in entities):
            return entities
        return self._in(tuple(each for each in entities if each.kind == "blockquote"), "code")

    def _link(self, link: markdown.Link, entities: _Entities, indent: str) -> None:
        is_marked = _is_linked(link) and not any(each.kind == "text_link" for each in entities)
        self._inlines(link.inside, self._in(entities, "text_link", link.url) if is_marked else entities, indent)
        self._write(_beside(link, is_shown=is_marked), entities)


def _is_linked(link: markdown.Link) -> bool:
    """Return whether Telegram accepts the link: a web address with a full host name, around some text."""
    try:
        address = urlsplit(link.url)
        host = address.hostname or ""
    except ValueError:
        return False
    return bool(markdown.text_of(link.inside).strip()) and address.scheme in {"http", "https"} and "." in host


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


def _grid(table: markdown.Table, *, is_even: bool) -> str:
    """Align the columns, or only separate the cells if that takes too much room."""
    rows = [[_flat(cell) for cell in row] for row in table.rows]
    if not is_even:
        return "\n".join("|".join(row) for row in rows)
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = [" | ".join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)
