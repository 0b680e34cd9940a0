"""What we ask Slack for: names, and what was said while we were away."""

import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from palaver.platforms.slack.client import API, WebClient, lacks_permission
from palaver.platforms.slack.parse import Json, OwnApp, type_of, user_name
from palaver.protocols import (
    CHANNEL,
    DM,
    GROUP,
    Clock,
    Inbound,
    Label,
    Labels,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    Receiver,
    SendRefused,
    Source,
    parse_or_skip,
)
from palaver.protocols.recent import remember

T = TypeVar("T")


class _Chat(NamedTuple):
    kind: str
    name: str


class Names:
    def __init__(self, web: WebClient, us: OwnApp) -> None:
        self._web = web
        self._us = us
        self._people: dict[str, str | None] = {}
        self._chats: dict[str, _Chat | None] = {}
        self._bots: dict[str, bool | None] = {}
        self._is_ours: dict[str, bool | None] = {}
        """By chat and thread."""

    def rename(self, id_: str, name: str) -> None:
        """Learn the new name of a person, or of a channel that we know."""
        chat = self._chats.get(id_)
        if chat:
            self._chats[id_] = chat._replace(name=name)
        elif id_.startswith(("U", "W")):
            remember(self._people, id_, name)

    async def add_to(self, inbound: Inbound) -> Inbound:
        """Return the message with names, as far as Slack tells them, and with the kind of its chat."""
        source = inbound.source
        user = inbound.labels.user
        chat = None if source.chat_kind == DM else await _look_up(self._chats, source.chat_id, self._fetch_chat)
        name = None if user else await _look_up(self._people, source.user_id, self._fetch_person)
        labels = Labels(chat=Label(chat.name) if chat else None, user=user or Label.of(name))
        return replace(
            inbound,
            source=replace(source, chat_kind=chat.kind) if chat else source,
            labels=labels,
            mentions_us=inbound.mentions_us or await self._is_in_our_thread(source),
        )

    async def is_bot(self, user: str | None) -> bool:
        """Return whether it is, or can be, an app's user. Messages of apps say so, reactions do not."""
        return await _look_up(self._bots, user, self._fetch_is_bot) is not False

    async def _fetch_is_bot(self, user: str) -> bool:
        return bool((await self._web.users_info(user=user))["user"].get("is_bot"))

    async def _is_in_our_thread(self, source: Source) -> bool:
        """Return whether it is in a thread that we began, by answering a message for us there."""
        is_reply = source.thread_id and source.thread_id != source.message_id and source.chat_kind != DM
        if not (is_reply and self._us.reply_in_thread):
            return False
        place = f"{source.chat_id} {source.thread_id}"
        return bool(await _look_up(self._is_ours, place, self._fetch_beginning))

    async def _fetch_beginning(self, place: str) -> bool:
        chat, _, thread = place.partition(" ")
        found = await self._web.conversations_history(channel=chat, latest=thread, inclusive=True, limit=1)
        first: Json = found["messages"][0]
        return first["ts"] == thread and f"<@{self._us.user}" in first["text"]

    async def _fetch_person(self, user: str) -> str:
        return str(user_name((await self._web.users_info(user=user))["user"]))

    async def _fetch_chat(self, chat: str) -> _Chat:
        found: Json = (await self._web.conversations_info(channel=chat))["channel"]
        return _Chat(GROUP if found.get("is_mpim") else CHANNEL, str(found["name"]))


async def _look_up(known: dict[str, T | None], id_: str | None, fetch: Callable[[str], Awaitable[T]]) -> T | None:
    """Return what is known, or ask Slack. A message without a name is better than none."""
    if id_ is None or id_ in known:
        return known.get(id_ or "")
    try:
        with API.requests():
            found = await fetch(id_)
    except (PlatformRefused, SendRefused):
        found = None  # It would not tell us next time.
    except (PlatformError, AttributeError, LookupError, TypeError):
        return None
    remember(known, id_, found)
    return found


log = logging.getLogger(__name__)

_PAGE = 200
_TYPES = "im,mpim,private_channel,public_channel"
_OVERLAP_SECONDS = 60.0
"""Events of different chats do not come quite in order."""
_PAUSE_SECONDS = 5.0
"""How long to wait after an error of Slack's own."""

Take = Callable[[Json], Awaitable[None]]


class History:
    """Reads each chat once, when there is nothing else to do or a new message comes in it."""

    def __init__(self, web: WebClient, receiver: Receiver, take: Take, clock: Clock) -> None:
        self._web = web
        self._receiver = receiver
        self._take = take
        self._clock = clock
        self._since = self._newest = self._paused_until = 0.0
        self._is_listed = True
        self._unread: dict[str, str] = {}
        """The types of the chats that are not read yet, by their ids."""

    async def begin(self) -> None:
        """Start from the stored position; the first time from now."""
        stored = await self._receiver.load_position()
        self._is_listed = not stored
        # The overlap must not reach back to before the first connection.
        self._newest = float(stored) if stored else self._now() + _OVERLAP_SECONDS
        self._since = self._newest - _OVERLAP_SECONDS
        if not stored:
            await self._save()

    @property
    def is_behind(self) -> bool:
        return bool(self._unread) or not self._is_listed

    @property
    def pause(self) -> float:
        """How many seconds to wait before the next request."""
        return max(self._paused_until - self._now(), 0.0)

    async def take(self, payload: Json) -> None:
        """Hand over an event, after what was missed in its chat."""
        chat, number = parse_or_skip("slack", lambda: _place(payload)) or ("", 0.0)
        if chat in self._unread and not self.pause:
            await self._read(chat)
        await self._take(payload)
        await self._advance(number)

    async def read_next(self) -> None:
        """Read one chat, direct chats first."""
        if not self._is_listed:
            await self._try(self._list())
        elif self._unread:
            await self._read(next(iter(self._unread)))

    async def _list(self) -> None:
        found = [each async for each in self._pages("users_conversations", "channels", types=_TYPES)]
        random.shuffle(found)  # so that several short lives read all of them, too
        found.sort(key=lambda chat: not chat.get("is_im"))
        self._unread = {str(chat["id"]): type_of(chat) for chat in found}
        self._is_listed = True

    async def _read(self, chat: str) -> None:
        if await self._try(self._catch_up(chat, self._unread[chat])):
            del self._unread[chat]
            await self._advance(self._newest)

    async def _try(self, work: Awaitable[None]) -> bool:
        """Return whether it is done: read, or refused for good."""
        try:
            await work
        except (PlatformRefused, SendRefused) as error:
            _raise_if_general(error)
            self._is_listed = True
            log.warning("Slack shows no history: %s", error, extra={"action": "slack.no_history"})
        except (PlatformBusy, PlatformDown) as error:
            self._paused_until = self._now() + (error.after if isinstance(error, PlatformBusy) else _PAUSE_SECONDS)
            return False
        return True

    async def _catch_up(self, chat: str, type_: str) -> None:
        """Read what is new, and at least a page, for new replies in older threads. The newest comes first."""
        missed: dict[str, Json] = {}
        count = 0
        async for message in self._pages("conversations_history", "messages", channel=chat):
            count += 1
            if _number(message, "ts") > self._since:
                missed[message["ts"]] = message
            elif count >= _PAGE:
                break
            if _number(message, "latest_reply") > self._since:
                missed |= await self._replies(chat, message["ts"])
        for number in sorted(missed, key=float):
            for event in _events(missed[number], {"channel": chat, "channel_type": type_}):
                await self._take({"event": event})
            self._newest = max(self._newest, float(number))

    async def _replies(self, chat: str, thread: str) -> dict[str, Json]:
        pages = self._pages("conversations_replies", "messages", channel=chat, ts=thread, oldest=f"{self._since:.6f}")
        try:
            return {each["ts"]: each async for each in pages if _number(each, "ts") > self._since}
        except (PlatformRefused, SendRefused) as error:
            _raise_if_general(error)
            return {}  # Slack does not let every app read threads, and this one can have been deleted.

    async def _pages(self, method: str, items: str, **asked: str) -> AsyncGenerator[Json]:
        cursor = None
        while cursor != "":
            with API.requests():
                answer = await getattr(self._web, method)(limit=_PAGE, cursor=cursor, **asked)
            page: list[Json] = [each for each in answer.get(items) or () if isinstance(each, dict)]
            more: Json = answer.get("response_metadata") or {}
            for each in page:
                yield each
            cursor = str(more.get("next_cursor") or "")

    async def _advance(self, number: float) -> None:
        """Store the position, but no time to come: that would hide everything until then."""
        self._newest = max(self._newest, min(number, self._now()))
        if number and not self.is_behind:
            await self._save()

    async def _save(self) -> None:
        await self._receiver.save_position(f"{self._newest:.6f}")

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _raise_if_general(error: PlatformError) -> None:
    """Raise it again if it concerns the token, and not only what we asked for."""
    if isinstance(error, PlatformRefused) and not lacks_permission(error):
        raise error


def _place(payload: Json) -> tuple[str, float]:
    event: Json = payload.get("event") or {}
    return str(event.get("channel")), _number(event, "ts")


def _number(message: Json, name: str) -> float:
    """Slack's message ids are times."""
    try:
        return float(message.get(name) or 0)
    except (TypeError, ValueError):
        return 0.0


def _events(message: Json, where: Json) -> list[Json]:
    """Return what Slack would have reported. The text is the latest; that of a message we know is its edit."""
    said = {**message, **where, "type": "message"}
    edited: Json = message.get("edited") or {}
    if not edited.get("ts"):
        return [said]
    changed = {"type": "message", "subtype": "message_changed", "ts": edited["ts"], **where, "message": message}
    return [said, changed]
