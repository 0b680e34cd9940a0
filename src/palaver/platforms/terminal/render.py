"""Render answers for a terminal: Markdown with colours, wrapped between words."""

import re
from io import StringIO
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, ListItem, Markdown, MarkdownElement
from rich.segment import Segment
from rich.text import Text
from rich.theme import Theme

from palaver.platforms.terminal.client import printable

_MAX_MARKDOWN = 100_000
"""Parsing a longer text would make people wait; it is shown as it is."""
_CODE_THEME = "ansi_dark"
"""Uses the terminal's own colours, so that it is readable on light and dark ones."""


def render_markdown(text: str, width: int, *, is_plain: bool = False) -> str:
    """Return an answer as lines with ANSI styles, or without any for a terminal that has none."""
    safe = printable(text)
    body = Text(safe) if len(safe) > _MAX_MARKDOWN else _ChatMarkdown(safe)
    return _rendered(body, width, is_plain=is_plain)


def render_note(text: str, width: int, *, is_plain: bool = False, style: str = "bright_black") -> str:
    """Return plain text in one style."""
    return _rendered(Text(printable(text), style=style), width, is_plain=is_plain)


def wrap(text: str, width: int) -> list[str]:
    """Wrap plain text between words; only a word longer than a line is broken."""
    return _rendered(Text(printable(text)), width, is_plain=True).split("\n")


def _rendered(body: Text | Markdown, width: int, *, is_plain: bool) -> str:
    out = StringIO()
    # The environment decides about colours, as with NO_COLOR.
    console = Console(
        file=out,
        width=max(width, 1),
        force_terminal=not is_plain,
        highlight=False,
        legacy_windows=False,
        theme=_THEME,
    )
    console.print(body)
    lines = [_PADDING.sub(r"\1", line) for line in out.getvalue().split("\n")]
    kept = [
        line for line, before in zip(lines, ["", *lines], strict=False) if not (_is_blank(line) and _is_blank(before))
    ]
    return "\n".join(kept).rstrip("\n")


_PADDING = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_THEME = Theme({"markdown.code": "cyan", "markdown.h1": "bold underline"})
"""No backgrounds: they are unreadable in half of all terminals."""


def _is_blank(line: str) -> bool:
    return not _STYLE.sub("", line).strip()


class _Heading(Heading):
    """On the left, like everything else."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text


class _ListItem(ListItem):
    """Numbers keep their dot: people answer with `/resume 2`."""

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        width = len(str(last_number)) + 2
        lines = console.render_lines(self.elements, options.update(width=max(options.max_width - width, 1)))
        for at, line in enumerate(lines):
            yield Segment(f"{number}.".rjust(width - 1) + " " if at == 0 else " " * width)
            yield from line
            yield Segment("\n")


class _ChatMarkdown(Markdown):
    """Markdown as people write it in chats: each line break counts, and HTML is text."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "list_item_open": _ListItem,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme=_CODE_THEME, hyperlinks=False)
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        self.parsed = [_with_breaks(token) for token in parser.parse(_with_ended_lists(text))]


def _with_breaks(token: Token) -> Token:
    for child in token.children or ():
        if child.type == "softbreak":
            child.type = "hardbreak"
    return token


_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")
_FENCE = re.compile(r"\s*(?:```|~~~)")


def _with_ended_lists(text: str) -> str:
    """End a list at a line that is no item and not indented, as people mean it."""
    lines: list[str] = []
    is_code = False
    for line in text.split("\n"):
        is_code ^= bool(_FENCE.match(line))
        if not is_code and lines and _ITEM.match(lines[-1]) and line[:1].strip() and not _ITEM.match(line):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)
