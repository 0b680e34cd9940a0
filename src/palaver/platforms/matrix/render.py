"""Messages of ours as the content of Matrix events."""

import json
from typing import Any

from palaver.domain.attachment import Attachment
from palaver.domain.turn import Outbound
from palaver.platforms.matrix.events import AUTOMATED
from palaver.platforms.matrix.html import html_of

__all__ = ["LONGEST_TEXT", "Content", "edit_of", "file_message", "message"]

Content = dict[str, Any]

LONGEST_TEXT = 12_000
"""In bytes. An event has at most 65,536 of them; what is encrypted takes up to four times the room."""
_LARGEST = 46_000
"""What the content of an event may be before it is encrypted, as ASCII."""
_OURS: Content = {AUTOMATED: True, "m.mentions": {}}
"""No notices, which clients announce to nobody: what answers by itself knows them by this, and leaves them alone."""
_KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}


def message(outbound: Outbound) -> Content:
    """The text as Markdown, and as HTML where that says more; nobody is mentioned by it."""
    return {**_text(outbound.text), **_OURS, **_relation(outbound)}


def edit_of(receipt: str, outbound: Outbound) -> Content:
    """What a client that knows no edits shows is kept short: the new text would be in there twice."""
    return {
        "msgtype": "m.text",
        "body": "* …",
        **_OURS,
        "m.new_content": _text(outbound.text) | _OURS,
        "m.relates_to": {"rel_type": "m.replace", "event_id": receipt},
    }


def file_message(outbound: Outbound, file: Attachment, where: Content) -> Content:
    """`where` says how it is had: an address, or an address and a key."""
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
    """Left out where it would make the event too large: the words are in the body."""
    html = html_of(text)
    if html is None or len(json.dumps([text, html])) > _LARGEST:
        return {}
    return {"format": "org.matrix.custom.html", "formatted_body": html}


def _relation(outbound: Outbound) -> Content:
    """In a thread nothing is quoted: what it says of an answer is for clients that know no threads."""
    answered = {"m.in_reply_to": {"event_id": outbound.reply_to or outbound.thread_id}}
    if outbound.thread_id:
        thread = {"rel_type": "m.thread", "event_id": outbound.thread_id, "is_falling_back": True}
        return {"m.relates_to": {**thread, **answered}}
    return {"m.relates_to": answered} if outbound.reply_to else {}
