"""The terminal adapter passes the suite, with the client that people use at the other end."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palaver.model.source import Source
from palaver.platforms.terminal.adapter import OWNER, TerminalAdapter
from palaver.protocols.adapter import Adapter
from palaver.protocols.clock import SystemClock
from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer, NotPossible, Shown
from tests.platforms.terminal.people import Paper, Person, PlainDesk


class TornPaper(Paper):
    """The next message tears the connection, after or before it is on the paper."""

    tears: bool | None = None
    person: Person

    def show(self, message: str, text: str, *, growing: bool) -> None:
        tears, self.tears = self.tears, None
        if tears is not False:
            super().show(message, text, growing=growing)
        if tears is not None:
            self.person.cut()


class FakeTerminal:
    chat_id = "main"
    thread_id: str | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self._paper = TornPaper()
        self.person = self._paper.person = Person(path, self.chat_id, self._paper)

    def adapter(self) -> Adapter:
        return TerminalAdapter(self._path, PlainDesk(), SystemClock())

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        assert thread_id is None
        said = self.person.says(text, name)
        return Source(platform="terminal", chat_id=self.chat_id, user_id=OWNER, message_id=said)

    async def shown(self) -> list[Shown]:
        return [Shown(chat_id=self.chat_id, text=text) for text in self._paper.texts]

    async def cut(self) -> None:
        self.person.cut()

    async def limit_rate(self) -> None:
        raise NotPossible("a terminal takes everything")

    async def lose_send(self, *, shown: bool) -> None:
        self._paper.tears = shown

    async def close_chat(self) -> None:
        raise NotPossible("a terminal can always come back")


class TestTerminal(AdapterConformance):
    @pytest.fixture
    async def fake(self, tmp_path: Path) -> AsyncGenerator[FakeServer]:
        fake = FakeTerminal(tmp_path / "t.sock")
        running = asyncio.create_task(fake.person.run())
        yield fake
        running.cancel()
        await asyncio.wait({running})
