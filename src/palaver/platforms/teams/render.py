"""Render messages for Teams: HTML, which has no tables there, and choices as a card with buttons."""

from html import escape
from typing import Any

from palaver.protocols import Outbound, one_line
from palaver.protocols.markdown import to_html

MAX_TEXT_BYTES = 16_000
_MAX_BYTES = 25_000
"""Teams takes about 80 KB as UTF-16, and took 40 KB for long."""
_MAX_CHOICES = 6
_MAX_LABEL = 40
_LOOKALIKES = str.maketrans({"&": "+", "<": "‹", ">": "›", "\n": " "})  # noqa: RUF001
_CARD = "application/vnd.microsoft.card.adaptive"


def render_text(text: str) -> str:
    plain = escape(text, quote=False).replace("\n", "<br>")
    candidates = (to_html(text, has_tables=False) or plain, plain, text.translate(_LOOKALIKES))
    return next((shown for shown in candidates if len(shown.encode()) <= _MAX_BYTES), "…")


def render(outbound: Outbound) -> dict[str, Any]:
    message: dict[str, Any] = {"type": "message", "text": render_text(outbound.text), "textFormat": "xml"}
    if not outbound.choices:
        return message
    actions = [
        {"type": "Action.Submit", "title": one_line(choice.label, _MAX_LABEL), "data": {"says": choice.says}}
        for choice in outbound.choices[:_MAX_CHOICES]
    ]
    card = {"type": "AdaptiveCard", "version": "1.4", "body": [], "actions": actions}
    return {**message, "attachments": [{"contentType": _CARD, "content": card}]}
