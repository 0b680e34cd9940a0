"""The adapter passes the suite over a server that speaks DingTalk's documented API."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.fake_server import FakeServer
from tests.platforms.called import CalledConformance, ExpiringTokens, UntypedFiles, serve
from tests.platforms.dingtalk.fakes import DingTalk, FakeDingTalk, FakeGroup, FakeStream


class TestAlone(ExpiringTokens):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(DingTalk()) as server:
            yield FakeDingTalk(server)


class TestInAGroup(ExpiringTokens):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(DingTalk()) as server:
            yield FakeGroup(server)


class TestStream(UntypedFiles):
    hostile = CalledConformance.hostile

    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(DingTalk()) as server:
            yield FakeStream(server)
