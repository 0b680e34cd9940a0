"""Render messages for LINE: plain text, with choices as quick replies."""

from typing import Any

from palaver.protocols import Outbound, Unit, one_line
from palaver.protocols.markdown import Layout, to_spans

MAX_TEXT = 5000
_MAX_CHOICES = 13
_MAX_LABEL = 20
_LAYOUT = Layout(is_even=False)


def plain_text(text: str) -> str:
    shown = to_spans(text, _LAYOUT).text.strip()
    return shown if shown and Unit.UTF16.measure(shown) <= MAX_TEXT else text


def render(outbound: Outbound, quote_token: str | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"type": "text", "text": plain_text(outbound.text)}
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
