"""The adapter passes the suite, with a real IMAP server and a real SMTP server."""

import pytest

from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer
from tests.platforms.email.fakes import FakeMail, FakeMailAmongSeveral
from tests.platforms.email.post import PostOffice

# A mail has one kind of line end.
TEXTS = tuple(text for text in AdapterConformance.hostile if "\r" not in text)


class TestAlone(AdapterConformance):
    hostile = TEXTS

    @pytest.fixture
    def fake(self, office: PostOffice) -> FakeServer:
        return FakeMail(office)


class TestAmongSeveral(AdapterConformance):
    hostile = TEXTS

    @pytest.fixture
    def fake(self, office: PostOffice) -> FakeServer:
        return FakeMailAmongSeveral(office)
