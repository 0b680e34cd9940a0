"""Look up names, and whose threads they are, once per connection; events report later changes of names."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from palaver.platforms.slack.client import WebClient
from palaver.platforms.slack.errors import API
from palaver.platforms.slack.parse import Json, OwnApp, user_name
from palaver.protocols import (
    CHANNEL,
    DM,
    GROUP,
    Inbound,
    Label,
    Labels,
    PlatformError,
    PlatformRefused,
    SendRefused,
    Source,
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
        source, user = inbound.source, inbound.labels.user
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
