"""The adapter passes the suite over a server that speaks QQ's documented API."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.fake_server import FakeServer
from tests.platforms.called import ExpiringTokens, serve
from tests.platforms.qq.fakes import FakeGroup, FakeQq, Qq


class TestAlone(ExpiringTokens):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Qq()) as server:
            yield FakeQq(server)


class TestInAGroup(ExpiringTokens):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Qq()) as server:
            yield FakeGroup(server)
