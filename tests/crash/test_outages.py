"""PostgreSQL restarted, the network cut, a worker frozen or dead: nothing is lost or doubled, others take over."""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.crash.siege import Town, town_of
from tests.crash.verdict import line
from tests.store.conftest import fresh_store
from tests.store.outages import Proxy, Server

LEASE = 1.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    folder = tempfile.mkdtemp(prefix="palaver-outage-")
    started = Server(folder)
    try:
        yield started
    finally:
        started.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def url(server: Server) -> str:
    return await fresh_store(server.url)


@pytest.fixture
async def town(url: str) -> AsyncIterator[Town]:
    async with town_of(url, workers=2, chats=20, seed=1, lease=LEASE) as made:
        yield made


async def speak(town: Town, messages: int, order: str = "") -> None:
    for _ in range(messages):
        await town.speak(order)
        await asyncio.sleep(0.01)


async def check(town: Town, messages: int) -> None:
    verdict = await town.conclude()
    assert verdict.complaints == []
    assert verdict.messages == messages, line(verdict)


async def test_a_server_restarted_in_the_middle(town: Town, server: Server) -> None:
    for place in range(2):
        await town.start(place)
    for mode in ("immediate", "fast"):
        sender = asyncio.create_task(speak(town, 60))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(server.restart, mode)
        await sender
    await check(town, 120)


async def test_a_worker_cut_off_from_the_server(town: Town, server: Server, url: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="palaver-proxy-"))
    async with Proxy(server, url, folder).running() as proxy:
        cut_off = await town.start(0, url=proxy.url)
        await town.until_logged("account.acquired", cut_off.order.worker)
        other = await town.start(1)
        await speak(town, 20, "!tool")
        for _ in range(3):
            proxy.cut()
            await speak(town, 20, "!tool")
            proxy.mend()
            await speak(town, 20, "!tool")
        proxy.cut()
        await town.until_logged("account.acquired", other.order.worker)
        await speak(town, 20)
        proxy.mend()
        await check(town, 160)
    shutil.rmtree(folder)


@pytest.mark.parametrize("step", ["before settle"])
async def test_a_worker_frozen_past_its_lease_writes_nothing_more(town: Town, step: str) -> None:
    frozen = await town.start(0, step=step, length=3, signal=signal.SIGSTOP)
    await town.until_logged("account.acquired", frozen.order.worker)
    other = await town.start(1)
    await speak(town, 40, "!tool")
    await asyncio.wait_for(frozen.frozen.wait(), 60)
    await town.until_logged("account.acquired", other.order.worker)
    await town.until_logged("turn.reclaimed", other.order.worker)
    await speak(town, 20)
    frozen.go_on()
    await town.until_logged("turn.lease_lost", frozen.order.worker)
    await check(town, 60)


async def test_a_worker_frozen_before_it_asks_its_agent_leaves_the_turn_to_who_has_it(town: Town) -> None:
    frozen = await town.start(0, step="after begin", signal=signal.SIGSTOP)
    await speak(town, 1)
    await asyncio.wait_for(frozen.frozen.wait(), 60)
    other = await town.start(1)
    await speak(town, 9)
    await town.until_logged("turn.reclaimed", other.order.worker)
    await check(town, 10)
    before = town.agents
    frozen.go_on()
    await town.until_logged("turn.lease_lost", frozen.order.worker)
    await check(town, 10)
    assert town.agents == before


@pytest.mark.parametrize("step", ["after send"])
async def test_a_send_of_a_worker_frozen_past_its_lease_is_not_settled_by_it(town: Town, step: str) -> None:
    frozen = await town.start(0, step=step, length=3, signal=signal.SIGSTOP)
    await town.until_logged("account.acquired", frozen.order.worker)
    other = await town.start(1)
    await speak(town, 40)
    await asyncio.wait_for(frozen.frozen.wait(), 60)
    await town.until_logged("send.reclaimed", other.order.worker)
    frozen.go_on()
    await town.until_logged("send.lease_lost", frozen.order.worker)
    await check(town, 40)


@pytest.mark.parametrize("step", ["uncommitted settle"])
async def test_a_worker_frozen_in_a_transaction_stops_nobody(town: Town, step: str) -> None:
    """What it holds locked is let go by the server."""
    frozen = await town.start(0, step=step, length=3, signal=signal.SIGSTOP)
    await town.until_logged("account.acquired", frozen.order.worker)
    other = await town.start(1)
    await speak(town, 40)
    await asyncio.wait_for(frozen.frozen.wait(), 60)
    await town.until_logged("account.acquired", other.order.worker)
    await check(town, 40)
    frozen.go_on()
    await speak(town, 10)
    await check(town, 50)


async def test_the_account_of_a_dead_worker_is_taken_over(town: Town) -> None:
    first = await town.start(0)
    await town.until_logged("account.acquired", first.order.worker)
    other = await town.start(1)
    await speak(town, 20)
    await first.kill()
    killed = asyncio.get_running_loop().time()
    await speak(town, 20)
    await town.until_logged("account.acquired", other.order.worker)
    took = asyncio.get_running_loop().time() - killed
    assert took < 10 * LEASE
    await check(town, 40)
