"""The adapter passes the suite over a server that speaks Feishu's documented API."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.fake_server import FakeServer
from tests.platforms.called import CalledConformance, serve
from tests.platforms.feishu.fakes import FakeFeishu, FakeGroup, Feishu


class TestAlone(CalledConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Feishu()) as server:
            yield FakeFeishu(server)


class TestInAGroup(CalledConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Feishu()) as server:
            yield FakeGroup(server)
