"""Read what is new from the Mac's message database, in order and without gaps.

BlueBubbles calls a webhook once and never again, in any order, and sometimes before a message's files are known. So a
call only wakes the reader, which asks for everything since its stored position.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from palaver.platforms.imessage.api import items_of
from palaver.platforms.imessage.parse import is_complete
from palaver.protocols import Clock, Receiver, parse_or_skip, value
from palaver.protocols.rest import RestApi

Json = Mapping[str, Any]

PARTS = ("chats", "attachments", "attributed-body", "message-summary-info")
_PAGE = 100
_EDITABLE_MS = 20 * 60 * 1000
"""How long before the newest message a message can still change: Apple permits edits for 15 minutes."""
_LATE_MS = 24 * 3600 * 1000
"""How much older than the newest message one can be that the Mac gets only now."""
_SAVE_EVERY = 20
"""How many new messages are handed over again at most after a crash."""
_HOLD_SECONDS = 30.0
"""How long to wait for the files of a message."""


@value
class Position:
    row: int = 0
    """The row of the last message: rows are numbered as the Mac gets them."""
    at: int = 0
    """The time of the newest message, in milliseconds."""
    since: int = 0
    """Older messages came before this account was set up."""

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str | None) -> "Position | None":
        try:
            return cls(**{name: int(number) for name, number in json.loads(text or "").items()})
        except (AttributeError, TypeError, ValueError):
            return None  # not written by us


class Reader:
    def __init__(
        self, api: RestApi, receiver: Receiver, take: Callable[[Json, Receiver], Awaitable[None]], clock: Clock
    ) -> None:
        self.news = asyncio.Event()
        """Set when there may be something to read."""
        self._api, self._receiver, self._take, self._clock = api, receiver, take, clock
        self._position = Position()
        self._seen: dict[tuple[object, ...], int] = {}
        """What was handed over and could still be read again, with its time."""
        self._held: dict[str, float] = {}
        """Since when messages wait for their files."""

    async def begin(self) -> None:
        stored = Position.decode(await self._receiver.load_position())
        latest = await self._query(sort="DESC", limit=_PAGE)
        row = max((_row(each) for each in latest), default=0)
        newest = max(map(self._time, latest), default=0)
        if stored is None:
            self._position = Position(row=row, at=newest, since=newest + 1)
            await self._receiver.save_position(self._position.encode())
        else:
            # A new Mac, or a restored one, numbers its messages anew.
            self._position = stored if stored.row <= row else replace(stored, row=0)

    async def read(self, *, changes: bool) -> bool:
        """Hand over what is new and, if asked for, what has changed. Return whether to read again soon."""
        start, newest = self._position, self._position
        is_new = {"statement": "message.ROWID > :row", "args": {"row": start.row}}
        for ago, where in ((_LATE_MS, [is_new]), (_EDITABLE_MS, []))[: 2 if changes else 1]:
            found = [each async for each in self._pages(after=max(start.at - ago, start.since), where=where)]
            for count, message in enumerate(sorted(found, key=_row), 1):
                if not await self._hand_over(message):
                    return True
                newest = replace(newest, row=max(newest.row, _row(message)), at=max(newest.at, self._time(message)))
                if where and not count % _SAVE_EVERY:
                    await self._receiver.save_position(replace(start, row=_row(message)).encode())
        if newest != start:
            await self._receiver.save_position(newest.encode())
        self._position = newest
        self._seen = {key: at for key, at in self._seen.items() if at >= newest.at - _EDITABLE_MS}
        return False

    async def _hand_over(self, message: Json) -> bool:
        """Return whether it is done; not if its files are missing."""
        key = message["guid"], message.get("dateEdited"), message.get("dateRetracted")
        if key in self._seen:
            return True
        if parse_or_skip("imessage", lambda: is_complete(message)) is False:
            now = asyncio.get_running_loop().time()
            if now < self._held.setdefault(message["guid"], now) + _HOLD_SECONDS:
                return False
        self._held.pop(message["guid"], None)
        await self._take(message, self._receiver)
        self._seen[key] = self._time(message)
        return True

    def _time(self, message: Json) -> int:
        """Return when it was sent, but no time to come: that would hide everything until then."""
        return min(int(message["dateCreated"] or 0), int(self._clock.now().timestamp() * 1000))

    async def _pages(self, **query: object) -> AsyncIterator[Json]:
        offset = 0
        while True:
            page = await self._query(sort="ASC", limit=_PAGE, offset=offset, **query)
            for message in page:
                yield message
            if len(page) < _PAGE:
                return
            offset += _PAGE

    async def _query(self, **query: object) -> list[Json]:
        return items_of(await self._api.call("POST", "/message/query", json={"with": PARTS, **query}))


def _row(message: Json) -> int:
    return int(message["originalROWID"])
