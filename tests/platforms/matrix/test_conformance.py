"""The adapter passes the suite against a real Synapse, with matrix-nio at the other end."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palaver.platforms.kit.conformance import AdapterConformance, Rig
from tests.platforms.matrix.homeserver import Homeserver, Stage
from tests.platforms.matrix.rigs import rigged


@pytest.fixture(scope="module")
def stage(home: Homeserver) -> Stage:
    return home.stage()


class TestMatrix(AdapterConformance):
    @pytest.fixture
    async def rig(self, home: Homeserver, stage: Stage, tmp_path: Path) -> AsyncGenerator[Rig]:
        async with rigged(home, tmp_path, stage) as rig:
            yield rig
