"""A visit: one terminal that is connected, as the gateway sees it."""

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import count

from palaver.platforms.terminal.wire import FromGateway, Show, encoded
from palaver.protocols import SendUnclear

__all__ = [
    "Visit",
]

_MOST_UNREAD = 1 << 23
_GONE = "the terminal went away"


class Visit:
    def __init__(self, writer: asyncio.StreamWriter, chat: str, known: Iterable[str], *, alone: bool = False) -> None:
        self.chat = chat
        self.known = set(known)
        """The messages that it has shown, whole or in part."""
        self.alone = alone
        """It wants no answer that another waits for."""
        self.said = set[str]()
        """The ids of what it said."""
        self._writer = writer
        self._numbers = count(1)
        self._unconfirmed: dict[int, asyncio.Future[None]] = {}
        self._meanwhile: set[asyncio.Task[None]] = set()

    def tell(self, value: FromGateway) -> None:
        """One that has stopped reading is let go; it may come again."""
        if self._writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            self._writer.transport.abort()
        if not self._writer.is_closing():
            self._writer.write(encoded(value))

    async def show(self, message: str, text: str, *, growing: bool) -> None:
        """Until the terminal has confirmed it. Raises SendUnclear if it goes away before that."""
        if self._writer.is_closing():
            raise SendUnclear(_GONE)
        number = next(self._numbers)
        confirmed = self._unconfirmed[number] = asyncio.get_running_loop().create_future()
        self.known.add(message)
        self.tell(Show(number=number, id=message, text=text, growing=growing))
        try:
            await confirmed
        finally:
            self._unconfirmed.pop(number, None)

    def confirm(self, number: int) -> None:
        confirmed = self._unconfirmed.get(number)
        if confirmed and not confirmed.done():
            confirmed.set_result(None)

    def meanwhile(self, doing: Coroutine[None, None, None]) -> None:
        """Something that ends with the visit."""
        task = asyncio.create_task(doing)
        self._meanwhile.add(task)
        task.add_done_callback(self._meanwhile.discard)

    def end(self) -> None:
        for task in self._meanwhile:
            task.cancel()
        for confirmed in self._unconfirmed.values():
            if not confirmed.done():
                confirmed.set_exception(SendUnclear(_GONE))
        self._writer.close()
