"""What a message carries besides words: files to be fetched, and things that can only be told."""

from collections.abc import Iterator
from typing import Protocol

from telegram import Message, MessageOrigin, MessageOriginChannel, MessageOriginChat, MessageOriginUser
from telegram import MessageOriginHiddenUser as HiddenOrigin

from palaver.model.attachment import Attachment, format_size
from palaver.model.label import Label

__all__ = [
    "LARGEST_FETCHED",
    "TOO_LARGE",
    "files_of",
    "told_of",
]

LARGEST_FETCHED = 20_000_000
"""Bytes: Telegram gives bots no larger files."""
TOO_LARGE = f"Telegram gives bots no file larger than {format_size(LARGEST_FETCHED)}"
# As they are called where they have no names of their own.
_MEDIA = {
    "animation": ("animation.mp4", "video/mp4"),
    "audio": ("audio.mp3", "audio/mpeg"),
    "voice": ("voice.ogg", "audio/ogg"),
    "video": ("video.mp4", "video/mp4"),
    "video_note": ("video-note.mp4", "video/mp4"),
    "document": ("document", "application/octet-stream"),
}
_UNSHOWN = ("story", "game", "paid_media", "invoice", "giveaway", "gift")


class _File(Protocol):
    @property
    def file_id(self) -> str: ...
    @property
    def file_size(self) -> int | None: ...


def files_of(message: Message) -> tuple[Attachment, ...]:
    """A message of Telegram has one file at most; several are several messages, an album."""
    if message.photo:
        largest = max(message.photo, key=lambda size: size.width * size.height)
        return (_attachment(largest, "photo.jpg", "image/jpeg"),)
    if message.sticker:
        return (_attachment(message.sticker, *_sticker_type(message)),)
    for kind, (name, media_type) in _MEDIA.items():
        if found := getattr(message, kind, None):
            named = getattr(found, "file_name", None) or name
            return (_attachment(found, named, getattr(found, "mime_type", None) or media_type),)
    return ()


def _attachment(file: _File, name: str, media_type: str) -> Attachment:
    is_too_large = (file.file_size or 0) > LARGEST_FETCHED
    return Attachment(
        Label(name),
        media_type,
        file.file_size,
        handle=None if is_too_large else file.file_id,
        problem=TOO_LARGE if is_too_large else "",
    )


def _sticker_type(message: Message) -> tuple[str, str]:
    sticker = message.sticker
    if sticker and sticker.is_video:
        return "sticker.webm", "video/webm"
    if sticker and sticker.is_animated:
        return "sticker.tgs", "application/x-tgsticker"
    return "sticker.webp", "image/webp"


def told_of(message: Message) -> Iterator[str]:
    """What the agent is told in a line of its own, before the words. All in it is a stranger's, so it is quoted."""
    if message.forward_origin:
        yield f"[forwarded from {_origin(message.forward_origin)}]"
    if message.external_reply:
        yield f"[in reply to {_origin(message.external_reply.origin)} elsewhere]"
    if message.quote and not (message.text or "").startswith("/"):
        yield f"[quoting {Label(message.quote.text).quoted()}]"
    yield from _places(message)
    yield from _lists(message)
    if message.sticker and message.sticker.emoji:
        yield f"[sticker {Label(message.sticker.emoji).plain()}]"
    if message.dice:
        yield f"[dice {Label(message.dice.emoji).plain()}: {message.dice.value}]"
    for kind in _UNSHOWN:
        if getattr(message, kind, None):
            yield f"[{kind.replace('_', ' ')}, which cannot be shown here]"


def _places(message: Message) -> Iterator[str]:
    if venue := message.venue:
        title, address = Label(venue.title).quoted(), Label(venue.address).quoted()
        yield f"[place {title}, {address}: {venue.location.latitude}, {venue.location.longitude}]"
    elif message.location:
        yield f"[location {message.location.latitude}, {message.location.longitude}]"
    if contact := message.contact:
        name = f"{contact.first_name} {contact.last_name or ''}".strip()
        yield f"[contact {Label(name).quoted()}: {Label(contact.phone_number).plain()}]"


def _lists(message: Message) -> Iterator[str]:
    if poll := message.poll:
        yield f"[poll {Label(poll.question).quoted()}: {_quoted(option.text for option in poll.options)}]"
    if checklist := message.checklist:
        yield f"[checklist {Label(checklist.title).quoted()}: {_quoted(task.text for task in checklist.tasks)}]"


def _quoted(texts: Iterator[str]) -> str:
    return ", ".join(Label(text).quoted() for text in texts)


def _origin(origin: MessageOrigin) -> str:
    match origin:
        case MessageOriginUser():
            name = origin.sender_user.full_name
        case HiddenOrigin():
            name = origin.sender_user_name
        case MessageOriginChat():
            name = origin.sender_chat.title
        case MessageOriginChannel():
            name = origin.chat.title
        case _:
            name = None
    return Label(name).quoted() if name else "somebody"
