"""The adapter passes the suite over a server that speaks Google Chat's documented API."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.fake_server import FakeServer
from tests.platforms.called import CalledConformance, ExpiringTokens, serve
from tests.platforms.googlechat.fakes import FakeGoogleChat, FakeRoom, GoogleChat


class _Conformance(ExpiringTokens):
    # Google Chat has no escapes.
    hostile = tuple(text for text in CalledConformance.hostile if "&amp;" not in text)


class TestAlone(_Conformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(GoogleChat()) as server:
            yield FakeGoogleChat(server)


class TestInASpace(_Conformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(GoogleChat()) as server:
            yield FakeRoom(server)
