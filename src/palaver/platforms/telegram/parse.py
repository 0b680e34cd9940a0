"""Updates of Telegram as what an adapter hands over. Pure: the same update always means the same."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from telegram import CallbackQuery, Chat, Message, MessageEntity, Update, User

from palaver.model.label import Label
from palaver.model.source import CHANNEL, DM, GROUP, Labels, Source, Trust
from palaver.model.turn import Inbound, Revision
from palaver.platforms.telegram.files import files_of, told_of

__all__ = ["PLATFORM", "Moved", "Pressed", "Said", "Us", "button_data", "parse"]

PLATFORM = "telegram"
_KINDS = {"private": DM, "group": GROUP, "supergroup": GROUP, "channel": CHANNEL}
_START = "/start"
"""What the button says by which people open a chat with a bot, with whatever a link may have added."""
_AFTER_NAME = " \t\n,:"


class Us(NamedTuple):
    """The bot that hears."""

    account: str
    id: int
    name: str
    """Its user name, without the @."""


class Said(NamedTuple):
    inbound: Inbound
    trust: Trust


class Pressed(NamedTuple):
    """Somebody has pressed a button of ours: that is as good as saying it."""

    inbound: Inbound
    trust: Trust
    query: str
    chat_id: int
    message_id: int


class Moved(NamedTuple):
    """A group has become a supergroup."""

    old: str
    new: str


def parse(update: Update, us: Us, now: datetime) -> Said | Pressed | Moved | None:
    """What an update says; None where it is nothing to us: a service message, words to another bot, our own."""
    if update.callback_query:
        return _pressed(update.callback_query, us, now)
    message = update.message or update.channel_post
    edited = update.edited_message or update.edited_channel_post
    if message is not None and (message.migrate_to_chat_id or message.migrate_from_chat_id):
        return _moved(message)
    if message is not None:
        return _said(message, us, None)
    if edited is not None:
        return _said(edited, us, update.update_id)
    return None


def _moved(message: Message) -> Moved:
    here = str(message.chat.id)
    if message.migrate_to_chat_id:
        return Moved(here, str(message.migrate_to_chat_id))
    return Moved(str(message.migrate_from_chat_id), here)


def _pressed(query: CallbackQuery, us: Us, now: datetime) -> Pressed | None:
    message = query.message
    if message is None or not query.data:
        return None
    user, chat = query.from_user, message.chat
    says, topic = _read_button(query.data)
    thread = (_thread(message) if isinstance(message, Message) else None) or topic
    inbound = Inbound(
        source=_source(chat, thread, str(user.id), f"callback:{query.id}", us),
        text=says,
        at=now,
        labels=_labels(chat, user.full_name),
        mentions_us=True,
    )
    return Pressed(inbound, Trust(is_bot=user.is_bot), query.id, chat.id, message.message_id)


def button_data(says: str, topic: int | None) -> str:
    """What a button holds: of a message that is old Telegram tells the chat, but not the topic."""
    return says if topic is None else f"{says}\n{topic}"


def _read_button(data: str) -> tuple[str, str | None]:
    says, _, topic = data.rpartition("\n")
    return (says, topic) if says and topic.isascii() and topic.isdecimal() else (data, None)


def _said(message: Message, us: Us, edit: int | None) -> Said | None:
    user = message.from_user
    if user and user.id == us.id:
        return None
    words, is_ours, is_others = _addressed(message, us)
    text = "\n".join((*told_of(message), *((words,) if words else ())))
    files = files_of(message)
    if is_others or not (text or files):
        return None
    thread, root = _thread(message), _root(message)
    reply = None if root else message.reply_to_message
    speaker, name = _speaker(message)
    inbound = Inbound(
        source=_source(message.chat, thread, speaker, str(message.message_id), us),
        text=text,
        at=message.date if edit is None else message.edit_date or message.date,
        labels=_labels(message.chat, name),
        mentions_us=is_ours or _is_by(reply, us),
        reply_to=str(reply.message_id) if reply else None,
        burst=message.media_group_id,
        files=files,
        # Seconds do not tell two edits apart; the number of an update is the same when it comes again.
        revision=None if edit is None else Revision(version=f"{_seconds(message.edit_date)}.{edit}"),
    )
    return Said(inbound, Trust(is_bot=bool(user and user.is_bot and not message.sender_chat)))


def _source(chat: Chat, thread: str | None, user: str | None, message: str, us: Us) -> Source:
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
    """Without the name of the topic: an answer or a button in it does not tell that, and a place has one name."""
    return Labels(chat=Label(chat.title) if chat.title else None, user=Label(user) if user else None)


def _speaker(message: Message) -> tuple[str | None, str | None]:
    """Who speaks. Whoever speaks for a chat, as an anonymous admin or a channel does, is that chat."""
    user, chat = message.from_user, message.sender_chat
    if chat:
        return str(chat.id), message.author_signature or chat.title
    return (str(user.id), user.full_name) if user else (None, message.author_signature)


def _thread(message: Message) -> str | None:
    """The topic. In a group without topics replies have numbers of threads, too, and the General topic has none."""
    return str(message.message_thread_id) if message.is_topic_message and message.message_thread_id else None


def _root(message: Message) -> Message | None:
    """The first message of the topic, which everything in it seems to answer."""
    reply = message.reply_to_message
    is_root = message.is_topic_message and reply and reply.message_id == message.message_thread_id
    return reply if is_root else None


def _is_by(message: Message | None, us: Us) -> bool:
    author: User | None = message.from_user if message else None
    return author is not None and author.id == us.id


def _seconds(at: datetime | None) -> int:
    return int(at.timestamp()) if at else 0


# Whom the words are for

_Entities = Sequence[MessageEntity]


def _addressed(message: Message, us: Us) -> tuple[str, bool, bool]:
    """The words without our name at their beginning, whether we are named, and whether another bot is told to act."""
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
        return ("/help" if command == _START else words), bool(ours), is_others
    if first and first in ours:
        return _after(text, first).lstrip(_AFTER_NAME) or text, True, False
    return text, bool(ours), False


def _names(entity: MessageEntity, span: str, us: Us) -> bool:
    match entity.type:
        case MessageEntity.MENTION | MessageEntity.BOT_COMMAND:
            return bool(us.name) and span.partition("@")[2].casefold() == us.name.casefold()
        case MessageEntity.TEXT_MENTION:
            return entity.user is not None and entity.user.id == us.id
        case _:
            return False


def _span(text: str, entity: MessageEntity) -> str:
    """Offsets count UTF-16 units."""
    return _units(text)[2 * entity.offset : 2 * (entity.offset + entity.length)].decode("utf-16-le", "replace")


def _after(text: str, entity: MessageEntity) -> str:
    return _units(text)[2 * (entity.offset + entity.length) :].decode("utf-16-le", "replace")


def _units(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")
