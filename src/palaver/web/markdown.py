"""Render Markdown as safe HTML for the chat.

Nothing that people or models write becomes a tag or an attribute: the tree of `protocols.markdown` has no HTML, and
every text is escaped here.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from html import escape

from markupsafe import Markup
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
from pygments.util import ClassNotFound

from palaver.model.text import legible
from palaver.protocols.markdown import tree as markdown

_TAGS = {markdown.Style.BOLD: "strong", markdown.Style.ITALIC: "em", markdown.Style.STRUCK: "del"}
_SCHEMES = ("https://", "http://", "mailto:")
"""Other links are written out."""
_ADDRESS = re.compile(r"https?://[\w\[][^\s<>\"'`]*", re.IGNORECASE)
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_TASK = re.compile(r"\[([ xX])\]\s+")
_FOOTNOTE = re.compile(r"\[\^([\w-]{1,40})\](:\s*)?")
_LANGUAGE = re.compile(r"[A-Za-z0-9+#._-]{1,30}")
_MAX_HIGHLIGHTED = 20_000
_CACHED_TEXTS = 512
_FORMATTER: HtmlFormatter[str] = HtmlFormatter(nowrap=True)


def render(text: str) -> Markup:
    """Render a whole text."""
    return Markup("".join(render_blocks(text)))  # noqa: S704 - escaped below


@lru_cache(_CACHED_TEXTS)
def render_blocks(text: str) -> tuple[str, ...]:
    """Render each block of a text as one element."""
    return tuple(_block(block) for part in markdown.sections(text) for block in markdown.parse_markdown(part))


def _block(block: markdown.Block) -> str:  # noqa: PLR0911 - one line for each kind
    match block:
        case markdown.Paragraph(inside=inside):
            return _paragraph(inside)
        case markdown.Heading(level=level, inside=inside):
            # The page has its own first heading.
            return f"<h{min(level + 2, 6)}>{_inline(inside)}</h{min(level + 2, 6)}>"
        case markdown.CodeBlock(text=text, info=info):
            return _code(text, info)
        case markdown.Quote(blocks=blocks):
            return f"<blockquote>{''.join(map(_block, blocks))}</blockquote>"
        case markdown.List():
            return _listing(block)
        case markdown.Table(rows=rows):
            return _table(rows)
        case markdown.Rule():
            return "<hr>"


def _paragraph(inside: tuple[markdown.Inline, ...]) -> str:
    first = inside[0] if inside else None
    found = _FOOTNOTE.match(first.text) if isinstance(first, markdown.Text) else None
    if found and found[2] and isinstance(first, markdown.Text):
        rest = (markdown.Text(text=first.text[found.end() :]), *inside[1:])
        return f'<p class="footnote"><sup>{escape(found[1])}</sup> {_inline(rest)}</p>'
    return f"<p>{_inline(inside)}</p>"


def _code(text: str, info: str) -> str:
    """Return the code below its language and a button that the script makes work."""
    word = info.split(maxsplit=1)[0] if info.strip() else ""
    language = word if _LANGUAGE.fullmatch(word) else ""
    head = (
        f'<div class="code-head"><span>{escape(language) or "text"}</span>'
        '<button type="button" class="quiet" data-copy-code>Copy</button></div>'
    )
    body = _highlighted(text, language)
    return f'<div class="code">{head}<pre tabindex="0" aria-label="Code"><code>{body}</code></pre></div>'


def _highlighted(text: str, language: str) -> str:
    text = legible(text)
    if language and len(text) <= _MAX_HIGHLIGHTED:
        try:
            return highlight(text, get_lexer_by_name(language.lower(), stripnl=False), _FORMATTER).removesuffix("\n")
        except ClassNotFound:
            pass
    return escape(text)


def _listing(listing: markdown.List) -> str:
    tag = "ul" if listing.start is None else "ol"
    start = f' start="{listing.start}"' if listing.start not in {None, 1} else ""
    return f"<{tag}{start}>{''.join(_item(item, tight=listing.tight) for item in listing.items)}</{tag}>"


def _item(blocks: tuple[markdown.Block, ...], *, tight: bool) -> str:
    """Return an item, with a box before a task. In a tight list, leave out the <p>."""
    first = blocks[0] if blocks else None
    words = first.inside[0] if isinstance(first, markdown.Paragraph) and first.inside else None
    found = _TASK.match(words.text) if isinstance(words, markdown.Text) else None
    box = ""
    if found and isinstance(words, markdown.Text) and isinstance(first, markdown.Paragraph):
        state = " checked" if found[1] != " " else ""
        box = f'<input type="checkbox" disabled{state} aria-label="{"done" if state else "to do"}"> '
        rest = markdown.Paragraph(inside=(markdown.Text(text=words.text[found.end() :]), *first.inside[1:]))
        blocks = (rest, *blocks[1:])
    inside = "".join(
        _inline(each.inside) if tight and isinstance(each, markdown.Paragraph) else _block(each) for each in blocks
    )
    return f'<li class="task">{box}{inside}</li>' if box else f"<li>{inside}</li>"


def _table(rows: Iterable[Iterable[Iterable[markdown.Inline]]]) -> str:
    head, *body = ([_inline(cell) for cell in row] for row in rows)
    first = "".join(f"<th>{cell}</th>" for cell in head)
    others = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    table = f"<table><thead><tr>{first}</tr></thead><tbody>{others}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="group" aria-label="Table">{table}</div>'


def _inline(inside: Iterable[markdown.Inline], *, linked: bool = False) -> str:
    return "".join(_one(each, linked=linked) for each in inside)


def _one(inline: markdown.Inline, *, linked: bool) -> str:
    match inline:
        case markdown.Text(text=text):
            return _text(text, linked=linked)
        case markdown.Code(text=text):
            return f"<code>{escape(legible(text))}</code>"
        case markdown.Styled(style=style, inside=inside):
            return f"<{_TAGS[style]}>{_inline(inside, linked=linked)}</{_TAGS[style]}>"
        case markdown.Link():
            return _link(inline, linked=linked)


def _text(text: str, *, linked: bool) -> str:
    """Escape a text; addresses in it become links, and references to footnotes are raised."""
    pieces: list[str] = []
    at = 0
    for found in () if linked else _ADDRESS.finditer(text):
        address = _without_punctuation(found[0])
        pieces += _plain(text[at : found.start()]), _anchor(address, _plain(address))
        at = found.start() + len(address)
    return "".join((*pieces, _plain(text[at:])))


def _without_punctuation(address: str) -> str:
    """Leave out what ends the sentence; a bracket belongs to the address if it was opened there."""
    end, counts = len(address), Counter(address)
    while (last := address[end - 1]) in ".,;:!?" or (last in _BRACKETS and counts[last] > counts[_BRACKETS[last]]):
        counts[last] -= 1
        end -= 1
    return address[:end]


def _plain(text: str) -> str:
    escaped = escape(legible(text)).replace("\n", "<br>")
    return _FOOTNOTE.sub(lambda found: f"<sup>{found[1]}</sup>{found[2] or ''}", escaped)


def _link(link: markdown.Link, *, linked: bool) -> str:
    words = _inline(link.inside, linked=True)
    if linked:
        return words
    if link.url.lower().startswith(_SCHEMES):
        return _anchor(link.url, words or escape(legible(link.url)))
    return f"{words} ({escape(legible(link.url))})" if link.url else words


def _anchor(url: str, words: str) -> str:
    return f'<a href="{escape(legible(url))}" target="_blank" rel="noopener noreferrer nofollow">{words}</a>'
