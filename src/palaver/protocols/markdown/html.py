"""Render Markdown as HTML."""

from collections.abc import Iterable
from dataclasses import replace
from html import escape

from palaver.protocols.markdown import tree as markdown
from palaver.protocols.markdown.spans import align

_TAGS = {markdown.Style.BOLD: "strong", markdown.Style.ITALIC: "em", markdown.Style.STRUCK: "del"}
_SCHEMES = ("https:", "http:", "ftp:", "mailto:", "magnet:", "matrix:")
"""Other links are written out."""


def to_html(text: str, *, has_tables: bool = True) -> str | None:
    """Render Markdown as HTML; None if plain text says the same. Without tables, they are aligned code."""
    parsed = markdown.parse_markdown(text)
    blocks = parsed if has_tables else [_without_tables(block) for block in parsed]
    plain = [_plain(block) for block in blocks]
    return None if "\n\n".join(plain) == text.strip() else "".join(map(_block, blocks))


def _without_tables(block: markdown.Block) -> markdown.Block:
    match block:
        case markdown.Table():
            return markdown.CodeBlock(text=align(block))
        case markdown.Quote(blocks=blocks):
            return replace(block, blocks=tuple(map(_without_tables, blocks)))
        case markdown.List(items=items):
            return replace(block, items=tuple(tuple(map(_without_tables, item)) for item in items))
        case _:
            return block


def _plain(block: markdown.Block) -> str:
    """Return the text of a plain paragraph; empty for anything else."""
    inside = block.inside if isinstance(block, markdown.Paragraph) else ()
    return "".join(inline.text for inline in inside if isinstance(inline, markdown.Text))


def _block(block: markdown.Block) -> str:  # noqa: PLR0911 - one line for each kind
    match block:
        case markdown.Paragraph(inside=inside):
            return f"<p>{_inline(inside)}</p>"
        case markdown.Heading(level=level, inside=inside):
            return f"<h{level}>{_inline(inside)}</h{level}>"
        case markdown.CodeBlock(text=text, info=info):
            return f"<pre><code{_language(info)}>{escape(text)}</code></pre>"
        case markdown.Quote(blocks=blocks):
            return f"<blockquote>{''.join(map(_block, blocks))}</blockquote>"
        case markdown.List():
            return _listing(block)
        case markdown.Table(rows=rows):
            return _table(rows)
        case markdown.Rule():
            return "<hr>"


def _language(info: str) -> str:
    name = info.split(maxsplit=1)[0] if info.strip() else ""
    return f' class="language-{escape(name)}"' if name else ""


def _listing(listing: markdown.List) -> str:
    tag = "ul" if listing.start is None else "ol"
    start = f' start="{listing.start}"' if listing.start not in {None, 1} else ""
    items = (f"<li>{_item(item, tight=listing.tight)}</li>" for item in listing.items)
    return f"<{tag}{start}>{''.join(items)}</{tag}>"


def _item(blocks: Iterable[markdown.Block], *, tight: bool) -> str:
    """In a tight list, leave out the <p>."""
    return "".join(
        _inline(each.inside) if tight and isinstance(each, markdown.Paragraph) else _block(each) for each in blocks
    )


def _table(rows: Iterable[Iterable[Iterable[markdown.Inline]]]) -> str:
    head, *body = ([_inline(cell) for cell in row] for row in rows)
    first = "".join(f"<th>{cell}</th>" for cell in head)
    others = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    return f"<table><thead><tr>{first}</tr></thead><tbody>{others}</tbody></table>"


def _inline(inside: Iterable[markdown.Inline]) -> str:
    return "".join(map(_one, inside))


def _one(inline: markdown.Inline) -> str:
    match inline:
        case markdown.Text(text=text):
            return escape(text).replace("\n", "<br>")
        case markdown.Code(text=text):
            return f"<code>{escape(text)}</code>"
        case markdown.Styled(style=style, inside=inside):
            return f"<{_TAGS[style]}>{_inline(inside)}</{_TAGS[style]}>"
        case markdown.Link():
            return _link(inline)


def _link(link: markdown.Link) -> str:
    title = f" ({escape(link.title)})" if link.title else ""
    if link.url.lower().startswith(_SCHEMES):
        return f'<a href="{escape(link.url)}">{_inline(link.inside)}</a>{title}'
    return f"{_inline(link.inside)} ({escape(link.url)}){title}"
