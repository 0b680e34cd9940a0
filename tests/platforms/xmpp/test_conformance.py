"""The adapter passes the suite over a real Prosody, with another client as the person."""

from collections.abc import AsyncGenerator
from itertools import count

import pytest

from palaver.testkit.fake_server import FakeServer
from tests.platforms.conformance import RenderedConformance
from tests.platforms.xmpp.fakes import FakeRoom, FakeXmpp, person
from tests.platforms.xmpp.prosody import Prosody
from tests.platforms.xmpp.proxy import proxy

_numbers = count(1)


class TestAlone(RenderedConformance):
    @pytest.fixture
    async def fake(self, xmpp_server: Prosody) -> AsyncGenerator[FakeServer]:
        async with proxy(xmpp_server.port) as between, person(xmpp_server, f"alice{next(_numbers)}") as alice:
            yield FakeXmpp(xmpp_server, between, alice)


class TestInARoom(RenderedConformance):
    @pytest.fixture
    async def fake(self, xmpp_server: Prosody) -> AsyncGenerator[FakeServer]:
        async with proxy(xmpp_server.port) as between, person(xmpp_server, f"carol{next(_numbers)}") as alice:
            fake = FakeRoom(xmpp_server, between, alice)
            await fake.enter()
            yield fake

    # A nick has no such characters: test_parse has it.
    test_hostile_names_are_kept_as_labels_and_change_no_id = None  # pyright: ignore[reportAssignmentType]
