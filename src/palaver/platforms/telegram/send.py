"""What is owed, as the Bot API takes it: where to, in reply to what, with which buttons, as which kind of file."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from telegram import (
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    LinkPreviewOptions,
    MessageEntity,
    ReplyParameters,
)

from palaver.model.attachment import Attachment, format_size
from palaver.model.turn import Outbound
from palaver.platforms.telegram.errors import Refusal
from palaver.platforms.telegram.parse import button_data
from palaver.platforms.telegram.render import Mark, Rendered, render
from palaver.protocols.adapter import SendRefused

__all__ = [
    "LONGEST_CAPTION",
    "LONGEST_TEXT",
    "NO_PREVIEW",
    "buttons",
    "entities",
    "is_shared",
    "kind_of_file",
    "message_number",
    "placed",
    "rendered",
    "thread",
    "upload",
]

LONGEST_TEXT = 4096
LONGEST_CAPTION = 1024
NO_PREVIEW = LinkPreviewOptions(is_disabled=True)
"""For a preview Telegram fetches the address: whoever talks an agent into writing one would be told what is in it."""
_LARGEST_SENT = 50_000_000
_LARGEST_PHOTO = 10_000_000
_LONGEST_CHOICE = 64
_GENERAL = "1"
"""The topic that has no number where messages come from it, and takes none where they go to it."""
_TAKES_NOTHING = ("message thread not found", "topic_closed", "topic_deleted")
_KINDS = {
    "image/jpeg": "photo",
    "image/png": "photo",
    "image/webp": "photo",
    "image/gif": "animation",
    "video/mp4": "video",
    "audio/ogg": "voice",
    "audio/mpeg": "audio",
    "audio/mp4": "audio",
}

T = TypeVar("T")


async def placed(outbound: Outbound, sending: Callable[[dict[str, Any]], Awaitable[T]]) -> T:
    """Send it to its topic, and to the chat itself where the topic takes nothing any more."""
    where = _place(outbound)
    try:
        return await sending(where)
    except Refusal as refusal:
        if where["message_thread_id"] is None or not refusal.says(*_TAKES_NOTHING):
            raise
        # What answers a message goes where that stands: into the topic.
        return await sending(_place(replace(outbound, thread_id=None, reply_to=None)))


def _place(outbound: Outbound) -> dict[str, Any]:
    """Where it goes. In a chat with one person nobody needs to be told what is answered."""
    answered = message_number(outbound.reply_to) if is_shared(outbound) else None
    reply = ReplyParameters(answered, allow_sending_without_reply=True) if answered else None
    return {"chat_id": outbound.chat_id, "message_thread_id": thread(outbound), "reply_parameters": reply}


def is_shared(outbound: Outbound) -> bool:
    """Whether it goes to a group or a channel: their numbers are below zero."""
    return outbound.chat_id.startswith("-")


def thread(outbound: Outbound) -> int | None:
    if outbound.thread_id in {None, _GENERAL}:
        return None
    number = message_number(outbound.thread_id)
    if number is None:
        raise SendRefused("there is no such topic: the number of one is wanted, like 42")
    return number


def message_number(text: str | None) -> int | None:
    """What Telegram counts: messages and topics. A pressed button is none of them."""
    return int(text) if text and text.isascii() and text.isdigit() else None


def buttons(outbound: Outbound) -> InlineKeyboardMarkup | None:
    """One row; what is too long for a button can be typed."""
    whole = ((choice, button_data(choice.says, thread(outbound))) for choice in outbound.choices if _fits(choice.says))
    row = [
        InlineKeyboardButton(choice.label, callback_data=data if _fits(data) else choice.says) for choice, data in whole
    ]
    return InlineKeyboardMarkup([row]) if row else None


def _fits(data: str) -> bool:
    return len(data.encode()) <= _LONGEST_CHOICE


async def rendered(text: str, room: int, sending: Callable[[Rendered], Awaitable[T]]) -> T:
    """Send it rendered, and as it was written where Telegram does not take the marks."""
    shown = render(text, room)
    try:
        return await sending(shown)
    except Refusal as refusal:
        if not shown.marks or not refusal.says("entit"):
            raise
        return await sending(Rendered(text))


def entities(marks: Sequence[Mark]) -> list[MessageEntity]:
    return [
        MessageEntity(
            mark.kind,
            mark.offset,
            mark.length,
            url=mark.detail if mark.kind == "text_link" else None,
            language=(mark.detail or None) if mark.kind == "pre" else None,
        )
        for mark in marks
    ]


def kind_of_file(file: Attachment, content: Path) -> str:
    """As what people are shown it; whatever has no way of its own is a document."""
    size = content.stat().st_size
    if size > _LARGEST_SENT:
        raise SendRefused(f"bots may send files of {format_size(_LARGEST_SENT)} at most, not {format_size(size)}")
    kind = _KINDS.get(file.media_type, "document")
    return "document" if kind == "photo" and size > _LARGEST_PHOTO else kind


def upload(file: Attachment, content: Path) -> InputFile:
    """Quotes would be shown as the numbers they are sent as."""
    return InputFile(content.read_bytes(), filename=file.name.plain().replace('"', "'") or "file")
