"""The adapters pass the suite over servers that speak the documented APIs."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.fake_server import FakeServer
from tests.platforms.called import ExpiringTokens, serve
from tests.platforms.wechat.fakes import FakeWeChat, FakeWeCom, WeChat, WeCom


class TestWeChat(ExpiringTokens):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(WeChat()) as server:
            yield FakeWeChat(server)


class TestWeCom(ExpiringTokens):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(WeCom()) as server:
            yield FakeWeCom(server)
