"""Read what was written while no gateway was connected: Slack repeats an event for some minutes only.

Slack lists the chats of the app, so the position is just the time of the newest message. It is stored once every chat
has been read, so that a crash before leaves no gap.
"""

import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable

from palaver.platforms.slack.client import WebClient
from palaver.platforms.slack.errors import API, lacks_permission
from palaver.platforms.slack.parse import Json, type_of
from palaver.protocols import (
    Clock,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    Receiver,
    SendRefused,
    parse_or_skip,
)

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
        self._web, self._receiver, self._take, self._clock = web, receiver, take, clock
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
