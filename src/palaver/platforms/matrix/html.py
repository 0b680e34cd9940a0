"""Markdown as the HTML that Matrix allows."""

from collections.abc import Iterable
from html import escape

from palaver.platforms.markdown.read import read
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
)

__all__ = ["html_of"]

_TAGS = {Style.BOLD: "strong", Style.ITALIC: "em", Style.STRUCK: "del"}
_SCHEMES = ("https:", "http:", "ftp:", "mailto:", "magnet:", "matrix:")
"""What the specification lets a link lead to."""


def html_of(text: str) -> str | None:
    """None where plain text says the same."""
    blocks = read(text)
    plain = [_plain(block) for block in blocks]
    return None if "\n\n".join(plain) == text.strip() else "".join(map(_block, blocks))


def _plain(block: Block) -> str:
    """Nothing for what is more than words."""
    inside = block.inside if isinstance(block, Paragraph) else ()
    return "".join(each.text for each in inside if isinstance(each, Words))


def _block(block: Block) -> str:  # noqa: PLR0911 - one line for each kind
    match block:
        case Paragraph(inside=inside):
            return f"<p>{_inline(inside)}</p>"
        case Heading(level=level, inside=inside):
            return f"<h{level}>{_inline(inside)}</h{level}>"
        case Fence(text=text, info=info):
            return f"<pre><code{_language(info)}>{escape(text)}</code></pre>"
        case Quote(blocks=blocks):
            return f"<blockquote>{''.join(map(_block, blocks))}</blockquote>"
        case Listing():
            return _listing(block)
        case Table(rows=rows):
            return _table(rows)
        case Rule():
            return "<hr>"


def _language(info: str) -> str:
    name = info.split(maxsplit=1)[0] if info.strip() else ""
    return f' class="language-{escape(name)}"' if name else ""


def _listing(listing: Listing) -> str:
    tag = "ul" if listing.start is None else "ol"
    start = f' start="{listing.start}"' if listing.start not in {None, 1} else ""
    items = (f"<li>{_item(item, tight=listing.tight)}</li>" for item in listing.items)
    return f"<{tag}{start}>{''.join(items)}</{tag}>"


def _item(blocks: Iterable[Block], *, tight: bool) -> str:
    """In a list without blank lines a paragraph needs no room of its own."""
    return "".join(_inline(each.inside) if tight and isinstance(each, Paragraph) else _block(each) for each in blocks)


def _table(rows: Iterable[Iterable[Iterable[Inline]]]) -> str:
    head, *body = ([_inline(cell) for cell in row] for row in rows)
    first = "".join(f"<th>{cell}</th>" for cell in head)
    others = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    return f"<table><thead><tr>{first}</tr></thead><tbody>{others}</tbody></table>"


def _inline(inside: Iterable[Inline]) -> str:
    return "".join(map(_one, inside))


def _one(inline: Inline) -> str:
    match inline:
        case Words(text=text):
            return escape(text).replace("\n", "<br>")
        case Code(text=text):
            return f"<code>{escape(text)}</code>"
        case Styled(style=style, inside=inside):
            return f"<{_TAGS[style]}>{_inline(inside)}</{_TAGS[style]}>"
        case Link():
            return _link(inline)


def _link(link: Link) -> str:
    title = f" ({escape(link.title)})" if link.title else ""
    if link.url.lower().startswith(_SCHEMES):
        return f'<a href="{escape(link.url)}">{_inline(link.inside)}</a>{title}'
    return f"{_inline(link.inside)} ({escape(link.url)}){title}"
