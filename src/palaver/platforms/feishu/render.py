"""Render messages as Feishu's cards: they show Markdown and buttons, and can be updated as often as needed."""

import json
import re
from typing import Any

from palaver.protocols import Attachment, Outbound, one_line
from palaver.protocols.markdown import Layout, Marks, is_web_link, to_marks

MAX_IMAGE_BYTES, MAX_FILE_BYTES = 10_000_000, 30_000_000
_MAX_CARD_BYTES = 28_000
"""Feishu takes 30 KB."""
_MAX_LABEL = 40
_SPECIAL = re.compile(r"[&<>*_~`\[\]()#|\\]")
_KINDS = {"pdf": "pdf", "doc": "doc", "docx": "doc", "xls": "xls", "xlsx": "xls", "ppt": "ppt", "pptx": "ppt"}


def _escape(text: str) -> str:
    """Write what means something in a card as an entity, mentions such as <at id=all> included."""
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", text)


_MARKS = Marks(
    bold="**",
    italic="*",
    struck="~~",
    code="`",
    code_block="```",
    has_languages=True,
    link=lambda url: ("[", f"]({url.replace(')', '%29').replace(' ', '%20')})"),
    escape=_escape,
    layout=Layout(bullet="- ", is_linked=is_web_link),
)


def render_text(text: str) -> str:
    shown = to_marks(text, _MARKS)
    return shown if shown.strip() and len(shown.encode()) <= _MAX_CARD_BYTES else _escape(text)


def render(outbound: Outbound) -> str:
    """Return the content of a card."""
    # A press does not say in which topic the card is.
    place = {"thread": outbound.thread_id} if outbound.thread_id else {}
    elements: list[dict[str, Any]] = [{"tag": "markdown", "content": render_text(outbound.text)}]
    elements += [
        {
            "tag": "button",
            "text": {"tag": "plain_text", "content": one_line(choice.label, _MAX_LABEL)},
            "behaviors": [{"type": "callback", "value": {"says": choice.says, **place}}],
        }
        for choice in outbound.choices
    ]
    card = {"schema": "2.0", "config": {"update_multi": True}, "body": {"elements": elements}}
    return json.dumps(card, ensure_ascii=False)


def file_kind(file: Attachment) -> str:
    """Return what the upload of a file is called; `stream` for anything."""
    return _KINDS.get(file.name.plain().rpartition(".")[2].lower(), "stream")
