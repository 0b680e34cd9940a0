"""The adapter passes the suite over a server that speaks Twilio's documented API."""

from collections.abc import AsyncGenerator

import pytest

from palaver.testkit.fake_server import FakeServer
from tests.platforms.called import CalledConformance, serve
from tests.platforms.sms.fakes import FakeSms, Twilio


class TestSms(CalledConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        async with serve(Twilio()) as server:
            yield FakeSms(server)
