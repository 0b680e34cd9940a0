"""Telegram as far as a bot meets it: chats, messages, updates that wait, and what it refuses. No network in here."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from palaver.model.split import Unit

__all__ = ["BOT", "TOKEN", "Chat", "No", "World"]

Json = dict[str, Any]

TOKEN = "42:" + "A" * 35
BOT: Json = {"id": 42, "is_bot": True, "first_name": "Helper", "username": "Helper_Bot"}
_NOW = 1_700_000_000
_NAMED = re.compile(r"(?P<bot_command>^/\w+(?:@\w+)?)|(?P<mention>@\w+)")
_STYLES = {"bold", "italic", "strikethrough", "underline", "spoiler"}
_UPLOADS = ("document", "photo", "video", "audio", "voice", "animation")
_PICTURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")


class No(Exception):
    """What the Bot API answers instead: https://core.telegram.org/bots/api#making-requests."""

    def __init__(self, code: int, words: str, **parameters: int) -> None:
        super().__init__(words)
        self.code = code
        self.words = words
        self.parameters = parameters


@dataclass
class Chat:
    id: int
    type: str = "private"
    title: str | None = None
    is_gone: No | None = None
    topics: set[int] = field(default_factory=set[int])
    closed: set[int] = field(default_factory=set[int])
    """Those of its topics in which nobody may write."""
    topic_of: dict[int, int] = field(default_factory=dict[int, int])
    """In which topics people have said their messages."""
    numbers: "count[int]" = field(default_factory=lambda: count(100))

    @property
    def json(self) -> Json:
        named = {"title": self.title} if self.title else {}
        return {"id": self.id, "type": self.type, **named, **({"is_forum": True} if self.topics else {})}


class World:
    """One bot, the chats it is in, and everything it has sent, in order."""

    def __init__(self) -> None:
        self.chats: dict[int, Chat] = {}
        self.sent: list[Json] = []
        self.uploads: list[tuple[str, str, bytes]] = []
        """Kind, name and content of the files it has sent."""
        self.files: dict[str, bytes] = {}
        self.updates: list[Json] = []
        self.calls: list[tuple[str, Json]] = []
        self.commands: list[Json] = []
        self.webhook: Json = {"url": ""}
        self.refuses: dict[str, list[No]] = {}
        """What the next calls of a method are answered with."""
        self.trouble: No | None = None
        """What every call is answered with for as long as it is there."""
        self.news = asyncio.Event()
        self._numbers = count(900)
        self._clock = count(_NOW)
        self._methods: dict[str, Callable[[Json], Any]] = {
            "getme": self._me,
            "sendmessage": self._send,
            "editmessagetext": self._edit,
            "editmessagereplymarkup": self._take_buttons,
            "sendchataction": self._act,
            "createforumtopic": self._topic,
            "answercallbackquery": self._nothing_to_do,
            "setmycommands": self._menu,
            "setwebhook": self._set_webhook,
            "deletewebhook": self._delete_webhook,
            "getwebhookinfo": self._webhook,
            "getfile": self._file,
            **{f"send{kind}": partial(self._send_upload, kind) for kind in _UPLOADS},
        }

    def chat(
        self, chat_id: int, kind: str = "private", *, title: str | None = None, topics: set[int] | None = None
    ) -> Chat:
        return self.chats.setdefault(chat_id, Chat(chat_id, kind, title, topics=topics or set()))

    # People

    def says(self, chat: Chat, who: Json, text: str = "", *, topic: int | None = None, **more: Any) -> Json:
        """A message, as an update of it would carry it; `push` sends it."""
        words = {"text": text, "entities": _entities(text)} if text else {}
        thread = {"message_thread_id": topic, "is_topic_message": True} if topic else {}
        number = next(chat.numbers)
        about = {"message_id": number, "date": next(self._clock), "chat": chat.json, "from": who}
        if topic:
            chat.topic_of[number] = topic
        return {**about, **words, **thread, **more}

    def push(self, message: Json, kind: str = "message") -> Json:
        update = {"update_id": next(self._numbers), kind: message}
        self.updates.append(update)
        self.news.set()
        return update

    def edited(self, message: Json, text: str) -> Json:
        return {**message, "text": text, "entities": _entities(text), "edit_date": _NOW + 10_000}

    def press(self, who: Json, message: Json, data: str) -> Json:
        return self.push(
            {"id": str(next(self._numbers)), "from": who, "chat_instance": "1", "message": message, "data": data},
            "callback_query",
        )

    def react(self, who: Json, message: Json, sign: str, *, removed: bool = False) -> Json:
        """Telegram tells all reactions of a person before and after."""
        reaction = [{"type": "emoji", "emoji": sign}]
        other = [{"type": "emoji", "emoji": "🔥"}]
        before, after = (reaction, other) if removed else (other, reaction)
        about = {"chat": message["chat"], "message_id": message["message_id"], "user": who, "date": next(self._clock)}
        return self.push({**about, "old_reaction": before, "new_reaction": after}, "message_reaction")

    def upgrade(self, old: Chat, new: int) -> Chat:
        """A group becomes a supergroup: the old id is only good for saying so, in two messages and every error."""
        old.is_gone = No(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=new)
        moved = self.chat(new, "supergroup", title=old.title)
        self.push(self.says(old, BOT, migrate_to_chat_id=new))
        self.push(self.says(moved, BOT, migrate_from_chat_id=old.id))
        return moved

    # The bot

    def answer(self, method: str, asked: Json) -> Any:
        self.calls.append((method, asked))
        self.refuse(method)
        if method not in self._methods:
            raise No(404, "Not Found")
        return self._methods[method](asked)

    def refuse(self, method: str) -> None:
        if self.trouble:
            raise self.trouble
        if waiting := self.refuses.get(method):
            raise waiting.pop(0)

    def waiting(self, asked: Mapping[str, Any]) -> list[Json]:
        """Asking for what comes after something confirms it."""
        offset = int(asked.get("offset") or 0)
        self.updates[:] = [update for update in self.updates if update["update_id"] >= offset]
        return self.updates[: int(asked.get("limit") or 100)]

    def asked(self, method: str) -> list[Json]:
        return [asked for name, asked in self.calls if name == method]

    def _nothing_to_do(self, _: Json) -> bool:
        return True

    def _webhook(self, _: Json) -> Json:
        return {"has_custom_certificate": False, "pending_update_count": len(self.updates), **self.webhook}

    def _me(self, _: Json) -> Json:
        return {**BOT, "can_join_groups": True, "can_read_all_group_messages": False, "supports_inline_queries": False}

    def _place(self, asked: Json) -> tuple[Chat, Json]:
        chat = self.chats.get(int(asked["chat_id"])) if re.fullmatch(r"-?\d+", str(asked["chat_id"])) else None
        if chat is None:
            raise No(400, "Bad Request: chat not found")
        if chat.is_gone:
            raise chat.is_gone
        topic = asked.get("message_thread_id") or _topic_answered(chat, asked)
        if topic is not None and int(topic) not in chat.topics:
            raise No(400, "Bad Request: message thread not found")
        if topic is not None and int(topic) in chat.closed:
            raise No(400, "Bad Request: TOPIC_CLOSED")
        return chat, {"message_thread_id": int(topic), "is_topic_message": True} if topic is not None else {}

    def _send(self, asked: Json) -> Json:
        chat, thread = self._place(asked)
        _check(str(asked.get("text") or ""), asked.get("entities") or [], 4096)
        return self._shown(chat, {"text": asked["text"], "entities": asked.get("entities") or [], **thread}, asked)

    def _shown(self, chat: Chat, content: Json, asked: Json) -> Json:
        about = {"message_id": next(chat.numbers), "date": next(self._clock), "chat": chat.json, "from": BOT}
        markup = {"reply_markup": asked["reply_markup"]} if asked.get("reply_markup") else {}
        message = {**about, **content, **markup}
        self.sent.append(message)
        return message

    def _find(self, asked: Json) -> Json:
        chat, _ = self._place(asked)
        for message in self.sent:
            if (message["chat"]["id"], message["message_id"]) == (chat.id, int(asked["message_id"])):
                return message
        raise No(400, "Bad Request: message to edit not found")

    def _edit(self, asked: Json) -> Json:
        message = self._find(asked)
        _check(str(asked["text"]), asked.get("entities") or [], 4096)
        new: Json = {
            "text": asked["text"],
            "entities": asked.get("entities") or [],
            "reply_markup": asked.get("reply_markup"),
        }
        if new == {name: message.get(name) for name in new}:
            raise No(400, "Bad Request: message is not modified: specified new message content is exactly the same")
        message.update(new)
        return _without_none(message)

    def _take_buttons(self, asked: Json) -> Json:
        message = self._find(asked)
        message["reply_markup"] = asked.get("reply_markup")
        return _without_none(message)

    def _act(self, asked: Json) -> bool:
        self._place(asked)
        return True

    def _topic(self, asked: Json) -> Json:
        chat, _ = self._place(asked)
        if not chat.topics:
            raise No(400, "Bad Request: the chat is not a forum")
        chat.topics.add(topic := next(chat.numbers))
        return {"message_thread_id": topic, "name": asked["name"], "icon_color": 0x6FB9F0}

    def _menu(self, asked: Json) -> bool:
        if len(asked["commands"]) > 100 or any(
            not re.fullmatch(r"[a-z0-9_]{1,32}", each["command"]) for each in asked["commands"]
        ):
            raise No(400, "Bad Request: BOT_COMMAND_INVALID")
        self.commands = asked["commands"]
        return True

    def _set_webhook(self, asked: Json) -> bool:
        if not str(asked["url"]).startswith("https://"):
            raise No(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook")
        self.webhook = {
            "url": asked["url"],
            "secret": asked.get("secret_token"),
            "allowed": asked.get("allowed_updates"),
        }
        self.news.set()
        return True

    def _delete_webhook(self, _: Json) -> bool:
        self.webhook = {"url": ""}
        return True

    def _file(self, asked: Json) -> Json:
        content = self.files.get(str(asked.get("file_id")))
        if content is None:
            raise No(400, "Bad Request: invalid file_id")
        if len(content) > 20_000_000:
            raise No(400, "Bad Request: file is too big")
        about = {"file_id": asked["file_id"], "file_unique_id": asked["file_id"], "file_size": len(content)}
        return {**about, "file_path": f"documents/{asked['file_id']}"}

    def _send_upload(self, kind: str, asked: Json) -> Json:
        chat, thread = self._place(asked)
        name, content = asked["uploads"][kind]
        _check(str(asked.get("caption") or ""), asked.get("caption_entities") or [], 1024, may_be_empty=True)
        if kind == "photo" and not content.startswith(_PICTURES):
            raise No(400, "Bad Request: IMAGE_PROCESS_FAILED")
        self.uploads.append((kind, name, content))
        caption = {"caption": asked["caption"]} if asked.get("caption") else {}
        return self._shown(chat, {**caption, **thread, "document": _document(name)}, asked)


def _topic_answered(chat: Chat, asked: Json) -> int | None:
    """Without a topic of its own, an answer goes where what it answers was said, if that is still there."""
    answered: Json = asked.get("reply_parameters") or {"message_id": 0}
    topic = chat.topic_of.get(answered["message_id"])
    return topic if topic in chat.topics else None


def _document(name: str) -> Json:
    return {"file_id": "out", "file_unique_id": "out", "file_name": name}


def _without_none(message: Json) -> Json:
    return {name: value for name, value in message.items() if value is not None}


def _entities(text: str) -> list[Json]:
    return [
        {
            "type": found.lastgroup,
            "offset": Unit.UTF16.measure(text[: found.start()]),
            "length": Unit.UTF16.measure(found[0]),
        }
        for found in _NAMED.finditer(text)
    ]


def _check(text: str, entities: list[Json], longest: int, *, may_be_empty: bool = False) -> None:
    """https://core.telegram.org/bots/api#sendmessage and #formatting-options."""
    if not text.strip() and not may_be_empty:
        raise No(400, "Bad Request: message text is empty")
    if Unit.UTF16.measure(text) > longest:
        raise No(
            400, "Bad Request: message is too long" if longest > 1024 else "Bad Request: message caption is too long"
        )
    spans = [(each["offset"], each["offset"] + each["length"], each["type"]) for each in entities]
    for start, end, kind in spans:
        if not 0 <= start < end <= Unit.UTF16.measure(text):
            raise No(400, "Bad Request: can't parse entities: an entity is out of the text")
        for other, until, what in spans:
            crosses = start < other < end < until
            in_code = (
                kind in {"code", "pre"}
                and start <= other
                and until <= end
                and (other, until, what) != (start, end, kind)
            )
            around_code = what in {"code", "pre"} and kind in _STYLES and start <= other and until <= end
            if crosses or in_code or around_code:
                raise No(400, "Bad Request: can't parse entities: they cannot be nested like this")
