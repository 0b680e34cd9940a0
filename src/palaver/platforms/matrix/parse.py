"""From an event in a room to a message, or to the change of one."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from urllib.parse import unquote

import msgspec

from palaver.model.attachment import UNKNOWN_TYPE, Attachment
from palaver.model.label import Label
from palaver.model.source import DM, Labels, Source, Trust
from palaver.model.turn import Inbound, Revision
from palaver.model.value import value
from palaver.platforms.matrix.events import Content, Event, is_name

__all__ = ["Scene", "parse", "trust_in"]

_FILES = frozenset({"m.image", "m.file", "m.audio", "m.video"})
_LAST_MOMENT = 253_402_300_799_000
"""The last millisecond that a calendar knows."""
_FALLBACK = re.compile(r"(?:^> ?[^\n]*\n)+\n?", re.MULTILINE)
_PILL = re.compile(r"""href=["']https://matrix\.to/#/([^"'?/]+)""")


@value
class Scene:
    """What was known of the room, of the sender, and of us when the event came."""

    account: str | None
    us: str
    our_name: str | None
    chat_id: str
    kind: str
    title: str | None
    name: str | None
    threads: bool = True


def trust_in(event: Event) -> Trust:
    """What bots say to people is never answered: notices, and whatever says that a program has written it."""
    return Trust(is_bot=event.content.msgtype == "m.notice" or event.content.automated is True)


def parse(event: Event, scene: Scene) -> Inbound | None:
    """None for what is no message: reactions, changes of the room, and whatever else there is."""
    if event.type == "m.room.redaction":
        return _deletion(event, scene)
    content = event.content
    if event.type == "m.sticker":
        return _message(event, content, scene, files=_files(content))
    if event.type != "m.room.message" or not content.msgtype or content.msgtype.startswith("m.key.verification"):
        return None
    if content.relates_to.rel_type == "m.replace":
        return _edit(event, scene)
    return _message(event, content, scene, files=_files(content) if content.msgtype in _FILES else ())


def _message(event: Event, content: Content, scene: Scene, *, files: tuple[Attachment, ...] = ()) -> Inbound:
    relation = content.relates_to
    in_thread = relation.rel_type == "m.thread"
    answered = relation.in_reply_to if not (in_thread and relation.is_falling_back) else None
    text = _caption(content) if files else _words(content)
    thread = _id(relation.event_id) if in_thread and scene.threads else None
    return Inbound(
        source=_source(event, scene, event.event_id, thread),
        text=_without_our_name(text, content, scene),
        at=_moment(event),
        labels=_labels(scene),
        mentions_us=_mentions_us(content, text, scene),
        reply_to=_id(answered.event_id) if answered else None,
        files=files,
    )


def _edit(event: Event, scene: Scene) -> Inbound | None:
    new, original = event.content.new_content, _id(event.content.relates_to.event_id)
    if new is None or original is None:
        return None
    return Inbound(
        source=_source(event, scene, original, None),
        text=_without_our_name(_caption(new) if new.msgtype in _FILES else _words(new), new, scene),
        at=_moment(event),
        labels=_labels(scene),
        revision=Revision(version=event.event_id),
    )


def _deletion(event: Event, scene: Scene) -> Inbound | None:
    """Newer rooms name what is redacted in the content. Whoever did it, the homeserver has seen that they may."""
    redacted = _id(event.content.redacts or event.redacts)
    if redacted is None:
        return None
    return Inbound(
        source=replace(_source(event, scene, redacted, None), user_id=None),
        text="",
        at=_moment(event),
        labels=_labels(scene),
        revision=Revision(version=event.event_id, deleted=True),
    )


def _id(text: str) -> str | None:
    return text if text and is_name(text) else None


def _source(event: Event, scene: Scene, message_id: str, thread: str | None) -> Source:
    return Source(
        platform="matrix",
        account=scene.account,
        chat_kind=scene.kind,
        chat_id=scene.chat_id,
        thread_id=thread,
        user_id=event.sender,
        message_id=message_id,
    )


def _labels(scene: Scene) -> Labels:
    title = Label(scene.title) if scene.title and scene.kind != DM else None
    return Labels(chat=title, user=Label(scene.name) if scene.name else None)


def _moment(event: Event) -> datetime:
    return datetime.fromtimestamp(min(max(event.origin_server_ts, 0), _LAST_MOMENT) / 1000, UTC)


def _words(content: Content) -> str:
    body = content.body
    if content.relates_to.in_reply_to and body.startswith("> <"):
        body = _FALLBACK.sub("", body, count=1)
    if content.msgtype == "m.emote":
        return f"* {body}"
    return f"[location {content.geo_uri}: {body}]" if content.msgtype == "m.location" else body


def _caption(content: Content) -> str:
    """The body is the name of the file, unless that is said elsewhere."""
    return content.body if content.filename and content.body != content.filename else ""


def _files(content: Content) -> tuple[Attachment, ...]:
    where = content.file or content.url
    if not where:
        return ()
    handle = where if isinstance(where, str) else msgspec.json.encode(where).decode()
    name = Label(content.filename or content.body)
    size = content.info.size if (content.info.size or 0) > 0 else None
    return (Attachment(name, content.info.mimetype or UNKNOWN_TYPE, size, handle=handle),)


def _mentions_us(content: Content, text: str, scene: Scene) -> bool:
    """Who begins with our name speaks to us. Else what a client says of it counts; older ones leave it to the text."""
    if _addressed(text, scene, ":,") is not None:
        return True
    if content.mentions is not None:
        return scene.us in content.mentions.user_ids
    return scene.us in text or scene.us in (unquote(unescape(each)) for each in _PILL.findall(content.formatted_body))


def _without_our_name(text: str, content: Content, scene: Scene) -> str:
    """A mention at the beginning is taken off; where a client says that there is one, it may be the bare name."""
    rest = _addressed(text, scene, ":, " if _mentions_us(content, text, scene) else ":,")
    return text if rest is None else rest


def _addressed(text: str, scene: Scene, ends: str) -> str | None:
    """What follows our name at the beginning: `helper: hi`, `@helper hi`; None where it does not begin so."""
    local = scene.us[1:].partition(":")[0]
    names = {scene.us: ":, ", f"@{local}": ":, "}
    if scene.our_name:
        names |= {f"@{scene.our_name}": ":, ", scene.our_name: ends}
    for name, ending in names.items():
        if text.lower().startswith(name.lower()) and text[len(name) : len(name) + 1] in {*ending, "\n"}:
            return text[len(name) + 1 :].lstrip(" :,\n")
    return None
