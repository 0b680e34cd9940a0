"""Events of a room as they come, as far as we read them. What strangers send may be anything."""

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = [
    "AUTOMATED",
    "About",
    "Content",
    "Event",
    "Former",
    "Keyed",
    "Mentions",
    "Relation",
    "Replied",
    "Unsigned",
    "content_of",
    "event_of",
    "is_name",
]


AUTOMATED = "org.matrix.msc1767.automated"
"""What says of any message that a program has written it."""
_LONGEST_NAME = 255
"""In bytes: so long may an id be."""


class Replied(msgspec.Struct, frozen=True):
    event_id: str = ""


class Relation(msgspec.Struct, frozen=True):
    rel_type: str = ""
    event_id: str = ""
    in_reply_to: Replied | None = msgspec.field(name="m.in_reply_to", default=None)
    is_falling_back: bool = False


class Mentions(msgspec.Struct, frozen=True):
    user_ids: tuple[str, ...] = ()


class Keyed(msgspec.Struct, frozen=True):
    """Where a file lies and what opens it."""

    url: str
    key: Mapping[str, Any] = {}
    iv: str = ""
    hashes: Mapping[str, str] = {}


class About(msgspec.Struct, frozen=True):
    mimetype: str = ""
    size: int | None = None


class Former(msgspec.Struct, frozen=True):
    room_id: str = ""


class Content(msgspec.Struct, frozen=True):
    msgtype: str = ""
    body: str = ""
    format: str = ""
    formatted_body: str = ""
    filename: str = ""
    url: str = ""
    file: Keyed | None = None
    info: About = About()
    geo_uri: str = ""
    mentions: Mentions | None = msgspec.field(name="m.mentions", default=None)
    relates_to: Relation = msgspec.field(name="m.relates_to", default=Relation())
    new_content: "Content | None" = msgspec.field(name="m.new_content", default=None)
    redacts: str = ""
    replacement_room: str = ""
    membership: str = ""
    automated: Any = msgspec.field(name=AUTOMATED, default=False)
    predecessor: Former = Former()


class Unsigned(msgspec.Struct, frozen=True):
    """What the homeserver adds."""

    prev_content: Content = Content()


class Event(msgspec.Struct, frozen=True):
    type: str
    event_id: str
    sender: str
    origin_server_ts: int = 0
    content: Content = Content()
    redacts: str = ""
    state_key: str | None = None
    unsigned: Unsigned = Unsigned()


def is_name(text: str) -> bool:
    """Whether it can be the id of anything. Strangers put whatever they like in the place of one."""
    return text.isprintable() and len(text.encode()) <= _LONGEST_NAME


def content_of(source: Mapping[str, Any] | None) -> Content:
    """Nothing where there is none, or it is malformed."""
    try:
        return msgspec.convert(source or {}, Content, strict=False)
    except msgspec.ValidationError:
        return Content()


def event_of(source: Mapping[str, Any]) -> Event | None:
    """None for what is no event. Where a part of one is malformed, its words are still read."""
    for attempt in (source, _words_of(source)):
        try:
            return msgspec.convert(attempt, Event, strict=False)
        except msgspec.ValidationError:
            continue
    return None


def _words_of(source: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        content = msgspec.convert(source.get("content"), dict[str, Any])
    except msgspec.ValidationError:
        content = {}
    return {**source, "content": {name: content[name] for name in ("msgtype", "body", AUTOMATED) if name in content}}
