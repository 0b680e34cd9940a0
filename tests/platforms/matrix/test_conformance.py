"""The adapter passes the suite against a real Synapse, with matrix-nio at the other end."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palaver.testkit.conformance import AdapterConformance, Rig
from tests.platforms.matrix.homeserver import Homeserver, Stage
from tests.platforms.matrix.rigs import rigged


@pytest.fixture(scope="module")
def stages() -> list[Stage]:
    """One room serves many checks, one after the other: to make a room is dear."""
    return []


class TestMatrix(AdapterConformance):
    @pytest.fixture
    async def rig(self, home: Homeserver, stages: list[Stage], tmp_path: Path) -> AsyncGenerator[Rig]:
        stage = stages.pop() if stages else home.stage()
        async with rigged(home, tmp_path, stage) as rig:
            yield rig
        if not rig.is_spent:
            stages.append(stage)
