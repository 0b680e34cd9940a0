"""The fake adapter passes the suite over both links."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palaver.testkit.conformance import AdapterConformance, Rig
from palaver.testkit.link import SocketLink
from palaver.testkit.server import serving
from tests.testkit.rigs import WorldRig, world_for_checks


class TestDirectly(AdapterConformance):
    @pytest.fixture
    def rig(self) -> Rig:
        world = world_for_checks()
        return WorldRig(world, world)


class TestOverASocket(AdapterConformance):
    @pytest.fixture
    async def rig(self, tmp_path: Path) -> AsyncGenerator[Rig]:
        world, path = world_for_checks(), tmp_path / "world"
        async with serving(world, path):
            yield WorldRig(world, SocketLink(path))
