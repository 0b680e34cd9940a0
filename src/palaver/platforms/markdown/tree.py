"""The tree of a text in Markdown: blocks, and what stands within a line. It is never deep, so renderers may recurse."""

from enum import Enum
from typing import TypeAlias

from palaver.model.value import value


class Style(Enum):
    BOLD = "bold"
    ITALIC = "italic"
    STRUCK = "struck"


@value
class Text:
    """Plain text; a line break in it is one."""

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
    """A link, or an image: then its description is inside. The address may be of any kind but those that run code."""

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
    """Code; the text does not end with a line break."""

    text: str
    info: str = ""
    """What stands beside the fence: usually the language."""


@value
class Quote:
    blocks: tuple["Block", ...]


@value
class List:
    items: tuple[tuple["Block", ...], ...]
    start: int | None = None
    """The first number; None for bullets."""
    tight: bool = True
    """There are no blank lines between its items."""


@value
class Table:
    """Every row has as many cells as the first, which is the head."""

    rows: tuple[tuple[Cell, ...], ...]


@value
class Rule:
    """A line across."""


Block: TypeAlias = Paragraph | Heading | CodeBlock | Quote | List | Table | Rule


def text_of(inside: tuple[Inline, ...]) -> str:
    """The text without any markup."""
    return "".join(each.text if isinstance(each, Text | Code) else text_of(each.inside) for each in inside)
