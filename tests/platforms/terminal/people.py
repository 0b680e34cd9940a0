"""People at terminals, as tests need them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from palaver.model.source import Source
from palaver.platforms.terminal.client import Client
from palaver.platforms.terminal.socket import Streams, connect
from palaver.platforms.terminal.wire import File, MenuEntry, Offer, RecapLine, Reloaded, Settled, Welcome

PATIENCE = 180.0


class Paper:
    """A screen that keeps everything."""

    def __init__(self) -> None:
        self.states: list[tuple[str, str, bool]] = []
        """Every state of every message: its id, its text, and whether it was growing."""
        self.others: list[str] = []
        self.welcomes: list[Welcome] = []
        self.losses = 0
        self.typings = 0
        self.models: list[str | None] = []
        self.doing: list[str] = []
        self.files: list[File] = []
        self.recaps: list[tuple[RecapLine, ...]] = []
        self._changed = asyncio.Event()

    @property
    def texts(self) -> list[str]:
        """Every message in its last state."""
        return list({message: text for message, text, _ in self.states}.values())

    def welcome(self, welcome: Welcome) -> None:
        self.welcomes.append(welcome)
        self._changed.set()

    def lost(self) -> None:
        self.losses += 1
        self._changed.set()

    def show(self, message: str, text: str, *, growing: bool) -> None:
        self.states.append((message, text, growing))
        self._changed.set()

    def heard(self, text: str) -> None:
        self.others.append(text)
        self._changed.set()

    def typing(self, model: str | None, doing: str) -> None:
        self.doing.append(doing)
        self.typings += 1
        self.models.append(model)
        self._changed.set()

    def save(self, file: File) -> None:
        self.files.append(file)
        self._changed.set()

    def recap(self, lines: Sequence[RecapLine]) -> None:
        self.recaps.append(tuple(lines))
        self._changed.set()

    def idle(self) -> None:
        pass

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


class Person(Client):
    def __init__(
        self, path: Path, chat: str = "main", paper: Paper | None = None, name: str = "alice", *, alone: bool = False
    ) -> None:
        async def patiently() -> Streams:
            while True:
                try:
                    return await connect(path)
                except OSError:
                    await asyncio.sleep(0.01)

        self.paper = paper or Paper()
        super().__init__(patiently, chat, self.paper, name, alone=alone)

    def says(self, text: str, name: str) -> str:
        """Gives the id under which it was said."""
        self._name = name
        self.say(text)
        return next(reversed(self._unsettled))

    def cut(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    @asynccontextmanager
    async def present(self) -> AsyncGenerator[Paper]:
        running = asyncio.create_task(self.run())
        try:
            await self.paper.until(lambda: bool(self.paper.welcomes))
            yield self.paper
        finally:
            running.cancel()
            await asyncio.wait({running})


class PlainDesk:
    """Everything is answered at once."""

    def __init__(self, recap: Sequence[RecapLine] = ()) -> None:
        self._recap = recap

    def commands(self) -> list[MenuEntry]:
        return [MenuEntry(name="new", help="start a fresh conversation")]

    def reload(self) -> Reloaded:
        return Reloaded(refused="not here")

    async def suggestions(self, source: Source) -> Sequence[str]:
        assert source.chat_id
        return ()

    async def offer(self) -> Offer | None:
        return None

    async def recap(self, source: Source) -> Sequence[RecapLine]:
        assert source.chat_id
        return self._recap

    async def model(self, source: Source) -> str | None:
        assert source.chat_id
        return "openai:small"

    async def answered(self, source: Source) -> Settled:
        assert source.message_id
        return Settled(id=source.message_id)
