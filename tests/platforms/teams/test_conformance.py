"""The adapter passes the suite over a server that speaks the documented Bot Connector API."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.fake_server import FakeServer
from tests.platforms.called import ExpiringTokens, serve
from tests.platforms.teams.fakes import FakeGroup, FakeTeams, FakeThread, Teams


class TestAlone(ExpiringTokens):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Teams()) as server:
            yield FakeTeams(server)


class TestInAGroup(ExpiringTokens):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Teams()) as server:
            yield FakeGroup(server)


class TestInAThread(ExpiringTokens):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Teams()) as server:
            yield FakeThread(server)
