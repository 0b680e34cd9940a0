"""The adapter passes the suite against a real Synapse, with matrix-nio at the other end."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer
from tests.platforms.matrix.fakes import fake_matrix
from tests.platforms.matrix.homeserver import Homeserver, Stage


@pytest.fixture(scope="module")
def stages() -> list[Stage]:
    """One room serves many checks, one after the other: to make a room is dear."""
    return []


class TestMatrix(AdapterConformance):
    @pytest.fixture
    async def fake(self, home: Homeserver, stages: list[Stage], tmp_path: Path) -> AsyncGenerator[FakeServer]:
        stage = stages.pop() if stages else home.stage()
        async with fake_matrix(home, tmp_path, stage) as fake:
            yield fake
        if not fake.is_spent:
            stages.append(stage)
