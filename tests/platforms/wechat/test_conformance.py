"""The adapters pass the suite over servers that speak the documented APIs."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.fake_server import FakeServer
from tests.platforms.called import CalledConformance, serve
from tests.platforms.wechat.fakes import FakeWeChat, FakeWeCom, WeChat, WeCom


class TestWeChat(CalledConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(WeChat()) as server:
            yield FakeWeChat(server)


class TestWeCom(CalledConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(WeCom()) as server:
            yield FakeWeCom(server)
