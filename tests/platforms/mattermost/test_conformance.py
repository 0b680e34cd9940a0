"""The adapter passes the suite over a server that speaks Mattermost's documented API."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer
from tests.platforms.called import serve
from tests.platforms.mattermost.fakes import FakeChannel, FakeMattermost, Mattermost


class TestAlone(AdapterConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Mattermost()) as server:
            yield FakeMattermost(server)


class TestInAChannel(AdapterConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Mattermost()) as server:
            yield FakeChannel(server)
