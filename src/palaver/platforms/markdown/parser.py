"""Markdown read into the tree. Nothing that somebody wrote is lost, however broken, deep or long it is."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.token import Token

from palaver.platforms.markdown.tree import (
    Block,
    Cell,
    Code,
    CodeBlock,
    Heading,
    Inline,
    Link,
    List,
    Paragraph,
    Quote,
    Rule,
    Style,
    Styled,
    Table,
    Text,
)

LONGEST = 20_000
"""Longer texts are not looked into: they are one paragraph. The parser takes its time over hostile ones."""
_DEEPEST = 30
"""The parser drops what is nested deeper than it is allowed to go."""
_DEEPEST_STYLE = 8

# HTML is text like any other, and so is everything that would make words vanish or change.
_PARSER = (
    MarkdownIt("commonmark", {"html": False, "maxNesting": _DEEPEST})
    .enable(["table", "strikethrough"])
    .disable(["reference", "entity", "html_block", "html_inline"])
)
_LINE_END = re.compile(r"\r\n?|\n")
_STYLES = {"strong_open": Style.BOLD, "em_open": Style.ITALIC, "s_open": Style.STRUCK}


def parse_markdown(text: str) -> tuple[Block, ...]:
    """The blocks of a text. One that is too long or too deep to be looked into is a paragraph as it stands."""
    if len(text) > LONGEST:
        return _as_it_stands(text)
    tokens = _PARSER.parse(text)
    if any(token.level >= _DEEPEST - 1 for token in tokens):
        return _as_it_stands(text)
    return tuple(_blocks(tokens, _LINE_END.split(text)))


def _as_it_stands(text: str) -> tuple[Block, ...]:
    return (Paragraph(inside=(Text(text=text),)),)


@dataclass(kw_only=True, slots=True)
class _Open:
    """A block that is still being read."""

    token: Token
    blocks: list[Block] = field(default_factory=list[Block])
    items: list[tuple[Block, ...]] = field(default_factory=list[tuple[Block, ...]])
    inside: tuple[Inline, ...] = ()
    cells: list[Cell] = field(default_factory=list[Cell])
    rows: list[tuple[Cell, ...]] = field(default_factory=list[tuple[Cell, ...]])
    tight: bool = True


_ALL = Token("all", "", 0)


def _blocks(tokens: Iterable[Token], lines: Sequence[str]) -> list[Block]:
    stack = [_Open(token=_ALL)]
    for token in tokens:
        if token.nesting > 0:
            stack.append(_Open(token=token))
        elif token.nesting < 0:
            _close(stack.pop(), stack[-1], lines)
        elif token.type == "inline":
            stack[-1].inside = _inlines(token.children or ())
        else:
            stack[-1].blocks.append(_leaf(token))
    return stack[0].blocks


def _leaf(token: Token) -> Block:
    if token.type == "hr":
        return Rule()
    return CodeBlock(text=token.content.removesuffix("\n"), info=token.info.strip())


def _close(done: _Open, into: _Open, lines: Sequence[str]) -> None:
    """What was read goes into what it stands in."""
    token = done.token
    match token.type:
        case "paragraph_open":
            into.tight = into.tight and token.hidden
            into.blocks.append(Paragraph(inside=done.inside))
        case "heading_open":
            into.blocks.append(Heading(level=int(token.tag[1:]), inside=done.inside))
        case "blockquote_open":
            into.blocks.append(Quote(blocks=tuple(done.blocks)))
        case "list_item_open":
            into.items.append(tuple(done.blocks))
            into.tight = into.tight and done.tight
        case "bullet_list_open" | "ordered_list_open":
            start = int(token.attrs.get("start", 1)) if token.type == "ordered_list_open" else None
            into.blocks.append(List(items=tuple(done.items), start=start, tight=done.tight))
        case "table_open":
            first, end = token.map or (0, 0)
            into.blocks.append(_table(tuple(done.rows), lines[first:end]))
        case _:
            _close_part_of_table(token, done, into)


def _close_part_of_table(token: Token, done: _Open, into: _Open) -> None:
    match token.type:
        case "th_open" | "td_open":
            into.cells.append(done.inside)
        case "tr_open":
            into.rows.append(tuple(done.cells))
        case _:
            into.rows.extend(done.rows)


def _table(rows: tuple[tuple[Cell, ...], ...], lines: Sequence[str]) -> Block:
    """The parser drops cells that no column is above; then the lines stay as they are."""
    width = len(rows[0])
    if any(_cells(line) > width for line in lines):
        return CodeBlock(text="\n".join(lines))
    return Table(rows=rows)


def _cells(line: str) -> int:
    """How many cells a line may have, at most."""
    return line.strip(" \t>").removeprefix("|").removesuffix("|").count("|") + 1


def _inlines(tokens: Sequence[Token]) -> tuple[Inline, ...]:
    """What stands in a line. Markup in more markup than anybody means is left out, its words stay."""
    stack: list[tuple[Token, list[Inline]]] = [(_ALL, [])]
    for token in tokens:
        if token.nesting > 0:
            stack.append((token, []))
        elif token.nesting < 0:
            opened, inside = stack.pop()
            into = stack[-1][1]
            into.extend(inside if len(stack) > _DEEPEST_STYLE else _marked(opened, tuple(inside)))
        elif token.type != "text" or token.content:
            stack[-1][1].append(_inline(token))
    return tuple(stack[0][1])


def _marked(token: Token, inside: tuple[Inline, ...]) -> tuple[Inline, ...]:
    if token.type in _STYLES:
        return (Styled(style=_STYLES[token.type], inside=inside),)
    return (Link(url=str(token.attrs.get("href", "")), inside=inside, title=str(token.attrs.get("title", ""))),)


def _inline(token: Token) -> Inline:
    match token.type:
        case "code_inline":
            return Code(text=token.content)
        case "softbreak" | "hardbreak":
            return Text(text="\n")
        case "image":
            inside = _inlines(token.children or ())
            return Link(url=str(token.attrs.get("src", "")), inside=inside, title=str(token.attrs.get("title", "")))
        case _:
            return Text(text=token.content)
