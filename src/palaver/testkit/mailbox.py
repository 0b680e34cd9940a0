"""The mailbox of an account: updates stay with the platform until they are acknowledged."""

import asyncio
from collections import deque
from datetime import datetime

from palaver.model.turn import Choice
from palaver.model.value import value
from palaver.protocols.adapter import PlatformDown
from palaver.testkit.faults import Luck

__all__ = [
    "File",
    "Mailbox",
    "MailboxLine",
    "Message",
    "Person",
    "Update",
]


@value
class Person:
    id: str
    name: str
    is_bot: bool = False
    """Somebody else's bot."""


@value
class File:
    name: str
    media_type: str
    content: bytes
    """Told to nobody; whoever wants it fetches it."""
    size: int | None = None
    """As it is told; by default as it is."""


@value
class Message:
    """Something to be seen in a chat."""

    id: str
    """Unique in its chat only."""
    author: str
    """The id of a person, or one of our accounts."""
    text: str
    at: datetime
    thread: str | None = None
    reply_to: str | None = None
    mentions: tuple[str, ...] = ()
    """The accounts it calls by name, and the one whose message it answers."""
    key: str | None = None
    """The idempotency key it was sent under, where one of our accounts sent it."""
    earlier: tuple[str, ...] = ()
    """What it said before it was edited, oldest first."""
    changed: datetime | None = None
    """When it was edited or deleted last."""
    deleted: bool = False
    files: tuple[File, ...] = ()
    album: str | None = None
    """What several messages have in common that were sent as one."""
    choices: tuple[Choice, ...] = ()
    """Buttons under it; whoever presses one is taken to have said what it says."""
    pressed: bool = False
    """It was said by pressing a button, and told to nobody but the account whose button it is."""


@value
class Update:
    """What the platform tells an account: somebody said something, or changed or deleted what they had said.

    Or a chat that had the id `moved_from` has another one now; then nobody said anything.
    """

    number: int
    chat: str
    kind: str
    title: str
    person: Person
    message: Message
    moved_from: str | None = None


class Mailbox:
    def __init__(self, luck: Luck) -> None:
        self.luck = luck
        self.waiting: dict[int, Update] = {}
        """What was not acknowledged yet."""
        self._repeated: set[int] = set()
        self._lines: dict[MailboxLine, None] = {}

    def put(self, update: Update) -> None:
        """It comes on every line, and on every later one until it is acknowledged."""
        self.waiting[update.number] = update
        for line in self._lines:
            line.put(update)

    def open(self) -> "MailboxLine":
        line = MailboxLine(self)
        for update in self.waiting.values():
            line.put(update)
        self._lines[line] = None
        return line

    def acknowledge(self, number: int) -> None:
        update = self.waiting.pop(number, None)
        if update and number not in self._repeated and self.luck.strikes(self.luck.faults.duplicate):
            self._repeated.add(number)
            self.put(update)

    def cut(self) -> None:
        for line in tuple(self._lines):
            line.cut()

    def forget(self, line: "MailboxLine") -> None:
        self._lines.pop(line, None)


class MailboxLine:
    """One connection for updates, until it is cut."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._queue: deque[Update] = deque()
        self._news = asyncio.Event()
        self._is_cut = False

    def put(self, update: Update) -> None:
        self._queue.append(update)
        self._news.set()

    async def next(self) -> Update:
        """The next update, acknowledged or not the ones before. Raises PlatformDown when the line is cut."""
        while True:
            self._stay_up()
            if update := self._pick():
                return update
            self._news.clear()
            await self._news.wait()

    async def acknowledge(self, number: int) -> None:
        self._stay_up()
        self._mailbox.acknowledge(number)
        self._stay_up()

    async def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        self._is_cut = True
        self._mailbox.forget(self)
        self._news.set()

    def _stay_up(self) -> None:
        luck = self._mailbox.luck
        if not self._is_cut and luck.strikes(luck.faults.disconnect):
            self.cut()
        if self._is_cut:
            raise PlatformDown("the connection was cut")

    def _pick(self) -> Update | None:
        """What another line has acknowledged in the meantime is left out."""
        while self._queue:
            place = self._mailbox.luck.pick(len(self._queue))
            update = self._queue[place]
            del self._queue[place]
            if update.number in self._mailbox.waiting:
                return update
        return None
