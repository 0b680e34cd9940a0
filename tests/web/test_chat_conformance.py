"""The adapter of the web chat passes the suite, with a browser that says things again until they are safe."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from itertools import count
from pathlib import Path

import pytest

from palaver.model.attachment import NewFile
from palaver.model.errors import StoreUnavailable
from palaver.model.source import Source
from palaver.platforms.web.adapter import ChatUpdate, WebAdapter
from palaver.protocols.adapter import Adapter, PlatformDown
from palaver.protocols.clock import SystemClock
from palaver.store.conversations.blob_store import BlobStore
from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer, NotPossible, Shown

_ids = count(1)


class Browser:
    """One chat of one person: it holds on to what was not taken, and shows what it is update."""

    chat_id = "alice"
    thread_id: str | None = None

    def __init__(self, folder: Path) -> None:
        self._shelf = BlobStore(folder)
        self._adapter: WebAdapter | None = None
        self._unsaid: asyncio.Queue[tuple[str, str, str, Sequence[NewFile]]] = asyncio.Queue()
        self._updates: dict[str, ChatUpdate] = {}

    def adapter(self) -> Adapter:
        self._adapter = WebAdapter(SystemClock(), push=self._push, shelf=self._shelf)
        return self._adapter

    def _push(self, update: ChatUpdate) -> None:
        if not (update.is_mine or update.is_typing):
            self._updates[update.id] = update

    async def run(self) -> None:
        while True:
            message, text, name, files = await self._unsaid.get()
            while not await self._taken(message, text, name, files):  # noqa: ASYNC110 - as browsers do
                await asyncio.sleep(0.005)

    async def _taken(self, message: str, text: str, name: str, files: Sequence[NewFile]) -> bool:
        if self._adapter is None:
            return False

        async def once(content: bytes) -> AsyncGenerator[bytes]:
            yield content

        kept = [await self._adapter.keep(file.name, file.media_type, once(file.content), 1 << 20) for file in files]
        try:
            async with asyncio.timeout(0.2):
                await self._adapter.say("alice", "main", message, text, name=name, files=kept)
        except (PlatformDown, StoreUnavailable, TimeoutError, RuntimeError):
            return False
        return True

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        assert thread_id is None
        return self._say(text, name, ())

    def _say(self, text: str, name: str, files: Sequence[NewFile]) -> Source:
        message = f"m{next(_ids)}"
        self._unsaid.put_nowait((message, text, name, files))
        return Source(platform="web", chat_id=self.chat_id, user_id="alice", message_id=message)

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        return self._say(text, "alice", files)

    async def shown(self) -> list[Shown]:
        return [Shown(chat_id=update.chat, text=update.text) for update in self._updates.values()]

    async def shown_files(self) -> list[NewFile]:
        raise NotPossible

    async def cut(self) -> None:
        """A browser has no connection that messages go in by."""

    async def limit_rate(self) -> None:
        raise NotPossible("the web chat takes everything")

    async def lose_send(self, *, shown: bool) -> None:
        raise NotPossible(f"what is sent is in the outbox, shown ({shown}) or not")

    async def close_chat(self) -> None:
        raise NotPossible("whoever closes a browser can open it again")


class TestWeb(AdapterConformance):
    @pytest.fixture
    async def fake(self, tmp_path: Path) -> AsyncGenerator[FakeServer]:
        fake = Browser(tmp_path)
        running = asyncio.create_task(fake.run())
        yield fake
        running.cancel()
        await asyncio.wait({running})

    async def test_a_file_is_shown_once_with_a_receipt_of_its_own(self, fake: FakeServer) -> None:
        """The page shows it from where it is kept: tests/web/test_chat.py."""
        del fake
