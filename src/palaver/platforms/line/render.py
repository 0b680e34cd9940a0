"""Render messages for LINE: plain text, with choices as quick replies."""

from typing import Any

from palaver.protocols import Outbound, Unit, one_line
from palaver.protocols.markdown import to_plain

MAX_TEXT = 5000
_MAX_CHOICES = 13
_MAX_LABEL = 20


def render(outbound: Outbound, quote_token: str | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"type": "text", "text": to_plain(outbound.text, MAX_TEXT, Unit.UTF16)}
    if quote_token:
        message["quoteToken"] = quote_token
    if outbound.choices:
        items = [
            {
                "type": "action",
                "action": {
                    "type": "postback",
                    "label": one_line(choice.label, _MAX_LABEL),
                    "data": choice.says,
                    "displayText": choice.label,
                },
            }
            for choice in outbound.choices[:_MAX_CHOICES]
        ]
        message["quickReply"] = {"items": items}
    return message
