"""What a message carries besides text: files, and content that can only be described."""

from collections.abc import Iterator
from typing import Protocol

from telegram import Message, MessageOrigin, MessageOriginChannel, MessageOriginChat, MessageOriginUser
from telegram import MessageOriginHiddenUser as HiddenOrigin

from palaver.protocols import Attachment, Label, format_size

MAX_FETCHED_BYTES = 20_000_000
TOO_LARGE_TO_FETCH = f"Telegram does not give bots files larger than {format_size(MAX_FETCHED_BYTES)}"
# Default names and types.
_MEDIA = {
    "animation": ("animation.mp4", "video/mp4"),
    "audio": ("audio.mp3", "audio/mpeg"),
    "voice": ("voice.ogg", "audio/ogg"),
    "video": ("video.mp4", "video/mp4"),
    "video_note": ("video-note.mp4", "video/mp4"),
    "document": ("document", "application/octet-stream"),
}
_UNSUPPORTED = ("story", "game", "paid_media", "invoice", "giveaway", "gift")


class _File(Protocol):
    @property
    def file_id(self) -> str: ...
    @property
    def file_size(self) -> int | None: ...


def attachments_of(message: Message) -> tuple[Attachment, ...]:
    """Return the file of a message: one at most, since an album is several messages."""
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
    is_too_large = (file.file_size or 0) > MAX_FETCHED_BYTES
    return Attachment(
        Label(name),
        media_type,
        file.file_size,
        handle=None if is_too_large else file.file_id,
        problem=TOO_LARGE_TO_FETCH if is_too_large else "",
    )


def _sticker_type(message: Message) -> tuple[str, str]:
    sticker = message.sticker
    if sticker and sticker.is_video:
        return "sticker.webm", "video/webm"
    if sticker and sticker.is_animated:
        return "sticker.tgs", "application/x-tgsticker"
    return "sticker.webp", "image/webp"


def describe_content(message: Message) -> Iterator[str]:
    """Describe other content for the agent, one line each. It is untrusted, so it is quoted."""
    if message.forward_origin:
        yield f"[forwarded from {_origin(message.forward_origin)}]"
    if message.external_reply:
        yield f"[in reply to {_origin(message.external_reply.origin)} elsewhere]"
    if message.quote and not message.reply_to_message and not (message.text or "").startswith("/"):
        yield f"[quoting {Label(message.quote.text).quoted()}]"
    yield from _places(message)
    yield from _lists(message)
    if message.sticker and message.sticker.emoji:
        yield f"[sticker {Label(message.sticker.emoji).plain()}]"
    if message.dice:
        yield f"[dice {Label(message.dice.emoji).plain()}: {message.dice.value}]"
    for kind in _UNSUPPORTED:
        if getattr(message, kind, None):
            yield f"[{kind.replace('_', ' ')}, not supported here]"


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
