"""Send messages and files: topic, reply, buttons, entities and file kind."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from telegram import (
    Bot,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    LinkPreviewOptions,
    Message,
    MessageEntity,
    ReplyParameters,
)

from palaver.platforms.telegram.client import API, ApiError
from palaver.platforms.telegram.parse import encode_button
from palaver.protocols import Attachment, Outbound, SendRefused, TargetGone, Unit, file_to_send
from palaver.protocols.markdown import Layout, Rendered, is_web_link, to_spans

MAX_ENTITIES = 100
"""Telegram ignores further ones."""


def render(text: str, room: int) -> Rendered:
    """Render at most `room` UTF-16 units; return the text unrendered if it gets longer or has too many entities."""
    for is_even in (True, False):
        shown = to_spans(text, Layout(is_linked=is_web_link, has_quotes=True, is_even=is_even))
        if shown.text.strip() and Unit.UTF16.measure(shown.text) <= room and len(shown.spans) <= MAX_ENTITIES:
            return shown
    return Rendered(text)


MAX_TEXT = 4096
MAX_CAPTION = 1024
_MAX_SENT_BYTES = 50_000_000
_MAX_PHOTO_BYTES = 10_000_000
_MAX_ROW_LENGTH = 24
"""How many characters of labels are readable side by side."""
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


_Sending = Callable[[Rendered, dict[str, Any]], Awaitable[Message]]


async def send_text(bot: Bot, outbound: Outbound) -> str:
    async def sending(shown: Rendered, where: dict[str, Any]) -> Message:
        return await bot.send_message(text=shown.text, **_text_options(shown, outbound), **where)

    return await _send(outbound, MAX_TEXT, sending)


async def edit_text(bot: Bot, receipt: str, outbound: Outbound) -> None:
    number = _parse_id(receipt)
    if number is None:
        raise SendRefused("The receipt is not a message id.")

    async def sending(shown: Rendered) -> None:
        await bot.edit_message_text(shown.text, outbound.chat_id, number, **_text_options(shown, outbound))

    try:
        await _send_rendered(outbound.text, MAX_TEXT, sending)
    except ApiError as refusal:
        if not refusal.says("message is not modified"):
            raise


async def send_upload(bot: Bot, outbound: Outbound, content: Path) -> str:
    """Send a file; if Telegram rejects it as a picture, video or voice, send it as a document."""
    file = file_to_send(outbound, content, _MAX_SENT_BYTES)
    kind = _upload_kind(file, content)
    try:
        return await _send_file(bot, outbound, file, content, kind)
    except ApiError as refusal:
        is_about_file = refusal.code == HTTPStatus.BAD_REQUEST and not isinstance(API.of_send(refusal), TargetGone)
        if kind == "document" or refusal.moved_to or not is_about_file:
            raise
        return await _send_file(bot, outbound, file, content, "document")


async def _send_file(bot: Bot, outbound: Outbound, file: Attachment, content: Path, kind: str) -> str:
    async def sending(shown: Rendered, where: dict[str, Any]) -> Message:
        send: Callable[..., Any] = getattr(bot, f"send_{kind}")
        words = {"caption": shown.text, "caption_entities": _entities(shown)} if shown.text else {}
        # Telegram would show a double quote in the name as %22.
        name = file.name.plain().replace('"', "'") or "file"
        upload = InputFile(await asyncio.to_thread(content.read_bytes), filename=name)
        return await send(**{kind: upload}, **words, **where)

    return await _send(outbound, MAX_CAPTION, sending)


async def _send(outbound: Outbound, room: int, sending: _Sending) -> str:
    """Send to the topic, or to the chat itself if the topic is closed."""

    async def send_shown(shown: Rendered) -> Message:
        where = _place(outbound)
        try:
            return await sending(shown, where)
        except ApiError as refusal:
            if where["message_thread_id"] is None or not refusal.says(*_TOPIC_CLOSED):
                raise
            # Without the reply, or Telegram would put it into the topic.
            return await sending(shown, _place(replace(outbound, thread_id=None, reply_to=None)))

    return str((await _send_rendered(outbound.text, room, send_shown)).message_id)


async def _send_rendered(text: str, room: int, sending: Callable[[Rendered], Awaitable[T]]) -> T:
    """Send it rendered, or as written if Telegram rejects the entities."""
    shown = render(text, room)
    try:
        return await sending(shown)
    except ApiError as refusal:
        if not shown.spans or not refusal.says("entit"):
            raise
        return await sending(Rendered(text))


def _text_options(shown: Rendered, outbound: Outbound) -> dict[str, Any]:
    """Without a preview: Telegram would fetch the URL, and a crafted one could leak what the agent writes into it."""
    no_preview = LinkPreviewOptions(is_disabled=True)
    return {"entities": _entities(shown), "reply_markup": keyboard(outbound), "link_preview_options": no_preview}


def _place(outbound: Outbound) -> dict[str, Any]:
    """Return the destination. Ids of groups and channels are negative."""
    answered = _parse_id(outbound.quoted(in_group=outbound.chat_id.startswith("-")))
    reply = ReplyParameters(answered, allow_sending_without_reply=True) if answered else None
    return {"chat_id": outbound.chat_id, "message_thread_id": thread(outbound), "reply_parameters": reply}


def thread(outbound: Outbound) -> int | None:
    if outbound.thread_id in {None, _GENERAL_TOPIC}:
        return None
    number = _parse_id(outbound.thread_id)
    if number is None:
        raise SendRefused("The topic is not a number like 42.")
    return number


def _parse_id(text: str | None) -> int | None:
    """Parse a message or topic id; None if it is not a number."""
    return int(text) if text and text.isascii() and text.isdigit() else None


def keyboard(outbound: Outbound) -> InlineKeyboardMarkup | None:
    """Return the buttons, those with long labels below each other; leave out what people have to type."""
    row: list[InlineKeyboardButton] = []
    for choice in outbound.choices:
        datas = (encode_button(choice.says, thread(outbound)), choice.says)
        data = next((data for data in datas if len(data.encode()) <= _MAX_BUTTON_BYTES), None)
        if data:
            row.append(InlineKeyboardButton(choice.label, callback_data=data))
    if sum(len(button.text) for button in row) > _MAX_ROW_LENGTH:
        return InlineKeyboardMarkup([[button] for button in row])
    return InlineKeyboardMarkup([row]) if row else None


def _entities(shown: Rendered) -> list[MessageEntity]:
    return [
        MessageEntity(
            entity.kind,
            entity.offset,
            entity.length,
            url=entity.detail if entity.kind == "text_link" else None,
            language=(entity.detail or None) if entity.kind == "pre" else None,
        )
        for entity in shown.spans
    ]


def _upload_kind(file: Attachment, content: Path) -> str:
    """Return how to send the file: photo, video, voice … or document."""
    kind = _FILE_KINDS.get(file.media_type, "document")
    return "document" if kind == "photo" and content.stat().st_size > _MAX_PHOTO_BYTES else kind
