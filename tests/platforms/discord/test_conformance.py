"""The adapter passes the suite, over a server that speaks Discord's gateway and API, in a server and in private."""

from collections.abc import AsyncGenerator

import pytest

from palaver.protocols import Outbound, SendRefused, Threading
from palaver.testkit.fake_server import FakeServer
from tests.platforms.conformance import RenderedConformance
from tests.platforms.discord.fakes import FakeDirect, FakeServerChannel
from tests.platforms.discord.server import serving
from tests.platforms.discord.world import World


class TestServerChannel(RenderedConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serving(World()) as server:
            yield FakeServerChannel(server)


class TestDirectChat(RenderedConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serving(World()) as server:
            yield FakeDirect(server)

    async def test_people_can_answer_in_a_thread_we_open(self, fake: FakeServer) -> None:
        """A direct chat has no threads."""
        adapter = fake.adapter()
        assert isinstance(adapter, Threading)
        with pytest.raises(SendRefused):
            await adapter.open_thread(
                Outbound(platform="discord", chat_id=fake.chat_id, text="hi", opens="Plans"), idempotency_key="1"
            )
