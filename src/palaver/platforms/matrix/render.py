"""Render our messages as the content of Matrix events."""

import json
from typing import Any

from palaver.platforms.matrix.events import AUTOMATED
from palaver.protocols import Attachment, Outbound, markdown

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
    html = markdown.to_html(text)
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
