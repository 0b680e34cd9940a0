"""Render messages with Google Chat's marks, and choices as a card with buttons."""

import re
from typing import Any

from palaver.platforms.googlechat.parse import PRESSED
from palaver.protocols import Outbound, one_line
from palaver.protocols.markdown import Layout, Marks, is_web_link, to_marks

MAX_TEXT = 4096
_MAX_LABEL = 40
_SPECIAL = re.compile(r"<(?=users/|https?:|mailto:)", re.IGNORECASE)


def _escape(text: str) -> str:
    """Google Chat has no escapes. Only what would mention people or hide an address is changed."""
    return _SPECIAL.sub("‹", text)  # noqa: RUF001


_MARKS = Marks(
    bold="*",
    italic="_",
    struck="~",
    code="`",
    code_block="```",
    link=lambda url: (f"<{url.replace('|', '%7C').replace('>', '%3E')}|", ">"),
    escape=_escape,
    escape_code=_escape,
    layout=Layout(bullet="• ", is_linked=is_web_link),
)


def render_text(text: str) -> str:
    shown = to_marks(text, _MARKS)
    return shown if shown.strip() and len(shown) <= MAX_TEXT else _escape(text)


def render(outbound: Outbound) -> dict[str, Any]:
    """Return text and cards. Cards are always there: an edit without them would keep the old buttons."""
    buttons = [
        {
            "text": one_line(choice.label, _MAX_LABEL),
            "onClick": {"action": {"function": PRESSED, "parameters": [{"key": "says", "value": choice.says}]}},
        }
        for choice in outbound.choices
    ]
    card = {"sections": [{"widgets": [{"buttonList": {"buttons": buttons}}]}]}
    cards = [{"cardId": PRESSED, "card": card}] if buttons else []
    return {"text": render_text(outbound.text), "cardsV2": cards}
