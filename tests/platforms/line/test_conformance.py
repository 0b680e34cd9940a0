"""The adapter passes the suite over a server that speaks LINE's documented API."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.fake_server import FakeServer
from tests.platforms.called import CalledConformance, serve
from tests.platforms.line.fakes import FakeGroup, FakeLine, Line


class TestAlone(CalledConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Line()) as server:
            yield FakeLine(server)


class TestInAGroup(CalledConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Line()) as server:
            yield FakeGroup(server)
