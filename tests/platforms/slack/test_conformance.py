"""The adapter passes the suite, over a server that speaks Slack's Web API and Socket Mode."""

import pytest

from palaver.testkit.fake_server import FakeServer
from tests.platforms.conformance import RenderedConformance
from tests.platforms.slack.fakes import FakeSlack
from tests.platforms.slack.server import Server


class TestSlack(RenderedConformance):
    @pytest.fixture
    def fake(self, server: Server) -> FakeServer:
        return FakeSlack(server)
