"""The adapter passes the suite over a server that speaks the frames of Tencent's own plugin."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.fake_server import FakeServer
from tests.platforms.called import UntypedFiles, serve
from tests.platforms.yuanbao.fakes import FakeGroup, FakeYuanbao, Yuanbao


class TestAlone(UntypedFiles):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Yuanbao()) as server:
            yield FakeYuanbao(server)


class TestInAGroup(UntypedFiles):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Yuanbao()) as server:
            yield FakeGroup(server)
