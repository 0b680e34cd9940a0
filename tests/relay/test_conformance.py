"""An account that a connector holds passes the suite of every adapter, but for what the connector does itself."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palaver.protocols.adapter import Limits
from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer, NotPossible
from tests.relay.world import connector
from tests.testkit.fakes import FakePlatformServer, world_for_checks


class Relayed(FakePlatformServer):
    """What the connector does itself never reaches the gateway: it waits, and sends again under the first key."""

    async def limit_rate(self) -> None:
        raise NotPossible("the connector waits itself")

    async def lose_send(self, *, shown: bool) -> None:
        del shown
        raise NotPossible("the connector finds out itself")


class TestThroughARelay(AdapterConformance):
    # The new id of a chat comes with the next message from it; test_relay.py shows that.
    test_a_chat_with_a_new_id_is_reported = None  # pyright: ignore[reportAssignmentType]
    # The connector runs in the same loop and always has tasks.
    test_cancelling_leaves_nothing_behind = None  # pyright: ignore[reportAssignmentType]
    # The connector meets refusals itself, and fetches files; its platform's own suite tries both.
    test_each_refusal_means_what_the_platform_says = None  # pyright: ignore[reportAssignmentType]
    test_files_are_fetched_from_the_platform_only = None  # pyright: ignore[reportAssignmentType]

    @pytest.fixture
    async def fake(self, tmp_path: Path) -> AsyncGenerator[FakeServer]:
        world, limits = world_for_checks(), Limits(text=500, interval=0.01, repeats_safely=True)
        async with connector(tmp_path, world=world, limits=limits) as there:
            enrolment = await there.enrol("acme")
            yield Relayed(world, world, lambda _: there.make(enrolment))
