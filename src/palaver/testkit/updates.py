"""Updates: what the fake platform reports to an account; each one waits until it is acknowledged."""

import asyncio
from collections import deque
from datetime import datetime

from palaver.protocols import Choice, PlatformDown, Reaction, value
from palaver.testkit.faults import FaultInjector

__all__ = ["File", "Message", "Person", "QueueStream", "Update", "UpdateQueue"]


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
    """Not part of an update; fetched separately."""
    size: int | None = None
    """The size that an update states; the real one by default."""


@value
class Message:
    """A message as people see it in a chat."""

    id: str
    """Unique in its chat only."""
    author: str
    """The id of a person, or one of our accounts."""
    text: str
    at: datetime
    thread: str | None = None
    reply_to: str | None = None
    quoted: "Message | None" = None
    """The message it replies to."""
    mentions: tuple[str, ...] = ()
    """The accounts it mentions, and the author of the message it replies to."""
    key: str | None = None
    """The idempotency key, if one of our accounts sent it."""
    earlier: tuple[str, ...] = ()
    """The texts before it was edited, oldest first."""
    changed: datetime | None = None
    """When it was last edited or deleted."""
    deleted: bool = False
    files: tuple[File, ...] = ()
    album: str | None = None
    """An id shared by messages that were sent as one."""
    choices: tuple[Choice, ...] = ()
    """Buttons under it; pressing one counts as saying its text."""
    reaction: Reaction | None = None
    """A reaction to the message `reply_to`, not a message: no chat shows it."""
    pressed: bool = False
    """Said by pressing a button, and reported only to the account that offered it."""


@value
class Update:
    """A new, edited or deleted message; or, with `moved_from`, the new id of a chat."""

    number: int
    chat: str
    kind: str
    title: str
    person: Person
    message: Message
    moved_from: str | None = None


class UpdateQueue:
    """The updates of one account."""

    def __init__(self, injector: FaultInjector) -> None:
        self.injector = injector
        self.waiting: dict[int, Update] = {}
        """Updates that are not acknowledged yet."""
        self._repeated: set[int] = set()
        self._streams: dict[QueueStream, None] = {}

    def put(self, update: Update) -> None:
        """Send an update on every open stream, and on every later one until it is acknowledged."""
        self.waiting[update.number] = update
        for stream in self._streams:
            stream.put(update)

    def open(self) -> "QueueStream":
        stream = QueueStream(self)
        for update in self.waiting.values():
            stream.put(update)
        self._streams[stream] = None
        return stream

    def acknowledge(self, number: int) -> None:
        update = self.waiting.pop(number, None)
        if update and number not in self._repeated and self.injector.strikes(self.injector.faults.duplicate):
            self._repeated.add(number)
            self.put(update)

    def cut(self) -> None:
        for stream in tuple(self._streams):
            stream.cut()

    def remove(self, stream: "QueueStream") -> None:
        self._streams.pop(stream, None)


class QueueStream:
    """One connection for updates, until it is cut."""

    def __init__(self, queue: UpdateQueue) -> None:
        self._queue = queue
        self._pending: deque[Update] = deque()
        self._wakeup = asyncio.Event()
        self._is_cut = False

    def put(self, update: Update) -> None:
        self._pending.append(update)
        self._wakeup.set()

    async def next(self) -> Update:
        """Return the next update, even if earlier ones are not acknowledged. Raises PlatformDown when cut."""
        while True:
            self._raise_if_cut()
            if update := self._pick():
                return update
            self._wakeup.clear()
            await self._wakeup.wait()

    async def acknowledge(self, number: int) -> None:
        self._raise_if_cut()
        self._queue.acknowledge(number)
        self._raise_if_cut()

    async def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        self._is_cut = True
        self._queue.remove(self)
        self._wakeup.set()

    def _raise_if_cut(self) -> None:
        injector = self._queue.injector
        if not self._is_cut and injector.strikes(injector.faults.disconnect):
            self.cut()
        if self._is_cut:
            raise PlatformDown("The connection was cut.")

    def _pick(self) -> Update | None:
        """Skip what another stream has acknowledged in the meantime."""
        while self._pending:
            index = self._queue.injector.pick(len(self._pending))
            update = self._pending[index]
            del self._pending[index]
            if update.number in self._queue.waiting:
                return update
        return None
