"""The adapter passes the suite over a server that speaks ntfy's documented API."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer
from tests.platforms.called import serve
from tests.platforms.ntfy.fakes import FakeNtfy, Ntfy


class TestNtfy(AdapterConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Ntfy()) as server:
            yield FakeNtfy(server)
