"""Parse the activities of the Bot Framework, as Teams sends them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from html import unescape
from typing import Any, cast

from palaver.model.feedback import rating_of
from palaver.protocols import (
    CHANNEL,
    DM,
    GROUP,
    UNKNOWN_TYPE,
    Attachment,
    Inbound,
    Label,
    Labels,
    NewMessage,
    Quote,
    Reaction,
    Revision,
    Source,
    Trust,
    edit_version,
    parse_time,
)

Json = Mapping[str, Any]
THREAD_MARK = ";messageid="
"""Between the id of a channel and that of the message that began a thread."""
_KINDS = {"personal": DM, "groupChat": GROUP, "channel": CHANNEL}
_CHANGES = {
    ("message", ""): "",
    ("messageUpdate", "editMessage"): "edit",
    ("messageUpdate", "undeleteMessage"): "edit",
    ("messageDelete", "softDeleteMessage"): "delete",
}
_BOT = "28:"
_EMOJI_NUMBER = re.compile(r"(1f[0-9a-f]{3})(?:_|$)")
_SKIN_TONE = re.compile(r"-tone[1-5]$")
_EMOJI_NAMES = {"like": "👍", "yes": "👍", "no": "👎"}
"""In the reactions reference of Teams, 👍 and 👎 of its list of emoji are called `yes` and `no`."""
_DOWNLOAD = "application/vnd.microsoft.teams.file.download.info"
_NO_FILE = "Teams gives bots files in a direct chat only"
_QUOTED = re.compile(
    r'<blockquote\b[^>]*\bitemtype="https?://schema\.skype\.com/Reply"[^>]*>(.*?)</blockquote>', re.DOTALL
)
_ITEM_ID = re.compile(r'\bitemid="([^"]*)"')
_AUTHOR = re.compile(r'<strong\b([^>]*\bitemprop="mri"[^>]*)>(.*?)</strong>', re.DOTALL)
_WORDS = re.compile(r'<p\b[^>]*\bitemprop="(?:copy|preview)"[^>]*>(.*?)</p>', re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_QUOTE_PLACE = re.compile(r'<quoted messageId="[^"]*"\s*/?>(?:</quoted>)?')


def parse(activity: Json, account: str) -> NewMessage | None:
    """Parse an activity; None if nobody says anything."""
    if activity["type"] == "messageReaction":
        return _reaction(activity, account)
    kind, event = str(activity["type"]), _object(activity, "channelData").get("eventType") or ""
    change = _CHANGES.get((kind, event if kind != "message" else ""))
    if change is None:
        return None
    text, mentions_us = _text(activity)
    pressed = _object(activity, "value").get("says")
    at = parse_time(activity["timestamp"])
    sender: Json = activity["from"]
    quoted, quote = _quote(activity)
    inbound = Inbound(
        source=_source(activity, account),
        text="" if change == "delete" else str(pressed) if pressed and not text else text,
        at=at,
        labels=Labels(user=Label.of(sender.get("name")), chat=Label.of(activity["conversation"].get("name"))),
        mentions_us=mentions_us or bool(pressed and not text) or bool(quote and quote.is_ours),
        reply_to=quoted or activity.get("replyToId"),
        quote=quote,
        files=() if change == "delete" else tuple(_files(activity, has_text=bool(text or pressed))),
        revision=_revision(change, at, text),
    )
    return NewMessage(inbound, Trust(is_bot=str(sender["id"]).startswith(_BOT)))


def _reaction(activity: Json, account: str) -> NewMessage | None:
    """Return the first reaction that counts: somebody can change one for another, which adds and removes at once."""
    given = [(each, False) for each in activity.get("reactionsAdded") or ()]
    given += [(each, True) for each in activity.get("reactionsRemoved") or ()]
    signs = [(_emoji(str(each["type"])), removed) for each, removed in given]
    counts = next((sign for sign in signs if rating_of(sign[0])), None)
    if counts is None or not activity.get("replyToId"):
        return None
    inbound = Inbound(
        source=replace(_source(activity, account), message_id=None),
        text="",
        at=parse_time(activity["timestamp"]),
        labels=Labels(user=Label.of(activity["from"].get("name"))),
        reply_to=str(activity["replyToId"]),
        reaction=Reaction(emoji=counts[0], removed=counts[1]),
    )
    return NewMessage(inbound, Trust(is_bot=str(activity["from"]["id"]).startswith(_BOT)))


def _emoji(kind: str) -> str:
    """Return the character: some names begin with its number, as `1f44b_wavinghand-tone2`."""
    number = _EMOJI_NUMBER.match(kind)
    return chr(int(number[1], 16)) if number else _EMOJI_NAMES.get(_SKIN_TONE.sub("", kind), kind)


def _source(activity: Json, account: str) -> Source:
    """A person's id belongs to this bot; the one in the directory is the same everywhere."""
    conversation, sender = activity["conversation"], activity["from"]
    chat, _, thread = str(conversation["id"]).partition(THREAD_MARK)
    return Source(
        platform="teams",
        account=account,
        chat_kind=_KINDS.get(conversation.get("conversationType") or "personal", GROUP),
        chat_id=chat,
        thread_id=thread or None,
        user_id=str(sender["id"]),
        user_id_alt=sender.get("aadObjectId"),
        message_id=str(activity["id"]),
    )


def _text(activity: Json) -> tuple[str, bool]:
    """Return the text with names in place of mentions, without our own in front, and whether we are mentioned."""
    text, mentions_us = _QUOTE_PLACE.sub("", str(activity.get("text") or "")), False
    us = activity["recipient"]["id"]
    for entity in _entities(activity, "mention"):
        who: Json = entity["mentioned"]
        # Not every client says which part of the text it is.
        mark, is_us = str(entity.get("text") or f"<at>{who.get('name') or ''}</at>"), who["id"] == us
        mentions_us |= is_us
        if is_us and text.lstrip().startswith(mark):
            text = text.lstrip()[len(mark) :].lstrip()
        text = text.replace(mark, f"@{who.get('name') or ''}")
    return _decoded(text), mentions_us


def _decoded(text: str) -> str:
    return unescape(text).replace("\xa0", " ").strip()


def _entities(activity: Json, kind: str) -> Iterator[Json]:
    return (each for each in cast("Sequence[Json]", activity.get("entities") or ()) if each.get("type") == kind)


def _quote(activity: Json) -> tuple[str | None, Quote | None]:
    """Return the id of the message that this one quotes, and what Teams shows of it."""
    us = str(activity["recipient"]["id"])
    for entity in _entities(activity, "quotedReply"):
        quoted: Json = entity["quotedReply"]
        author, name = str(quoted.get("senderId") or ""), quoted.get("senderName")
        quote = Quote(text=_decoded(str(quoted.get("preview") or "")), name=Label.of(name), is_ours=author == us)
        return str(quoted["messageId"]), quote if quote.text else None
    for html in _html(activity):
        if block := _QUOTED.search(html):
            message, who, words = _ITEM_ID.search(block[0]), _AUTHOR.search(block[1]), _WORDS.search(block[1])
            author = _ITEM_ID.search(who[1]) if who else None
            name = Label.of(_decoded(_TAG.sub("", who[2]))) if who else None
            is_ours = bool(author and author[1] == us)
            quote = Quote(text=_decoded(_TAG.sub("", words[1] if words else "")), name=name, is_ours=is_ours)
            return message[1] if message else None, quote if quote.text else None
    return None, None


def _html(activity: Json) -> Iterator[str]:
    """Yield the message as HTML, which also has what the text leaves out."""
    for each in cast("Sequence[Json]", activity.get("attachments") or ()):
        if each.get("contentType") == "text/html":
            yield str(each.get("content") or "")


def _revision(change: str, at: datetime, text: str) -> Revision | None:
    if change == "delete":
        return Revision(version="deleted", deleted=True)
    return Revision(version=edit_version(at.isoformat(), text)) if change else None


def _files(activity: Json, *, has_text: bool) -> Iterator[Attachment]:
    """Yield files: in a direct chat one has an address of its own; a picture is at the service.

    In a group or channel only the HTML shows that there was a file, or nothing but an empty message does.
    """
    found = list(_given_files(activity))
    yield from found
    if not found and any("<attachment " in html or not (has_text or html.strip()) for html in _html(activity)):
        yield Attachment(Label("file"), UNKNOWN_TYPE, problem=_NO_FILE)


def _given_files(activity: Json) -> Iterator[Attachment]:
    for each in cast("Sequence[Json]", activity.get("attachments") or ()):
        kind = str(each.get("contentType") or "")
        name = Label(str(each.get("name") or "file"))
        if kind == _DOWNLOAD:
            yield Attachment(name, UNKNOWN_TYPE, handle=str(each["content"]["downloadUrl"]))
        elif kind.startswith("image/") and each.get("contentUrl"):
            media_type = UNKNOWN_TYPE if kind == "image/*" else kind
            yield Attachment(name, media_type, handle=str(each["contentUrl"]))


def _object(found: Json, name: str) -> Json:
    value = found.get(name)
    return cast("Json", value) if isinstance(value, Mapping) else {}
