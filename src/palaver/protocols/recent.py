"""What an adapter remembers for a while: names that it looked up, and messages that it can still reply to."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from palaver.model.label import Label
from palaver.protocols.adapter import PlatformError, TargetAway

__all__ = ["Names", "ReplyPossibleLater", "ReplyWindows", "remember"]

K = TypeVar("K")
T = TypeVar("T")
_MAX_KEPT = 10_000
_NAME_SECONDS = 3600.0
_RETRY_SECONDS = 60.0
"""How long to do without a name that could not be looked up."""
_AWAY_SECONDS = 3600.0
_LOOKUP_SECONDS = 1.5
"""A callback has to be answered within few seconds."""


class Names:
    """Names that a platform does not send along, each looked up once an hour. Without an answer there is none."""

    def __init__(self, fetch: Callable[[str], Awaitable[object]], seconds: float = _NAME_SECONDS) -> None:
        self._fetch, self._seconds = fetch, seconds
        self._known: dict[str, tuple[float, Label | None]] = {}

    async def get(self, key: str) -> Label | None:
        until, name = self._known.get(key, (0.0, None))
        now = time.monotonic()
        if now < until:
            return name
        seconds = self._seconds
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
                found = await self._fetch(key)
        except (PlatformError, TimeoutError, LookupError, TypeError):
            found, seconds = None, min(seconds, _RETRY_SECONDS)
        name = Label(found) if isinstance(found, str) and found else None
        remember(self._known, key, (now + seconds, name))
        return name


class ReplyPossibleLater(TargetAway):
    """The platform only takes replies, and none now: the message waits until somebody writes there again."""

    def __init__(self) -> None:
        super().__init__(_AWAY_SECONDS)
        self.args = ("The platform only takes replies, and none now. It is sent when somebody writes there again.",)


class _Window(NamedTuple):
    handle: str
    until: float
    uses: int


class ReplyWindows:
    """The last message of each chat, while a reply to it is possible or free: for some seconds, and some replies."""

    def __init__(self, uses: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._uses, self._clock = uses, clock
        self._open: dict[str, _Window] = {}

    def open(self, chat: str, handle: str, seconds: float) -> None:
        remember(self._open, chat, _Window(handle, self._clock() + seconds, self._uses))

    def take(self, chat: str) -> str | None:
        """Use the window once; None if it is closed."""
        window = self._open.pop(chat, None)
        if window is None or self._clock() >= window.until:
            return None
        if window.uses > 1:
            self._open[chat] = window._replace(uses=window.uses - 1)
        return window.handle


def remember(kept: dict[K, T], key: K, value: T, most: int = _MAX_KEPT) -> None:
    """Keep a value as the newest, and forget the oldest ones beyond `most`."""
    kept.pop(key, None)
    kept[key] = value
    while len(kept) > most:
        del kept[next(iter(kept))]
