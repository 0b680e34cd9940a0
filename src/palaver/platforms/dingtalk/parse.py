"""Parse what people write to a DingTalk robot."""

import mimetypes
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from palaver.protocols import DM, GROUP, UNKNOWN_TYPE, Attachment, Inbound, Label, Labels, Source

Json = Mapping[str, Any]
_NAMES = {"picture": "image.png", "audio": "voice.amr", "video": "video.mp4"}


def parse(message: Json, account: str) -> Inbound:
    is_group = str(message["conversationType"]) == "2"
    # A robot writes to people under their id in the company; guests have none.
    sender = str(message.get("senderStaffId") or message["senderId"])
    title = message.get("conversationTitle")
    nick = message.get("senderNick")
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
        at=datetime.fromtimestamp(int(message["createAt"]) / 1000, UTC),
        labels=Labels(user=Label(str(nick)) if nick else None, chat=Label(str(title)) if is_group and title else None),
        # In a group, DingTalk sends only what mentions the robot, without the mention.
        mentions_us=is_group,
        files=tuple(_files(message)),
    )


def _text(message: Json) -> str:
    match message["msgtype"]:
        case "text":
            return str(message["text"]["content"]).removeprefix(" ")
        case "richText":
            pieces: list[Json] = message["content"]["richText"]
            return "".join(str(piece.get("text") or "") for piece in pieces).strip()
        case "audio":
            return str(message["content"].get("recognition") or "")
        case "picture" | "video" | "file":
            return ""
        case _:
            return "[content that cannot be shown here]"


def _files(message: Json) -> Iterator[Attachment]:
    kind = message["msgtype"]
    pieces: list[Json] = message["content"]["richText"] if kind == "richText" else []
    codes = [piece["downloadCode"] for piece in pieces if piece.get("downloadCode")]
    name = _NAMES["picture"]
    if kind in {"picture", "audio", "video", "file"}:
        codes = [message["content"]["downloadCode"]]
        name = str(message["content"].get("fileName") or _NAMES.get(kind, "file"))
    for code in codes:
        yield Attachment(Label(name), mimetypes.guess_type(name)[0] or UNKNOWN_TYPE, handle=str(code))
