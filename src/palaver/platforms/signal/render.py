"""Render a message for signal-cli: text with styles, mentions, a quote, and where it goes."""

import re
from collections.abc import Mapping
from typing import TypeAlias

from palaver.platforms.signal.parse import split_message_id
from palaver.protocols import Outbound, Unit
from palaver.protocols.markdown import Layout, Style, to_spans

Json: TypeAlias = Mapping[str, object]

_STYLES = {
    Style.BOLD: "BOLD",
    Style.ITALIC: "ITALIC",
    Style.STRUCK: "STRIKETHROUGH",
    Style.CODE: "MONOSPACE",
    Style.CODE_BLOCK: "MONOSPACE",
}
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PERSON = re.compile(rf"\+[0-9]{{5,15}}|{_UUID}")
_MENTION = re.compile(rf"(?<![\w@])@({_UUID}|\+[0-9]{{5,15}})(?!\w)")


def is_person(chat_id: str) -> bool:
    """Anything that is no number and no account id is a group."""
    return bool(_PERSON.fullmatch(chat_id))


def target(outbound: Outbound) -> Json:
    chat = outbound.chat_id
    return {"recipient": [chat]} if is_person(chat) else {"groupId": chat}


def render(outbound: Outbound) -> Json:
    """Return the parameters of `send`. Ranges count UTF-16 units."""
    shown = to_spans(outbound.text, Layout())
    text, spans = (shown.text, shown.spans) if shown.text.strip() else (outbound.text, ())
    styles = [f"{span.offset}:{span.length}:{_STYLES[span.kind]}" for span in spans if span.length]
    parts = {"message": text, "textStyle": styles, **target(outbound)}
    is_group = "groupId" in parts
    parts |= _quote(outbound.quoted(in_group=is_group))
    if is_group:
        parts |= {"mention": _mentions(text)}
    return {name: value for name, value in parts.items() if value != []}


def _mentions(text: str) -> list[str]:
    """Find people that the agent mentions as messages show them: `@` and an id."""
    return [
        f"{Unit.UTF16.measure(text[: found.start()])}:{len(found[0])}:{found[1]}" for found in _MENTION.finditer(text)
    ]


def _quote(message_id: str | None) -> Json:
    """Quote a person's message. Clients look up the text themselves."""
    timestamp, author = split_message_id(message_id or "")
    return {"quoteTimestamp": timestamp, "quoteAuthor": author} if timestamp and author else {}
