"""The adapter passes the suite, over a server that speaks BlueBubbles' API, asking and being called."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer
from tests.platforms.imessage.fakes import FakeAsking, FakeCalled
from tests.platforms.imessage.server import serving
from tests.platforms.imessage.world import Mac

# Markdown becomes plain text, so it is shown as something else, and a carriage return is the end of a line.
TEXTS = tuple(text for text in AdapterConformance.hostile if not text.startswith("*bold*") and "\r" not in text)


class TestAsking(AdapterConformance):
    hostile = TEXTS

    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serving(Mac()) as server:
            yield FakeAsking(server)


class TestBeingCalled(AdapterConformance):
    hostile = TEXTS

    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serving(Mac()) as server:
            yield FakeCalled(server)
