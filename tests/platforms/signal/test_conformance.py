"""Signal passes the suite, in a group and alone with a person."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer
from tests.platforms.signal.fakes import FakeDirect, FakeGroup
from tests.platforms.signal.server import serving

# Markdown is rendered, so it is shown as something else.
TEXTS = tuple(text for text in AdapterConformance.hostile if not text.startswith("*bold*") and "\r" not in text)


class _WithoutAcknowledgements(AdapterConformance):
    hostile = TEXTS

    # signal-cli has none: test_adapter.py has what the adapter does instead.
    test_nothing_is_acknowledged_before_it_is_stored = None  # pyright: ignore[reportAssignmentType]


class TestDirect(_WithoutAcknowledgements):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serving() as server:
            yield FakeDirect(server)


class TestGroup(_WithoutAcknowledgements):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serving() as server:
            yield FakeGroup(server)
