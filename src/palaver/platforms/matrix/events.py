"""Room events: the fields that we read. All content is untrusted."""

from collections.abc import Mapping
from typing import Any

import msgspec

AUTOMATED = "org.matrix.msc1767.automated"
"""Marks a message as written by a program."""
_MAX_ID_BYTES = 255
_MALFORMED = (msgspec.ValidationError, UnicodeError)
"""Half a surrogate pair where no text belongs is not even a validation error."""


class ReplyTarget(msgspec.Struct, frozen=True):
    event_id: str = ""


class Relation(msgspec.Struct, frozen=True):
    rel_type: str = ""
    event_id: str = ""
    key: str = ""
    """The emoji of a reaction."""
    in_reply_to: ReplyTarget | None = msgspec.field(name="m.in_reply_to", default=None)
    is_falling_back: bool = False


class Mentions(msgspec.Struct, frozen=True):
    user_ids: tuple[str, ...] = ()


class EncryptedFile(msgspec.Struct, frozen=True):
    url: str
    key: Mapping[str, Any] = {}
    iv: str = ""
    hashes: Mapping[str, str] = {}


class FileInfo(msgspec.Struct, frozen=True):
    mimetype: str = ""
    size: int | None = None


class Predecessor(msgspec.Struct, frozen=True):
    room_id: str = ""


class Content(msgspec.Struct, frozen=True):
    msgtype: str = ""
    body: str = ""
    format: str = ""
    formatted_body: str = ""
    filename: str = ""
    url: str = ""
    file: EncryptedFile | None = None
    info: FileInfo = FileInfo()
    geo_uri: str = ""
    mentions: Mentions | None = msgspec.field(name="m.mentions", default=None)
    relates_to: Relation = msgspec.field(name="m.relates_to", default=Relation())
    new_content: "Content | None" = msgspec.field(name="m.new_content", default=None)
    redacts: str = ""
    replacement_room: str = ""
    membership: str = ""
    automated: Any = msgspec.field(name=AUTOMATED, default=False)
    predecessor: Predecessor = Predecessor()


class Unsigned(msgspec.Struct, frozen=True):
    """Added by the homeserver."""

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


def is_valid_id(text: str) -> bool:
    """Return whether the text can be an id; ids in events are untrusted."""
    return text.isprintable() and len(text.encode()) <= _MAX_ID_BYTES


def parse_content(source: Mapping[str, Any] | None) -> Content:
    """Parse content; empty if there is none or it is malformed."""
    try:
        return msgspec.convert(source or {}, Content, strict=False)
    except _MALFORMED:
        return Content()


def parse_event(source: Mapping[str, Any]) -> Event | None:
    """Parse an event; None if it is not one. If a part is malformed, at least the text is read."""
    for attempt in (source, _text_only(source)):
        try:
            return msgspec.convert(attempt, Event, strict=False)
        except _MALFORMED:
            continue
    return None


def _text_only(source: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        content = msgspec.convert(source.get("content"), dict[str, Any])
    except _MALFORMED:
        content = {}
    return {**source, "content": {name: content[name] for name in ("msgtype", "body", AUTOMATED) if name in content}}
