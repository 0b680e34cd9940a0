"""One connected terminal, as the gateway sees it."""

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import count

from palaver.platforms.terminal.wire import FromGateway, Show, encode
from palaver.protocols import SendUnclear

_MAX_UNREAD_BYTES = 1 << 23
_GONE = "The terminal disconnected."


class TerminalConnection:
    def __init__(self, writer: asyncio.StreamWriter, chat: str, known: Iterable[str], *, alone: bool = False) -> None:
        self.chat = chat
        self.known = set(known)
        """The messages that it has shown, even partly."""
        self.alone = alone
        """It does not want answers to other terminals."""
        self.said = set[str]()
        """The ids of its messages."""
        self._writer = writer
        self._numbers = count(1)
        self._unconfirmed: dict[int, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, value: FromGateway) -> None:
        """Send a value; disconnect a terminal that has stopped reading."""
        if self._writer.transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            self._writer.transport.abort()
        if not self._writer.is_closing():
            self._writer.write(encode(value))

    async def show(self, message: str, text: str, *, growing: bool) -> None:
        """Show a message and wait for the confirmation. Raises SendUnclear if the terminal disconnects first."""
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

    def run_task(self, work: Coroutine[None, None, None]) -> None:
        """Run something until the terminal disconnects."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        for confirmed in self._unconfirmed.values():
            if not confirmed.done():
                confirmed.set_exception(SendUnclear(_GONE))
        self._writer.close()
