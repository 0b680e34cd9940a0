"""Parse what people write to a DingTalk robot."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from palaver.protocols import DM, GROUP, Attachment, Inbound, Label, Labels, Quote, Source, parse_milliseconds
from palaver.protocols.files import named_file

Json = Mapping[str, Any]
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
    content: Any = message.get("text") if message["msgtype"] == "text" else message.get("content")
    return cast("Json", content).get("repliedMsg") or {} if isinstance(content, Mapping) else {}


def _quote(replied: Json, message: Json) -> Quote | None:
    content: Json = replied.get("content") or {}
    pieces: list[Json] = content.get("richText") or [content]
    text = "".join(str(piece.get("text") or piece.get("content") or "") for piece in pieces).strip()
    is_ours = replied.get("senderId") == message.get("chatbotUserId")
    return Quote(text=text, is_ours=is_ours) if text else None


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
        yield named_file(name, handle=str(code))
