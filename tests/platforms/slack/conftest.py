"""Fixtures: a workspace on the loopback, and a library that notices a lost connection quickly."""

from collections.abc import AsyncGenerator

import pytest

from palaver.platforms.slack import adapter
from tests.platforms.slack.server import Server, serving
from tests.platforms.slack.world import World


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "PING_SECONDS", 0.3)


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving(World()) as opened:
        yield opened
