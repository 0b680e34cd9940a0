"""The adapter passes the suite, over a server that speaks the Bot API, asking and being called."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer
from tests.platforms.telegram.fakes import FakeCallbacks, FakeForum
from tests.platforms.telegram.server import serving
from tests.platforms.telegram.world import World

# What is Markdown is rendered, so it is shown as something else; Telegram itself has no carriage return.
TEXTS = tuple(text for text in AdapterConformance.hostile if not text.startswith("*bold*") and "\r" not in text)


class TestAsking(AdapterConformance):
    hostile = TEXTS

    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serving(World()) as server:
            yield FakeForum(server)


class TestBeingCalled(AdapterConformance):
    hostile = TEXTS

    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serving(World()) as server:
            yield FakeCallbacks(server)
