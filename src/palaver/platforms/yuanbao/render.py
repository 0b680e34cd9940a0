"""Render messages for Yuanbao: it shows Markdown as it is written, and mentions as parts of their own."""

import hashlib
import json
import re
from collections.abc import Mapping

from palaver.platforms.yuanbao.wire import elements
from palaver.protocols import Outbound
from palaver.protocols.protobuf import encode

GROUP_PREFIX = "group/"
"""Of a chat id: groups and people have different numbers."""
_MENTION = re.compile(r"<@([^<>\s]{1,200})>")
MENTION = 1002
"""The type of a custom element that is a mention."""


def body_of(text: str, names: Mapping[str, str]) -> list[bytes]:
    """Return the parts of a text; `<@id>` of somebody we have met is a mention."""
    parts: list[tuple[str, bytes]] = []
    at = 0
    for found in _MENTION.finditer(text):
        if found[1] in names:
            parts += _text(text[at : found.start()])
            mention = {"elem_type": MENTION, "text": f"@{names[found[1]]}", "user_id": found[1]}
            parts.append(("TIMCustomElem", encode((4, json.dumps(mention, ensure_ascii=False)))))
            at = found.end()
    return elements([*parts, *_text(text[at:])])


def _text(text: str) -> list[tuple[str, bytes]]:
    return [("TIMTextElem", encode((1, text)))] if text else []


def render(outbound: Outbound, body: list[bytes], *, us: str, key: str, met_in: str = "") -> tuple[str, bytes]:
    """Return the command and its data. `met_in` is the group in which we met a person to whom it is private."""
    digest = hashlib.sha256(key.encode()).digest()
    message_id, random = digest.hex()[:32], int.from_bytes(digest[:4], "big")
    if outbound.chat_id.startswith(GROUP_PREFIX):
        group = outbound.chat_id.removeprefix(GROUP_PREFIX)
        parts = [(6, part) for part in body]
        head = ((1, message_id), (2, group), (3, us), (5, str(random)))
        return "send_group_message", encode(*head, *parts, (7, outbound.quoted(in_group=True) or ""))
    parts = [(5, part) for part in body]
    return "send_c2c_message", encode((1, message_id), (2, outbound.chat_id), (3, us), (4, random), *parts, (6, met_in))


def receipt_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]
