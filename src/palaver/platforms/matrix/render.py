"""Render our messages as the content of Matrix events."""

import json
from collections.abc import Iterable
from html import escape
from typing import Any

from palaver.platforms import markdown
from palaver.platforms.matrix.events import AUTOMATED
from palaver.protocols import Attachment, Outbound

_TAGS = {markdown.Style.BOLD: "strong", markdown.Style.ITALIC: "em", markdown.Style.STRUCK: "del"}
_SCHEMES = ("https:", "http:", "ftp:", "mailto:", "magnet:", "matrix:")
"""The link schemes that the specification allows."""


def to_html(text: str) -> str | None:
    """Render Markdown as HTML; None if plain text says the same."""
    blocks = markdown.parse_markdown(text)
    plain = [_plain(block) for block in blocks]
    return None if "\n\n".join(plain) == text.strip() else "".join(map(_block, blocks))


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


Content = dict[str, Any]

MAX_TEXT_BYTES = 12_000
"""An event has at most 65,536 bytes; encrypted text takes up to four times its size."""
_MAX_CONTENT_BYTES = 46_000
"""The largest content before encryption, as ASCII."""
_OURS: Content = {AUTOMATED: True, "m.mentions": {}}
"""Not m.notice, which clients show without a notification: other bots recognise us by this mark."""
_KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}


def message_content(outbound: Outbound) -> Content:
    """Render the text as Markdown, and as HTML if that says more. It mentions nobody."""
    return {**_text(outbound.text), **_OURS, **_relation(outbound)}


def edit_content(receipt: str, outbound: Outbound) -> Content:
    """Render an edit. The fallback for old clients is short, or the text would be in there twice."""
    return {
        "msgtype": "m.text",
        "body": "* …",
        **_OURS,
        "m.new_content": _text(outbound.text) | _OURS,
        "m.relates_to": {"rel_type": "m.replace", "event_id": receipt},
    }


def file_content(outbound: Outbound, file: Attachment, where: Content) -> Content:
    """Render a file message. `where` has its URL, and its key if it is encrypted."""
    name = file.name.stored()
    content: Content = {
        "msgtype": _KINDS.get(file.media_type.partition("/")[0], "m.file"),
        "body": outbound.text or name,
        "filename": name,
        "info": {"mimetype": file.media_type} | ({} if file.size is None else {"size": file.size}),
        **_OURS,
    }
    return content | _formatted(outbound.text) | where | _relation(outbound)


def _text(text: str) -> Content:
    return {"msgtype": "m.text", "body": text} | _formatted(text)


def _formatted(text: str) -> Content:
    """Return the HTML fields; empty if they would make the event too large."""
    html = to_html(text)
    if html is None or len(json.dumps([text, html])) > _MAX_CONTENT_BYTES:
        return {}
    return {"format": "org.matrix.custom.html", "formatted_body": html}


def _relation(outbound: Outbound) -> Content:
    """Return the thread and reply relation. In a thread the reply is only a fallback for old clients."""
    answered = {"m.in_reply_to": {"event_id": outbound.reply_to or outbound.thread_id}}
    if outbound.thread_id:
        thread = {"rel_type": "m.thread", "event_id": outbound.thread_id, "is_falling_back": True}
        return {"m.relates_to": {**thread, **answered}}
    return {"m.relates_to": answered} if outbound.reply_to else {}
