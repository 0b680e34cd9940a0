"""The adapter passes the suite, over a server that speaks BlueBubbles' API, asking and being called."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.fake_server import FakeServer
from tests.platforms.conformance import RenderedConformance
from tests.platforms.imessage.fakes import FakeAsking, FakeCalled
from tests.platforms.imessage.server import serving
from tests.platforms.imessage.world import Mac


class TestAsking(RenderedConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serving(Mac()) as server:
            yield FakeAsking(server)


class TestBeingCalled(RenderedConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serving(Mac()) as server:
            yield FakeCalled(server)
