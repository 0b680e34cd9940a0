"""An account that a connector holds passes the suite of every adapter, but for what the connector does itself."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palaver.protocols.adapter import Limits
from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer
from tests.relay.world import connector
from tests.testkit.fakes import FakePlatformServer, world_for_checks


class TestThroughARelay(AdapterConformance):
    # The connector waits and sends again by itself, under the key of the first attempt.
    test_a_rate_limit_says_how_long_to_wait = None
    test_a_send_cut_off_midway_is_never_reported_as_clear = None
    # The new id of a chat comes with the next message from it: see test_relay.py.
    test_a_chat_with_a_new_id_is_reported = None
    # The connector runs in the same loop and always has tasks: see test_relay.py.
    test_cancelling_leaves_nothing_behind = None

    @pytest.fixture
    async def fake(self, tmp_path: Path) -> AsyncGenerator[FakeServer]:
        world, limits = world_for_checks(), Limits(text=500, interval=0.01, repeats_safely=True)
        async with connector(tmp_path, world=world, limits=limits) as there:
            enrolment = await there.enrol("acme")
            yield FakePlatformServer(world, world, lambda _: there.make(enrolment))
