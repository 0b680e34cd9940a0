"""Render notifications: plain text for apps and devices, Markdown for Home Assistant's own pages."""

import re
from typing import Any

from palaver.platforms.homeassistant.options import PERSISTENT
from palaver.platforms.homeassistant.parse import action_name
from palaver.protocols import Outbound, one_line
from palaver.protocols.markdown import Marks, to_marks

MAX_BYTES = 2_000
"""Apple takes four kilobytes for all of a notification."""
_MAX_ACTIONS = 3
_MAX_LABEL = 40
_TEMPLATE = re.compile(r"\{(?=[{%#])")
_INVISIBLE = "\u200b"
_REPLY = "Reply"
_PLAIN = Marks()


def render(outbound: Outbound, receipt: str) -> dict[str, Any]:
    """Return the call of an action. An app shows buttons, and one for a reply."""
    chat, text = outbound.chat_id, outbound.text
    is_page = chat == PERSISTENT
    # Some versions of Home Assistant would run a template in a message. An invisible character breaks it.
    message = _TEMPLATE.sub(f"{{{_INVISIBLE}", text if is_page else to_marks(text, _PLAIN) or text)
    if is_page:
        return _call(PERSISTENT, "create", {"message": message, "notification_id": receipt})
    if chat.startswith("notify."):
        return {**_call("notify", "send_message", {"message": message}), "target": {"entity_id": chat}}
    return _call("notify", chat, {"message": message, "data": {"tag": receipt, "actions": _actions(outbound)}})


def _call(domain: str, service: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"type": "call_service", "domain": domain, "service": service, "service_data": data}


def _actions(outbound: Outbound) -> list[dict[str, str]]:
    """Return the buttons: Android shows three."""
    chat = outbound.chat_id
    buttons = [
        {"action": action_name(chat, choice.says), "title": one_line(choice.label, _MAX_LABEL)}
        for choice in outbound.choices
    ]
    reply = {"action": action_name(chat), "title": _REPLY, "behavior": "textInput"}
    return [*buttons, reply][:_MAX_ACTIONS]
