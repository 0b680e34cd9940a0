"""Parse Home Assistant's frames and events."""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from palaver.protocols import DM, Inbound, Source, parse_time

Json = Mapping[str, Any]
ACTION = "mobile_app_notification_action"
OURS = "PALAVER"
"""The first word of the names of our buttons. The others are the chat and what the button says."""


AUTOMATION = "automation"
_CHAT = re.compile(r"(?:notify\.)?[a-z0-9_]+")


class Frame(NamedTuple):
    type: str
    id: int
    content: Json


def read_frame(raw: str | bytes) -> Frame:
    found: Json = json.loads(raw)
    return Frame(str(found["type"]), int(found.get("id") or 0), found)


def is_chat(name: str) -> bool:
    return bool(_CHAT.fullmatch(name))


def action_name(chat: str, says: str = "") -> str:
    return f"{OURS}|{chat}|{says}"


def parse(event: Json, account: str, default_chat: str) -> Inbound | None:
    """Parse a message, or a button of ours that somebody pressed; None if it is another's."""
    data: Json = event["data"]
    if event["event_type"] == ACTION:
        mark, chat, says = (*str(data["action"]).split("|", 2), "", "")[:3]
        text = data.get("reply_text") or says
        if mark != OURS or not text:
            return None
    else:
        text, chat = data["text"], str(data.get("notify") or "")
        if isinstance(text, int | float):  # A template that makes a number is a number.
            text = str(text)
    context: Json = event.get("context") or {}
    fired = str(event["time_fired"])
    chat = chat or default_chat
    if not is_chat(chat):
        raise ValueError("it is not the name of a notify action")
    return Inbound(
        source=Source(
            platform="homeassistant",
            account=account,
            chat_kind=DM,
            chat_id=chat,
            # An automation that no user began has no user. It chooses the chat, so that must not be a user's id.
            user_id=str(context.get("user_id") or f"{AUTOMATION}/{chat}"),
            # All events of one run of an automation share a context.
            message_id=f"{context.get('id') or ''} {fired}",
        ),
        text=text,
        at=parse_time(fired),
        mentions_us=True,
    )
