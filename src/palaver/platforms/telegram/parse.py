"""Parse Telegram's updates, with their files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias

from telegram import (
    CallbackQuery,
    Chat,
    Message,
    MessageEntity,
    MessageOrigin,
    MessageOriginChannel,
    MessageOriginChat,
    MessageOriginUser,
    MessageReactionUpdated,
    ReactionType,
    ReactionTypeEmoji,
    Update,
    User,
)
from telegram import MessageOriginHiddenUser as HiddenOrigin

from palaver.model.feedback import rating_of
from palaver.protocols import (
    CHANNEL,
    DM,
    GROUP,
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
    format_size,
    identity_of,
)

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
        title = Label(venue.title).quoted()
        address = Label(venue.address).quoted()
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


PLATFORM = "telegram"
_KINDS = {"private": DM, "group": GROUP, "supergroup": GROUP, "channel": CHANNEL}
_START = "/start"
_GREETING = "Hello"
"""What the button of a new chat sends, and what it says to an agent."""
"""Sent by the start button of a new chat, with the parameter of a deep link."""
_AFTER_NAME = " \t\n,:"


class OwnBot(NamedTuple):
    """The bot that receives the update."""

    account: str
    id: int
    name: str
    """The user name without @."""


class ButtonPress(NamedTuple):
    """A press of one of our buttons counts as saying its text."""

    inbound: Inbound
    trust: Trust
    query: str
    chat_id: int
    message_id: int


class ChatMigrated(NamedTuple):
    """A group has become a supergroup."""

    old: str
    new: str


Event: TypeAlias = NewMessage | ButtonPress | ChatMigrated


def parse(update: Update, us: OwnBot, now: datetime) -> Event | None:
    """Parse an update; None for service messages, messages to other bots and our own."""
    if update.callback_query:
        return _button_press(update.callback_query, us, now)
    if update.message_reaction:
        return _reaction(update.message_reaction, us)
    message = update.message or update.channel_post
    edited = update.edited_message or update.edited_channel_post
    if message and message.migrate_to_chat_id:
        return ChatMigrated(str(message.chat.id), str(message.migrate_to_chat_id))
    if message and message.migrate_from_chat_id:
        return ChatMigrated(str(message.migrate_from_chat_id), str(message.chat.id))
    if message is not None:
        return _message(message, us, None)
    return _message(edited, us, update.update_id) if edited is not None else None


class TopicName(NamedTuple):
    chat_id: str
    thread_id: str
    name: str
    is_new: bool
    """It replaces an earlier name."""


def topic_name(update: Update) -> TopicName | None:
    """Return the name of a forum's topic, if the update has it.

    Updates have it when the topic is made or renamed, and with messages that reply to nothing, which bring the
    topic's first message.
    """
    message = update.message or update.edited_message
    if message is None or not message.message_thread_id:
        return None
    renamed = message.forum_topic_edited
    name = renamed.name if renamed else _name_of_created(message)
    return TopicName(str(message.chat.id), str(message.message_thread_id), name, bool(renamed)) if name else None


def _name_of_created(message: Message) -> str | None:
    """Return the name with which a topic was created, from that message or an answer to it."""
    root = message.reply_to_message
    created = message.forum_topic_created or (root.forum_topic_created if root else None)
    return created.name if created else None


TopicNames = Mapping[tuple[str, str], str]
"""Names of topics, by chat and thread."""


def encode_topics(topics: TopicNames) -> str:
    """Return the topics of groups as text. Those of private chats belong to their person and are not stored."""
    return json.dumps({"topics": [(*place, name) for place, name in topics.items() if place[0].startswith("-")]})


def decode_topics(text: str | None) -> TopicNames:
    try:
        return {(chat, thread): name for chat, thread, name in json.loads(text or "{}").get("topics", ())}
    except (AttributeError, TypeError, ValueError):
        return {}  # not written by us


def _button_press(query: CallbackQuery, us: OwnBot, now: datetime) -> ButtonPress | None:
    message = query.message
    if message is None or not query.data:
        return None
    user = query.from_user
    chat = message.chat
    says, topic = _decode_button(query.data)
    thread = (_thread(message) if isinstance(message, Message) else None) or topic
    inbound = Inbound(
        source=_source(chat, thread, str(user.id), f"callback:{query.id}", us),
        text=says,
        at=now,
        labels=_labels(chat, user.full_name),
        mentions_us=True,
    )
    return ButtonPress(inbound, Trust(is_bot=user.is_bot), query.id, chat.id, message.message_id)


def _reaction(found: MessageReactionUpdated, us: OwnBot) -> NewMessage | None:
    """Return what changed in the reactions of a person. Of several changes, the one that is feedback."""
    if found.user is None or found.user.id == us.id:  # anonymous admins react as their chat
        return None
    before = _emojis(found.old_reaction)
    after = _emojis(found.new_reaction)
    added = [Reaction(emoji=each) for each in after if each not in before]
    removed = [Reaction(emoji=each, removed=True) for each in before if each not in after]
    reaction = next((each for each in (*added, *removed) if rating_of(each.emoji)), None)
    if reaction is None:
        return None
    inbound = Inbound(
        source=_source(found.chat, None, str(found.user.id), None, us),
        text="",
        at=found.date,
        labels=_labels(found.chat, found.user.full_name),
        reply_to=str(found.message_id),
        reaction=reaction,
    )
    return NewMessage(inbound, Trust(is_bot=found.user.is_bot))


def _emojis(reactions: Sequence[ReactionType]) -> list[str]:
    return [each.emoji for each in reactions if isinstance(each, ReactionTypeEmoji)]


def encode_button(says: str, topic: int | None) -> str:
    """Encode a button with its topic: for old messages Telegram reports only the chat."""
    return says if topic is None else f"{says}\n{topic}"


def _decode_button(data: str) -> tuple[str, str | None]:
    says, _, topic = data.rpartition("\n")
    return (says, topic) if says and topic.isascii() and topic.isdecimal() else (data, None)


def _message(message: Message, us: OwnBot, edit: int | None) -> NewMessage | None:
    user = message.from_user
    if user and user.id == us.id:
        return None
    words, is_ours, is_others = _addressed(message, us)
    text = "\n".join((*describe_content(message), *((words,) if words else ())))
    files = attachments_of(message)
    if is_others or not (text or files):
        return None
    thread = _thread(message)
    root = _root(message)
    reply = None if root else message.reply_to_message
    speaker, name = _sender(message)
    source = _source(message.chat, thread, speaker, str(message.message_id), us)
    inbound = Inbound(
        source=source,
        text=text,
        at=message.date if edit is None else message.edit_date or message.date,
        labels=_labels(message.chat, name),
        mentions_us=is_ours or _is_sent_by(reply, us),
        reply_to=str(reply.message_id) if reply else None,
        quote=_quote(message, reply, source, us) if reply else None,
        burst=message.media_group_id,
        files=files,
        revision=None if edit is None else _revision(message, edit),
    )
    return NewMessage(inbound, Trust(is_bot=bool(user and user.is_bot and not message.sender_chat)))


def _revision(message: Message, edit: int) -> Revision:
    """Seconds do not tell two edits apart; the update id does, and stays the same in a repetition."""
    seconds = int(message.edit_date.timestamp()) if message.edit_date else 0
    return Revision(version=f"{seconds}.{edit}")


def _quote(message: Message, reply: Message, source: Source, us: OwnBot) -> Quote | None:
    """Return what the message replies to: the part that the sender chose, or all of it."""
    chosen = message.quote.text if message.quote else reply.text or reply.caption
    text = chosen or "\n".join(describe_content(reply))
    author, name = _sender(reply)
    quote = Quote(
        text=text,
        author=identity_of(replace(source, user_id=author)),
        name=Label.of(name),
        is_ours=_is_sent_by(reply, us),
    )
    return quote if text else None


def _source(chat: Chat, thread: str | None, user: str | None, message: str | None, us: OwnBot) -> Source:
    return Source(
        platform=PLATFORM,
        account=us.account,
        chat_kind=_KINDS.get(chat.type, GROUP),
        chat_id=str(chat.id),
        thread_id=thread,
        user_id=user,
        message_id=message,
    )


def _labels(chat: Chat, user: str | None) -> Labels:
    """Return the names. The adapter adds the topic's, which only some messages bring."""
    return Labels(chat=Label.of(chat.title), user=Label.of(user))


def _sender(message: Message) -> tuple[str | None, str | None]:
    """Return id and name of the sender: anonymous admins and channels speak as their chat."""
    user = message.from_user
    chat = message.sender_chat
    if chat:
        return str(chat.id), message.author_signature or chat.title
    return (str(user.id), user.full_name) if user else (None, message.author_signature)


def _thread(message: Message) -> str | None:
    """Return the topic id. Replies in groups without topics have thread ids, too; the General topic has none."""
    return str(message.message_thread_id) if message.is_topic_message and message.message_thread_id else None


def _root(message: Message) -> Message | None:
    """Return the first message of the topic if the message only seems to reply to it."""
    reply = message.reply_to_message
    is_root = message.is_topic_message and reply and reply.message_id == message.message_thread_id
    return reply if is_root else None


def _is_sent_by(message: Message | None, us: OwnBot) -> bool:
    author: User | None = message.from_user if message else None
    return author is not None and author.id == us.id


# Addressing


def _addressed(message: Message, us: OwnBot) -> tuple[str, bool, bool]:
    """Return the text without our name in front, whether it names us, and whether it is a command for another bot."""
    text = message.text or message.caption or ""
    entities = message.entities or message.caption_entities
    if not entities:
        return text, False, False
    ours = [entity for entity in entities if _names(entity, _span(text, entity), us)]
    first = next((entity for entity in entities if entity.offset == 0), None)
    if first and first.type == MessageEntity.BOT_COMMAND:
        command, _, bot = _span(text, first).partition("@")
        is_others = bool(bot) and first not in ours and message.chat.type != "private"
        words = command + _after(text, first) if first in ours else text
        return (_GREETING if command == _START else words), bool(ours), is_others
    if first and first in ours:
        return _after(text, first).lstrip(_AFTER_NAME) or text, True, False
    return text, bool(ours), False


def _names(entity: MessageEntity, span: str, us: OwnBot) -> bool:
    match entity.type:
        case MessageEntity.MENTION | MessageEntity.BOT_COMMAND:
            return bool(us.name) and span.partition("@")[2].casefold() == us.name.casefold()
        case MessageEntity.TEXT_MENTION:
            return entity.user is not None and entity.user.id == us.id
        case _:
            return False


def _span(text: str, entity: MessageEntity) -> str:
    """Cut out an entity; offsets count UTF-16 units."""
    return _units(text)[2 * entity.offset : 2 * (entity.offset + entity.length)].decode("utf-16-le", "replace")


def _after(text: str, entity: MessageEntity) -> str:
    return _units(text)[2 * (entity.offset + entity.length) :].decode("utf-16-le", "replace")


def _units(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")
