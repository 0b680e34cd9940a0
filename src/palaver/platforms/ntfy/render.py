"""Render messages for ntfy, which shows Markdown, and choices as buttons that publish an answer."""

from typing import Any

from palaver.platforms.ntfy.parse import ROBOT
from palaver.protocols import Outbound, one_line

MAX_BYTES = 4096
MAX_FILE_BYTES = 15_000_000
_MAX_CHOICES = 3
_MAX_LABEL = 40


def render(outbound: Outbound, server: str, *, has_buttons: bool) -> dict[str, Any]:
    """Return what to publish. A button is pressed without our token, so a protected topic has none."""
    message = {"topic": outbound.chat_id, "message": outbound.text, "tags": [ROBOT], "markdown": True}
    if not outbound.choices or not has_buttons:
        return message
    actions = [
        {
            "action": "http",
            "label": one_line(choice.label, _MAX_LABEL),
            "url": f"{server}/{outbound.chat_id}",
            "method": "POST",
            "body": choice.says,
            "clear": True,
        }
        for choice in outbound.choices[:_MAX_CHOICES]
    ]
    return {**message, "actions": actions}
