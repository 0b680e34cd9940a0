"""The adapters pass the suite, over a server that speaks the Cloud API, and over a bridge."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer
from tests.platforms.whatsapp.bridge import bridging
from tests.platforms.whatsapp.bridge_fakes import FakeBridged, FakeBridgedGroup
from tests.platforms.whatsapp.fakes import FakeDirectChat, FakeGroup
from tests.platforms.whatsapp.server import serving

# What is Markdown is rendered, so it is shown as something else.
TEXTS = tuple(text for text in AdapterConformance.hostile if not text.startswith("*bold*") and "\r" not in text)


class TestAlone(AdapterConformance):
    hostile = TEXTS

    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serving() as server:
            yield FakeDirectChat(server)


class TestInAGroup(AdapterConformance):
    hostile = TEXTS

    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serving() as server:
            yield FakeGroup(server)


class TestBridged(AdapterConformance):
    hostile = TEXTS

    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with bridging() as bridge:
            yield FakeBridged(bridge)


class TestBridgedInAGroup(AdapterConformance):
    hostile = TEXTS

    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with bridging() as bridge:
            yield FakeBridgedGroup(bridge)
