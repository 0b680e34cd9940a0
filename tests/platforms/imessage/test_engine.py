"""A whole gateway on iMessage: bubbles, edits and restarts."""

from collections.abc import AsyncGenerator, Awaitable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from palaver.model.access import AccessRole, Grant
from palaver.protocols import SystemClock
from tests.engine.gateway import Bench, running, until
from tests.platforms.imessage.fakes import FakeAsking
from tests.platforms.imessage.server import Server, serving
from tests.platforms.imessage.world import ANN, Mac


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving(Mac()) as server:
        server.mac.start_clock(SystemClock().now())
        yield server


@pytest.fixture
def fake(server: Server) -> FakeAsking:
    return FakeAsking(server)


def gateway(fake: FakeAsking, folder: Path) -> AbstractAsyncContextManager[Bench]:
    grants = (Grant(platform="imessage", role=AccessRole.OWNER, user_id=ANN),)
    return running(folder / "p.db", adapters=[fake.adapter()], grants=grants, acknowledges=False)


def bubbles(fake: FakeAsking) -> list[str]:
    return [message["text"] for message in fake.mac.sent]


async def test_each_paragraph_of_an_answer_is_a_bubble_of_its_own(fake: FakeAsking, tmp_path: Path) -> None:
    async with gateway(fake, tmp_path) as here:
        await fake.say("**first thought**\n\nsecond thought\nof two lines\n\n```\na\n\nb\n```")
        await until(lambda: len(bubbles(fake)) == 3)
        await here.settled()
        delivered = await here.rows("SELECT state FROM outbox")
    assert bubbles(fake) == ["You said: first thought", "second thought\nof two lines", "a\n\nb"]
    assert [row[0] for row in delivered] == ["delivered"] * 3, "each has a receipt of its own"


async def test_an_edit_is_taken_once_and_a_restart_answers_nothing_twice(fake: FakeAsking, tmp_path: Path) -> None:
    async def count_inbox(here: Bench) -> int:
        return len(await here.rows("SELECT no FROM inbox"))

    async with gateway(fake, tmp_path) as here:
        said = await fake.say("helo")
        await until(lambda: bubbles(fake) == ["You said: helo"])
        await fake.edit(said, "hello")
        await until(lambda: _is(count_inbox(here), 2))
    # A second gateway reads the last minutes again, and knows all of it.
    async with gateway(fake, tmp_path) as here:
        await fake.say("and on")
        await until(lambda: len(bubbles(fake)) == 2)
        await here.settled()
        assert await count_inbox(here) == 3
    assert bubbles(fake) == ["You said: helo", "You said: and on"]


async def _is(found: Awaitable[int], wanted: int) -> bool:
    return await found == wanted
