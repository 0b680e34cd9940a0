"""Parse Markdown, as agents write it, into a small tree. Text is never lost.

The tree is never deep, so renderers can recurse.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TypeAlias

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

from palaver.model.value import value

__all__ = [
    "MAX_LENGTH",
    "Code",
    "CodeBlock",
    "Heading",
    "Link",
    "List",
    "Paragraph",
    "Quote",
    "Rule",
    "Style",
    "Styled",
    "Table",
    "Text",
    "parse_markdown",
    "sections",
    "settled_length",
    "text_of",
]


class Style(StrEnum):
    BOLD = "bold"
    ITALIC = "italic"
    STRUCK = "strikethrough"
    # Only in what is rendered: here these are nodes of their own.
    CODE = "code"
    CODE_BLOCK = "pre"
    QUOTE = "blockquote"
    LINK = "text_link"


@value
class Text:
    """Plain text; it can contain line breaks."""

    text: str


@value
class Code:
    text: str


@value
class Styled:
    style: Style
    inside: tuple["Inline", ...]


@value
class Link:
    """A link, or an image with its description inside. The URL can have any scheme that runs no code."""

    url: str
    inside: tuple["Inline", ...]
    title: str = ""


Inline: TypeAlias = Text | Code | Styled | Link
Cell: TypeAlias = tuple[Inline, ...]


@value
class Paragraph:
    inside: tuple[Inline, ...]


@value
class Heading:
    level: int
    inside: tuple[Inline, ...]


@value
class CodeBlock:
    """Code, without the last line break."""

    text: str
    info: str = ""
    """The words beside the fence: usually the language."""


@value
class Quote:
    blocks: tuple["Block", ...]


@value
class List:
    items: tuple[tuple["Block", ...], ...]
    start: int | None = None
    """The first number; None for bullets."""
    tight: bool = True
    """No blank lines between the items."""


@value
class Table:
    """All rows have the same number of cells; the first row is the head."""

    rows: tuple[tuple[Cell, ...], ...]


@value
class Rule:
    """A horizontal line."""


Block: TypeAlias = Paragraph | Heading | CodeBlock | Quote | List | Table | Rule


def text_of(inside: tuple[Inline, ...]) -> str:
    """Return the text without markup."""
    return "".join(each.text if isinstance(each, Text | Code) else text_of(each.inside) for each in inside)


MAX_LENGTH = 20_000
"""A longer text becomes one plain paragraph: parsing a hostile one would take too long."""
_MAX_DEPTH = 30
"""The parser drops what is nested deeper, and takes what follows a list for a part of it."""
_REPARSED_DEPTH = 60
"""How deep a text is parsed again to find the end of blocks that are too deep. This costs more."""
_MAX_STYLE_DEPTH = 8


def _make_parser(depth: int) -> MarkdownIt:
    """Disable what would change words or make them vanish; HTML stays text."""
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": depth})
    parser.enable(["table", "strikethrough"])
    return parser.disable(["reference", "entity", "html_block", "html_inline"])


_PARSER, _DEEP_PARSER = _make_parser(_MAX_DEPTH), _make_parser(_REPARSED_DEPTH)
_LINE_END = re.compile(r"\r\n?|\n")
_STYLES = {"strong": Style.BOLD, "em": Style.ITALIC, "s": Style.STRUCK}


def parse_markdown(text: str) -> tuple[Block, ...]:
    """Return the blocks of a text. A block that is nested too deeply stays plain, as does a text that is too long."""
    if len(text) > MAX_LENGTH:
        return (_plain(text),)
    tokens, lines = _PARSER.parse(text), _LINE_END.split(text)
    if any(token.level >= _MAX_DEPTH - 1 for token in tokens):
        tokens = _DEEP_PARSER.parse(text)
    _drop_deep_styles(tokens)
    return tuple(_plain_if_deep(node, lines) for node in SyntaxTreeNode(tokens).children)


def _plain(text: str) -> Paragraph:
    return Paragraph(inside=(Text(text=text),))


def _plain_if_deep(node: SyntaxTreeNode, lines: Sequence[str]) -> Block:
    if all(each.level < _MAX_DEPTH - 1 for each in node.walk() if each.map):
        return _block(node, lines)
    first, end = node.map or (0, 0)
    return _plain("\n".join(lines[first:end]))


def settled_length(text: str) -> int:
    """Return the length of the blocks at the beginning that nothing written later can change: all but the last."""
    text = text[: text.rfind("\n") + 1]  # a line that is not complete can still become anything
    starts = [token.map[0] for token in _PARSER.parse(text[:MAX_LENGTH]) if token.level == 0 and token.map]
    if len(text) > MAX_LENGTH or not starts or not (last := max(starts)):
        return 0
    ends = [found.end() for found in _LINE_END.finditer(text)]
    return ends[last - 1]


def sections(text: str) -> Iterator[str]:
    """Cut a text that is too long between blocks, into parts that are not."""
    while len(text) > MAX_LENGTH:
        end = settled_length(text[:MAX_LENGTH]) or MAX_LENGTH
        yield text[:end]
        text = text[end:]
    yield text


def _drop_deep_styles(tokens: Iterable[Token]) -> None:
    """Drop markup within too much other markup, and keep its words."""
    for token in tokens:
        if token.children:
            token.children = [each for each in token.children if not each.nesting or each.level < _MAX_STYLE_DEPTH]
            _drop_deep_styles(token.children)


def _blocks(node: SyntaxTreeNode, lines: Sequence[str]) -> tuple[Block, ...]:
    return tuple(_block(child, lines) for child in node.children)


def _block(node: SyntaxTreeNode, lines: Sequence[str]) -> Block:  # noqa: PLR0911 - one line for each kind
    match node.type:
        case "paragraph":
            return Paragraph(inside=_text_in(node))
        case "heading":
            return Heading(level=int(node.tag[1:]), inside=_text_in(node))
        case "blockquote":
            return Quote(blocks=_blocks(node, lines))
        case "bullet_list" | "ordered_list":
            start = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
            tight = all(each.hidden for item in node.children for each in item.children if each.type == "paragraph")
            return List(items=tuple(_blocks(item, lines) for item in node.children), start=start, tight=tight)
        case "table":
            return _table(node, lines)
        case "hr":
            return Rule()
        case _:
            return CodeBlock(text=node.content.removesuffix("\n"), info=node.info.strip())


def _table(node: SyntaxTreeNode, lines: Sequence[str]) -> Block:
    """Return a code block if a row has more cells than the head: the parser would drop them."""
    rows = tuple(tuple(map(_text_in, row.children)) for part in node.children for row in part.children)
    first, end = node.map or (0, 0)
    if any(_max_cells(line) > len(rows[0]) for line in lines[first:end]):
        return CodeBlock(text="\n".join(lines[first:end]))
    return Table(rows=rows)


def _max_cells(line: str) -> int:
    return line.strip(" \t>").removeprefix("|").removesuffix("|").count("|") + 1


def _text_in(node: SyntaxTreeNode) -> tuple[Inline, ...]:
    return tuple(each for inline in node.children for each in _inlines(inline))


def _inlines(node: SyntaxTreeNode) -> tuple[Inline, ...]:
    return tuple(_inline(child) for child in node.children if child.type != "text" or child.content)


def _inline(node: SyntaxTreeNode) -> Inline:
    match node.type:
        case "strong" | "em" | "s":
            return Styled(style=_STYLES[node.type], inside=_inlines(node))
        case "link" | "image":
            url = str(node.attrs.get("href" if node.type == "link" else "src", ""))
            return Link(url=url, inside=_inlines(node), title=str(node.attrs.get("title", "")))
        case "code_inline":
            return Code(text=node.content)
        case "softbreak" | "hardbreak":
            return Text(text="\n")
        case _:
            return Text(text=node.content)
