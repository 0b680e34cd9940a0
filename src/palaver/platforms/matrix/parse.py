"""Read room events, and turn them into messages, edits and deletions. All content is untrusted."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from html import unescape
from typing import Any
from urllib.parse import unquote

import msgspec

from palaver.protocols import (
    DM,
    UNKNOWN_TYPE,
    Attachment,
    Inbound,
    Label,
    Labels,
    Reaction,
    Revision,
    Source,
    Trust,
    after_name,
    parse_milliseconds,
    value,
)

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
    membership: str = ""
    automated: Any = msgspec.field(name=AUTOMATED, default=False)


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


_FILES = frozenset({"m.image", "m.file", "m.audio", "m.video"})
_MAX_TIMESTAMP_MS = 253_402_300_799_000
"""The end of the year 9999."""
_FALLBACK = re.compile(r"(?:^> ?[^\n]*\n)+\n?", re.MULTILINE)
_PILL = re.compile(r"""href=["']https://matrix\.to/#/([^"'?/]+)""")


@value
class EventContext:
    """What we knew of the room, the sender and ourselves when the event came."""

    account: str | None
    us: str
    our_name: str | None
    chat_id: str
    kind: str
    title: str | None
    name: str | None
    topic: str | None = None


def trust_of(event: Event) -> Trust:
    """Return that a bot wrote it for notices and messages marked as automated: these are never answered."""
    return Trust(is_bot=event.content.msgtype == "m.notice" or event.content.automated is True)


def parse(event: Event, context: EventContext) -> Inbound | None:
    """Return the message or reaction; None for state changes and other events."""
    if event.type == "m.room.redaction":
        return _deletion(event, context)
    content = event.content
    if event.type == "m.reaction":
        return _reaction(event, context)
    if event.type == "m.sticker":
        return _message(event, content, context, files=_files(content))
    if event.type != "m.room.message" or not content.msgtype or content.msgtype.startswith("m.key.verification"):
        return None
    if content.relates_to.rel_type == "m.replace":
        return _edit(event, context)
    return _message(event, content, context, files=_files(content) if content.msgtype in _FILES else ())


def _message(event: Event, content: Content, context: EventContext, *, files: tuple[Attachment, ...] = ()) -> Inbound:
    relation = content.relates_to
    in_thread = relation.rel_type == "m.thread"
    answered = relation.in_reply_to if not (in_thread and relation.is_falling_back) else None
    text = _caption(content) if files else text_of(content)
    thread = _id(relation.event_id) if in_thread else None
    return Inbound(
        source=_source(event, context, event.event_id, thread),
        text=_without_our_name(text, content, context),
        at=_time_of(event),
        labels=_labels(context),
        mentions_us=_mentions_us(content, text, context),
        reply_to=_id(answered.event_id) if answered else None,
        files=files,
    )


def _edit(event: Event, context: EventContext) -> Inbound | None:
    new = event.content.new_content
    original = _id(event.content.relates_to.event_id)
    if new is None or original is None:
        return None
    return Inbound(
        source=_source(event, context, original, None),
        text=_without_our_name(_caption(new) if new.msgtype in _FILES else text_of(new), new, context),
        at=_time_of(event),
        labels=_labels(context),
        revision=Revision(version=event.event_id),
    )


def _reaction(event: Event, context: EventContext) -> Inbound | None:
    relation = event.content.relates_to
    target = _id(relation.event_id) if relation.rel_type == "m.annotation" else None
    if target is None or not relation.key:
        return None
    return Inbound(
        source=replace(_source(event, context, event.event_id, None), message_id=None),
        text="",
        at=_time_of(event),
        labels=_labels(context),
        reply_to=target,
        reaction=Reaction(emoji=relation.key),
    )


def take_back(redaction: Event, reaction: Event, context: EventContext) -> Inbound | None:
    """Return that a reaction was taken back, which a moderator can do too: nobody thinks so any more."""
    given = _reaction(reaction, context)
    if given is None or given.reaction is None:
        return None
    return replace(given, at=_time_of(redaction), reaction=replace(given.reaction, removed=True))


def redacted_id(event: Event) -> str | None:
    """Newer rooms have the redacted id in the content."""
    return _id(event.content.redacts or event.redacts) if event.type == "m.room.redaction" else None


def _deletion(event: Event, context: EventContext) -> Inbound | None:
    """The homeserver has checked the permission."""
    redacted = redacted_id(event)
    if redacted is None:
        return None
    return Inbound(
        source=replace(_source(event, context, redacted, None), user_id=None),
        text="",
        at=_time_of(event),
        labels=_labels(context),
        revision=Revision(version=event.event_id, deleted=True),
    )


def _id(text: str) -> str | None:
    return text if text and is_valid_id(text) else None


def _source(event: Event, context: EventContext, message_id: str, thread: str | None) -> Source:
    return Source(
        platform="matrix",
        account=context.account,
        chat_kind=context.kind,
        chat_id=context.chat_id,
        thread_id=thread,
        user_id=event.sender,
        message_id=message_id,
    )


def _labels(context: EventContext) -> Labels:
    """Return the names. In a direct chat the room's own are left out."""
    title, topic = (None, None) if context.kind == DM else (context.title, context.topic)
    return Labels(chat=Label.of(title), user=Label.of(context.name), topic=Label.of(topic))


def _time_of(event: Event) -> datetime:
    return parse_milliseconds(min(max(event.origin_server_ts, 0), _MAX_TIMESTAMP_MS))


def text_of(content: Content) -> str:
    body = content.body
    if content.relates_to.in_reply_to and body.startswith("> <"):
        body = _FALLBACK.sub("", body, count=1)
    if content.msgtype == "m.emote":
        return f"* {body}"
    return f"[location {content.geo_uri}: {body}]" if content.msgtype == "m.location" else body


def _caption(content: Content) -> str:
    """Return the caption: the body, unless it is only the file name."""
    return content.body if content.filename and content.body != content.filename else ""


def _files(content: Content) -> tuple[Attachment, ...]:
    where = content.file or content.url
    if not where:
        return ()
    handle = where if isinstance(where, str) else msgspec.json.encode(where).decode()
    name = Label(content.filename or content.body)
    size = content.info.size if (content.info.size or 0) > 0 else None
    return (Attachment(name, content.info.mimetype or UNKNOWN_TYPE, size, handle=handle),)


def _mentions_us(content: Content, text: str, context: EventContext) -> bool:
    """Return whether the text begins with our name, or the client lists us as mentioned; older clients only link us."""
    if _after_our_name(text, context, ":,") is not None:
        return True
    if content.mentions is not None:
        return context.us in content.mentions.user_ids
    return context.us in text or context.us in (
        unquote(unescape(link)) for link in _PILL.findall(content.formatted_body)
    )


def _without_our_name(text: str, content: Content, context: EventContext) -> str:
    """Remove a mention from the beginning: if the client says that there is one, even a bare name."""
    rest = _after_our_name(text, context, ":, " if _mentions_us(content, text, context) else ":,")
    return text if rest is None else rest


def _after_our_name(text: str, context: EventContext, ends: str) -> str | None:
    """Return what follows our name at the beginning (`helper: hi`, `@helper hi`), or None."""
    local = context.us[1:].partition(":")[0]
    ours = context.our_name
    rest = after_name(text, (context.us, f"@{local}", *((f"@{ours}",) if ours else ())))
    return after_name(text, (ours,), ends) if rest is None and ours else rest
