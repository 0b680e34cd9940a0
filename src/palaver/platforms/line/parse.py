"""Parse LINE's webhooks. One call can bring several events."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple, cast

from palaver.protocols import DM, GROUP, Attachment, Inbound, Label, Revision, Source, edit_version, parse_milliseconds
from palaver.protocols.files import named_file

Json = Mapping[str, Any]
_FILES = {"image": "image.jpg", "video": "video.mp4", "audio": "voice.m4a", "file": "file"}


class Event(NamedTuple):
    inbound: Inbound
    reply_token: str | None = None
    quote_token: str | None = None
    """With it, an answer can quote the message. It does not expire."""


def parse(event: Json, account: str) -> Event | None:
    """Parse an event; None if nobody says anything, or another program answers."""
    if event.get("mode") == "standby":
        return None
    kind = event["type"]
    place = _place(event["source"], account)
    at = parse_milliseconds(event["timestamp"])
    token = event.get("replyToken")
    if kind == "message":
        return Event(_message(event["message"], place, at), token, event["message"].get("quoteToken"))
    if kind == "messageEdited":
        edited = _message(event["message"], place, at)
        revision = Revision(version=edit_version(at.isoformat(), edited.text))
        return Event(replace(edited, revision=revision), token, event["message"].get("quoteToken"))
    if kind == "unsend":
        source = Source(**place, message_id=str(event["unsend"]["messageId"]))
        return Event(Inbound(source=source, text="", at=at, revision=Revision(version="unsent", deleted=True)))
    if kind == "postback":
        source = Source(**place, message_id=str(event["webhookEventId"]))
        return Event(Inbound(source=source, text=str(event["postback"]["data"]), at=at, mentions_us=True), token)
    return None


def _place(source: Json, account: str) -> dict[str, str]:
    """In a group, LINE does not always say who it was."""
    user = source.get("userId")
    chat = source.get("groupId") or source.get("roomId") or user
    kind = DM if source["type"] == "user" else GROUP
    ids = {"platform": "line", "account": account, "chat_kind": kind, "chat_id": str(chat)}
    return {**ids, **({"user_id": str(user)} if user else {})}


def _message(said: Json, place: dict[str, str], at: datetime) -> Inbound:
    text, mentions_us = _text(said)
    return Inbound(
        source=Source(**place, message_id=str(said["id"])),
        text=text,
        at=at,
        mentions_us=mentions_us,
        reply_to=said.get("quotedMessageId"),
        files=tuple(_files(said)),
        # An album: its pictures come as messages of their own.
        burst=_object(said, "imageSet").get("id"),
    )


def _object(said: Json, name: str) -> Json:
    return cast("Json", said.get(name) or {})


def _text(said: Json) -> tuple[str, bool]:
    """Return the text without a mention of us in front, and whether there is one."""
    match said["type"]:
        case "text":
            return _without_our_name(said)
        case "sticker":
            return f"[sticker {', '.join(said.get('keywords') or ())}".rstrip() + "]", False
        case "location":
            where = f"{said.get('latitude')}, {said.get('longitude')} {said.get('title') or said.get('address') or ''}"
            return f"[location {where.strip()}]", False
        case kind:
            return "" if kind in _FILES else "[content that cannot be shown here]", False


def _without_our_name(said: Json) -> tuple[str, bool]:
    text = str(said["text"])
    people: list[Json] = _object(said, "mention").get("mentionees") or []
    ours = [each for each in people if each.get("isSelf")]
    # LINE counts in UTF-16 units.
    units = text.encode("utf-16-le", "surrogatepass")
    for each in ours:
        if int(each["index"]) == 0:
            text = units[2 * int(each["length"]) :].decode("utf-16-le", "replace").lstrip()
    return text, bool(ours)


def _files(said: Json) -> Iterator[Attachment]:
    """Yield a file. LINE does not have those that an app shares from its own server, and anybody can name one there."""
    kind = said["type"]
    if kind not in _FILES:
        return
    name, provider = str(said.get("fileName") or _FILES[kind]), _object(said, "contentProvider")
    file = named_file(name, said.get("fileSize"), handle=str(said["id"]))
    if provider.get("type", "line") == "line":
        yield file
    else:
        where = Label(str(provider.get("originalContentUrl") or "")).plain()
        yield file._replace(handle=None, problem=f"it is not on LINE's servers, but at {where or 'another place'}")
