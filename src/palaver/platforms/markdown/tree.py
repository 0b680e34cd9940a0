"""The tree of a text in Markdown: blocks, and what stands within a line. It is never deep, so renderers may recurse."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

__all__ = [
    "Block",
    "Cell",
    "Code",
    "Fence",
    "Heading",
    "Inline",
    "Link",
    "Listing",
    "Paragraph",
    "Quote",
    "Rule",
    "Style",
    "Styled",
    "Table",
    "Words",
    "words_of",
]


class Style(Enum):
    BOLD = "bold"
    ITALIC = "italic"
    STRUCK = "struck"


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """Plain text; a line break in it is one."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Styled:
    style: Style
    inside: tuple["Inline", ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A link, or an image: then its description is inside. The address may be of any kind but those that run code."""

    url: str
    inside: tuple["Inline", ...]
    title: str = ""


Inline: TypeAlias = Words | Code | Styled | Link
Cell: TypeAlias = tuple[Inline, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Paragraph:
    inside: tuple[Inline, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Heading:
    level: int
    inside: tuple[Inline, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fence:
    """Code; the text does not end with a line break."""

    text: str
    info: str = ""
    """What stands beside the fence: usually the language."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quote:
    blocks: tuple["Block", ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    items: tuple[tuple["Block", ...], ...]
    start: int | None = None
    """The first number; None for bullets."""
    tight: bool = True
    """There are no blank lines between its items."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Every row has as many cells as the first, which is the head."""

    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A line across."""


Block: TypeAlias = Paragraph | Heading | Fence | Quote | Listing | Table | Rule


def words_of(inside: tuple[Inline, ...]) -> str:
    """The text without any markup."""
    return "".join(each.text if isinstance(each, Words | Code) else words_of(each.inside) for each in inside)
