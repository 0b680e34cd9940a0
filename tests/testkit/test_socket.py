"""A world in another process: what gets across, and what a killed process leaves behind."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palaver.model.turn import Outbound
from palaver.protocols.adapter import PlatformBusy, PlatformDown, PlatformError, SendRefused, TargetAway, TargetGone
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.faults import Faults
from palaver.testkit.platform import FakePlatform
from palaver.testkit.recorder import Recorder, running
from palaver.testkit.socket import Answer, SocketClient, serve

ERRORS = [PlatformDown("a"), PlatformBusy(1.5), TargetAway(2.5), SendRefused("b"), TargetGone("c")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "world"


@pytest.fixture
async def world(path: Path) -> AsyncGenerator[FakePlatform]:
    world = FakePlatform()
    async with serve(world, path):
        yield world


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_get_across(error: PlatformError) -> None:
    with pytest.raises(type(error)) as raised:
        Answer.of(error).result()
    assert type(raised.value) is type(error)
    assert str(raised.value) == str(error)


async def test_without_a_world_nothing_is_sent(path: Path) -> None:
    adapter = FakeAdapter(SocketClient(path))
    with pytest.raises(PlatformDown):
        await adapter.send(Outbound(platform="fake", chat_id="c1", text="hi"), idempotency_key="k")
    with pytest.raises(PlatformDown):
        await adapter.run(Recorder())


async def test_a_world_that_is_down_is_noticed(world: FakePlatform, path: Path) -> None:
    world.down = True
    with pytest.raises(PlatformDown):
        await FakeAdapter(SocketClient(path)).run(Recorder())


async def test_everything_of_a_message_gets_across(world: FakePlatform, path: Path) -> None:
    chat, recorder = world.group("De\nv"), Recorder()
    said = await chat.say(world.person("al\ud800ice", is_bot=True), "half \udfff a surrogate", thread="7")
    async with running(FakeAdapter(SocketClient(path)), recorder):
        await recorder.has(1)
    (inbound,) = recorder.received
    assert (inbound.text, inbound.at, inbound.source.thread_id) == (said.text, said.at, "7")
    assert inbound.labels.to_json() == {"chat": "De\nv", "user": "al\ud800ice"}
    assert recorder.trusts[0].is_bot


async def test_very_long_messages_get_across(world: FakePlatform, path: Path) -> None:
    chat, recorder = world.group("Dev"), Recorder()
    await chat.say(world.person("alice"), "x" * 1_000_000)
    async with running(FakeAdapter(SocketClient(path)), recorder):
        await recorder.has(1)


async def test_faults_lose_nothing_over_a_socket(path: Path) -> None:
    world, recorder = FakePlatform(faults=Faults(disconnect=0.1, duplicate=0.3), seed=2), Recorder()
    chat, alice = world.group("Dev"), world.person("alice")
    async with serve(world, path), running(FakeAdapter(SocketClient(path)), recorder):
        for number in range(20):
            await chat.say(alice, str(number))
        await recorder.has(20)
    assert sorted(map(int, recorder.texts)) == list(range(20))


READER = """
import asyncio, sys
from palaver.testkit.socket import SocketClient

async def read():
    line = await SocketClient(sys.argv[1]).open("bot")
    first, second = await line.next(), await line.next()
    await line.acknowledge(first.number)
    print(second.message.text, flush=True)
    await asyncio.sleep(60)

asyncio.run(read())
"""


async def test_what_a_killed_process_has_not_acknowledged_comes_again(world: FakePlatform, path: Path) -> None:
    chat, alice, recorder = world.group("Dev"), world.person("alice"), Recorder()
    for text in ("one", "two"):
        await chat.say(alice, text)
    reader = await asyncio.create_subprocess_exec(
        sys.executable, "-c", READER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert reader.stdout
    assert await reader.stdout.readline() == b"two\n"
    reader.kill()
    await reader.wait()
    async with running(FakeAdapter(SocketClient(path)), recorder):
        await recorder.has(1)
    assert recorder.texts == ["two"]
