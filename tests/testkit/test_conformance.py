"""The fake adapter passes the suite over both links."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer
from palaver.testkit.socket import SocketClient, serve
from tests.testkit.fakes import FakePlatformServer, world_for_checks


class TestDirectly(AdapterConformance):
    @pytest.fixture
    def fake(self) -> FakeServer:
        world = world_for_checks()
        return FakePlatformServer(world, world)


class TestOverASocket(AdapterConformance):
    @pytest.fixture
    async def fake(self, tmp_path: Path) -> AsyncGenerator[FakeServer]:
        world, path = world_for_checks(), tmp_path / "world"
        async with serve(world, path):
            yield FakePlatformServer(world, SocketClient(path))
