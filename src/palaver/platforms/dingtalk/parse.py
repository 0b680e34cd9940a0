"""Parse what people write to a DingTalk robot."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

from palaver.protocols import DM, GROUP, Attachment, Inbound, Label, Labels, Quote, Source, parse_milliseconds
from palaver.protocols.files import named_file

Json = Mapping[str, Any]
_WORDS = ("text", "content", "recognition", "summary", "title", "fileName")
"""Where a quoted message has its words, by its kind."""
_NAMES = {"picture": "image.png", "audio": "voice.amr", "video": "video.mp4"}


def parse(message: Json, account: str) -> Inbound:
    is_group = str(message["conversationType"]) == "2"
    # A robot writes to people under their id in the company; guests have none.
    sender = str(message.get("senderStaffId") or message["senderId"])
    title = message.get("conversationTitle") if is_group else None
    replied = _replied(message)
    return Inbound(
        source=Source(
            platform="dingtalk",
            account=account,
            chat_kind=GROUP if is_group else DM,
            chat_id=str(message["conversationId"]) if is_group else sender,
            user_id=sender,
            message_id=str(message["msgId"]),
        ),
        text=_text(message),
        at=parse_milliseconds(message["createAt"]),
        labels=Labels(user=Label.of(message.get("senderNick")), chat=Label.of(title)),
        # In a group, DingTalk sends only what mentions the robot, without the mention.
        mentions_us=is_group,
        # Of a message of ours we know only the key of its sending.
        reply_to=message.get("originalProcessQueryKey") or message.get("originalMsgId") or replied.get("msgId"),
        quote=_quote(replied, message),
        files=tuple(_files(message)),
    )


def _replied(message: Json) -> Json:
    """Return the message that this one replies to. It comes inside the content, if at all."""
    for name in ("text", "content"):
        if replied := _object(message, name).get("repliedMsg"):
            return cast("Json", replied)
    return {}


def _object(message: Json, name: str) -> Json:
    """Return an object, which some versions of the API send as text."""
    found: Any = message.get(name)
    if isinstance(found, str):
        with suppress(ValueError, RecursionError):
            found = json.loads(found)
    return cast("Json", found) if isinstance(found, Mapping) else {}


def _quote(replied: Json, message: Json) -> Quote | None:
    content, plain = _object(replied, "content"), replied.get("content")
    pieces: list[Json] = content.get("richText") or [content]
    words = [next((str(piece[name]) for name in _WORDS if piece.get(name)), "") for piece in pieces]
    text = "".join(words).strip() or (plain if isinstance(plain, str) and not content else "")
    is_ours = replied.get("senderId") == message.get("chatbotUserId")
    return Quote(text=text, is_ours=is_ours) if text else None


def _text(message: Json) -> str:
    match message["msgtype"]:
        case "text":
            return str(message["text"]["content"]).removeprefix(" ")
        case "richText":
            pieces: list[Json] = _object(message, "content")["richText"]
            return "".join(str(piece.get("text") or "") for piece in pieces).strip()
        case "audio":
            return str(_object(message, "content").get("recognition") or "")
        case "picture" | "video" | "file":
            return ""
        case _:
            return "[content that cannot be shown here]"


def _files(message: Json) -> Iterator[Attachment]:
    kind, content = message["msgtype"], _object(message, "content")
    pieces: list[Json] = content["richText"] if kind == "richText" else []
    codes = [piece["downloadCode"] for piece in pieces if piece.get("downloadCode")]
    name = _NAMES["picture"]
    if kind in {"picture", "audio", "video", "file"}:
        codes = [content["downloadCode"]]
        name = str(content.get("fileName") or _NAMES.get(kind, "file"))
    for code in codes:
        yield named_file(name, handle=str(code))
