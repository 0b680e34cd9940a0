"""Files may take longer than words to be sent, and nobody takes them up meanwhile."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

from palaver.model.attachment import NewFile
from palaver.model.turn import Outbound
from palaver.protocols.agent import Event, Final, Request
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.results import RepeatSafety
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Scripted
from tests.engine.gateway import MovableClock, running


class Slow(FakeAdapter):
    """Its files take until they may be there, and longer than words may take."""

    def __init__(self, world: FakePlatform) -> None:
        super().__init__(world)
        self.began, self.goes_on = asyncio.Event(), asyncio.Event()

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        self.began.set()
        await self.goes_on.wait()
        await asyncio.sleep(0.2)
        return await super().send_file(outbound, content, idempotency_key=idempotency_key)


async def _sends(_: Request) -> AsyncGenerator[Event]:
    yield Final(text="here", files=(NewFile("report.md", b"# All well", "text/markdown"),))


async def test_a_file_may_take_longer_than_words_and_stays_with_its_sender(store_url: str, tmp_path: Path) -> None:
    world, clock, shelf = FakePlatform(), MovableClock(), BlobStore(tmp_path / "files")
    adapter, short = Slow(world), timedelta(seconds=0.1)
    async with running(
        store_url, world, agent=Scripted(_sends), adapters=[adapter], shelf=shelf, clock=clock, send_limit=short
    ) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "report")
        await adapter.began.wait()
        clock.later(minutes=5)
        others = here.store.outbox.reclaim_sends("w2", clock.now(), safe=RepeatSafety())
        assert await here.store.transact(others) == []
        adapter.goes_on.set()
        await here.settled()
        assert [row[0] for row in await here.rows("SELECT state FROM outbox")] == ["delivered"] * 2
        assert [message.text for message in chat.shown] == ["here", ""]
