"""The adapter passes the suite, over a server that speaks Slack's Web API and Socket Mode."""

import pytest

from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer
from tests.platforms.slack.fakes import FakeSlack
from tests.platforms.slack.server import Server

# Markdown is rendered, so it is shown as something else, and the renderer has no carriage returns.
TEXTS = tuple(text for text in AdapterConformance.hostile if not text.startswith("*bold*") and "\r" not in text)


class TestSlack(AdapterConformance):
    hostile = TEXTS

    @pytest.fixture
    def fake(self, server: Server) -> FakeServer:
        return FakeSlack(server)
