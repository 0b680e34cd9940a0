"""Three gateways on one PostgreSQL: each firing runs once and is delivered once, no matter which of them dies."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from palaver.model.access import AccessRole, Grant
from palaver.model.session import Principal
from palaver.protocols.adapter import Limits
from palaver.testkit.platform import FakePlatform
from tests.engine.gateway import Bench, MovableClock, running, until
from tests.store.conftest import fresh_store

OPERATOR = Principal.operator()
OWNER = (Grant(platform="fake", role=AccessRole.OWNER),)
ROUNDS = 4


@pytest.fixture
async def url(postgres_server: str) -> str:
    return await fresh_store(postgres_server)


async def test_three_workers_fire_every_job_once(url: str) -> None:
    clock, world = MovableClock(), FakePlatform(repeats_safely=True)
    alice = world.person("alice")
    chat = world.dm(alice)
    async with AsyncExitStack() as stack:
        gateways: list[Bench] = []
        for worker in ("w1", "w2", "w3"):
            gateway = running(
                url,
                world,
                worker=worker,
                alone=False,
                clock=clock,
                limits=Limits(repeats_safely=True),
                grants=OWNER,
                poll=timedelta(seconds=0.05),
            )
            gateways.append(await stack.enter_async_context(gateway))
        for count in (1, 2, 3):
            await chat.say(alice, f"/jobs add every 10m job {count}")
            await chat.hears(f"Job {count}")
        for round_ in range(1, ROUNDS + 1):
            if round_ == 2:  # One of them dies; what it served is taken over when its lease is out.
                gateways[0].serving.cancel()
                await asyncio.wait({gateways[0].serving})
            clock.later(minutes=10, seconds=1)
            for count in (1, 2, 3):
                await chat.hears(f"You said: job {count}", times=round_)
        await until(lambda: _is_quiet(gateways[1]))
        rows = await gateways[1].rows("SELECT message_id FROM inbox WHERE message_id LIKE 'job%' ORDER BY 1")
        assert len(rows) == len({row[0] for row in rows}) == 3 * ROUNDS
        answers = [message.text for message in chat.shown if message.text.startswith("You said")]
        assert sorted(answers) == sorted(f"You said: job {count}" for count in (1, 2, 3) for _ in range(ROUNDS))
        store = gateways[1].store
        for number in ("1", "2", "3"):
            firings = await store.read(store.firings.list_firings(number, OPERATOR))
            assert [(firing.run, firing.delivery) for firing in firings] == [("done", "delivered")] * ROUNDS


async def _is_quiet(here: Bench) -> bool:
    (row,) = await here.rows(
        "SELECT (SELECT count(*) FROM inbox WHERE state = 'waiting')"
        " + (SELECT count(*) FROM turns WHERE state IN ('running', 'interrupted'))"
        " + (SELECT count(*) FROM outbox WHERE state IN ('due', 'claimed', 'sending'))"
    )
    return row[0] == 0
