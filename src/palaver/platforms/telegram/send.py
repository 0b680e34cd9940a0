"""Turn an outbound message into Bot API parameters: topic, reply, buttons, entities and file kind."""

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

from palaver.platforms.telegram.errors import ApiError
from palaver.platforms.telegram.parse import encode_button
from palaver.platforms.telegram.render import Entity, Rendered, render
from palaver.protocols import Attachment, Outbound, SendRefused, format_size

MAX_TEXT = 4096
MAX_CAPTION = 1024
NO_PREVIEW = LinkPreviewOptions(is_disabled=True)
"""Telegram fetches previewed URLs: a crafted link could leak what the agent writes into it."""
_MAX_SENT_BYTES = 50_000_000
_MAX_PHOTO_BYTES = 10_000_000
_MAX_BUTTON_BYTES = 64
_GENERAL_TOPIC = "1"
"""Telegram leaves its id out of updates and rejects it in sends."""
_TOPIC_CLOSED = ("message thread not found", "topic_closed", "topic_deleted")
_FILE_KINDS = {
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


async def send_to_topic(outbound: Outbound, sending: Callable[[dict[str, Any]], Awaitable[T]]) -> T:
    """Send to the topic, or to the chat itself if the topic is closed."""
    where = _place(outbound)
    try:
        return await sending(where)
    except ApiError as refusal:
        if where["message_thread_id"] is None or not refusal.says(*_TOPIC_CLOSED):
            raise
        # Without the reply, or Telegram would put it into the topic.
        return await sending(_place(replace(outbound, thread_id=None, reply_to=None)))


def _place(outbound: Outbound) -> dict[str, Any]:
    """Return the destination. In a private chat, leave out the reply."""
    answered = parse_id(outbound.reply_to) if is_group(outbound) else None
    reply = ReplyParameters(answered, allow_sending_without_reply=True) if answered else None
    return {"chat_id": outbound.chat_id, "message_thread_id": thread(outbound), "reply_parameters": reply}


def is_group(outbound: Outbound) -> bool:
    """Return whether it goes to a group or channel: their ids are negative."""
    return outbound.chat_id.startswith("-")


def thread(outbound: Outbound) -> int | None:
    if outbound.thread_id in {None, _GENERAL_TOPIC}:
        return None
    number = parse_id(outbound.thread_id)
    if number is None:
        raise SendRefused("The topic is not a number like 42.")
    return number


def parse_id(text: str | None) -> int | None:
    """Parse a message or topic id; None if it is not a number."""
    return int(text) if text and text.isascii() and text.isdigit() else None


def keyboard(outbound: Outbound) -> InlineKeyboardMarkup | None:
    """Return one row of buttons; leave out those that are too long: people can type them."""
    whole = (
        (choice, encode_button(choice.says, thread(outbound))) for choice in outbound.choices if _fits(choice.says)
    )
    row = [
        InlineKeyboardButton(choice.label, callback_data=data if _fits(data) else choice.says) for choice, data in whole
    ]
    return InlineKeyboardMarkup([row]) if row else None


def _fits(data: str) -> bool:
    return len(data.encode()) <= _MAX_BUTTON_BYTES


async def send_rendered(text: str, room: int, sending: Callable[[Rendered], Awaitable[T]]) -> T:
    """Send it rendered, or as written if Telegram rejects the entities."""
    shown = render(text, room)
    try:
        return await sending(shown)
    except ApiError as refusal:
        if not shown.entities or not refusal.says("entit"):
            raise
        return await sending(Rendered(text))


def entities(spans: Sequence[Entity]) -> list[MessageEntity]:
    return [
        MessageEntity(
            entity.kind,
            entity.offset,
            entity.length,
            url=entity.detail if entity.kind == "text_link" else None,
            language=(entity.detail or None) if entity.kind == "pre" else None,
        )
        for entity in spans
    ]


def upload_kind(file: Attachment, content: Path) -> str:
    """Return how to send the file: photo, video, voice … or document."""
    size = content.stat().st_size
    if size > _MAX_SENT_BYTES:
        raise SendRefused(f"Bots can send files of at most {format_size(_MAX_SENT_BYTES)}, not {format_size(size)}.")
    kind = _FILE_KINDS.get(file.media_type, "document")
    return "document" if kind == "photo" and size > _MAX_PHOTO_BYTES else kind


def input_file(file: Attachment, content: Path) -> InputFile:
    """Replace double quotes in the name: Telegram would show them as %22."""
    return InputFile(content.read_bytes(), filename=file.name.plain().replace('"', "'") or "file")
