"""Nothing that is said gets into the log, at any level, no matter what goes wrong and who quotes it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.agents.echo import EchoAgent
from palaver.gateway.logs import HumanFormat, JsonFormat
from palaver.model.turn import Outbound
from palaver.protocols.adapter import Limits, PlatformError, Receiver, SendRefused, SendUnclear, TargetGone
from palaver.protocols.agent import Event, Failure, FailureKind, Request
from palaver.protocols.hooks import GatewayEvent
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from tests.engine.gateway import running, until

CANARY = "xylophone"


class Ear(logging.Handler):
    """Hears everything: the records themselves, and the lines made of them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        lines = [formatter.format(record) for formatter in (HumanFormat(colours=True), JsonFormat())]
        self.heard += [*lines, record.getMessage(), repr(vars(record))]

    @property
    def actions(self) -> set[str]:
        return {getattr(record, "action", "") for record in self.records}


@pytest.fixture
def ear() -> Iterator[Ear]:
    ear, root = Ear(), logging.getLogger()
    before = root.level
    root.addHandler(ear)
    root.setLevel(logging.DEBUG)
    yield ear
    root.removeHandler(ear)
    root.setLevel(before)
    assert ear.records
    assert not [line for line in ear.heard if CANARY in line]


async def test_a_conversation(tmp_path: Path, ear: Ear) -> None:
    async with running(tmp_path / "p.db", agent=EchoAgent(streams=True)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for said in (f"hello {CANARY}", f"!tool {CANARY}", f"/new {CANARY}", f"/{CANARY}", f"!fail {CANARY}"):
            await chat.say(alice, said)
        await chat.hears("Something went wrong")
        await chat.say(alice, f"!approve {CANARY}")
        await chat.hears("May I")
    assert {
        "message.accepted",
        "turn.started",
        "turn.finished",
        "command.done",
        "turn.failed",
        "turn.parked",
    } <= ear.actions


class Quoting(EchoAgent):
    """Fails, and says about what."""

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        words = request.messages[-1].text
        if "raise" in words:
            raise ValueError(words)
        yield Failure(kind=FailureKind.TRANSIENT if "again" in words else FailureKind.FATAL, detail=words)


async def test_an_agent_that_quotes(tmp_path: Path, ear: Ear) -> None:
    async with running(tmp_path / "p.db", agent=Quoting(), agent_tries=2) as here:
        for said in ("raise", "fail", "again"):
            person = here.world.person(said)
            chat = here.world.dm(person)
            await chat.say(person, f"{said} {CANARY}")
            await chat.hears("Something went wrong")
        reasons = [happening.reason for happening in here.happened if happening.reason]
        assert not [reason for reason in reasons if CANARY in reason]
    assert {"agent.error", "turn.failed", "agent.retry"} <= ear.actions


class Clumsy(FakeAdapter):
    """Raises what it is told to when it sends, and says about what."""

    def __init__(self, world: FakePlatform, error: Callable[[str], Exception]) -> None:
        super().__init__(world, limits=Limits(draft_interval=0.0))
        self._error = error
        self.raised = 0

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        del idempotency_key
        await asyncio.sleep(0)
        self.raised += 1
        raise self._error(outbound.text)


@pytest.mark.parametrize("error", [ValueError, SendRefused, SendUnclear, TargetGone, PlatformError])
async def test_an_adapter_that_quotes(tmp_path: Path, ear: Ear, error: Callable[[str], Exception]) -> None:
    world = FakePlatform()
    adapter = Clumsy(world, error)
    agent, at_once = EchoAgent(streams=True), timedelta(0)
    async with running(tmp_path / "p.db", world, adapters=[adapter], agent=agent, repeat_after=at_once) as here:
        alice = world.person("alice")
        await world.dm(alice).say(alice, f"so many words about one {CANARY}")
        await until(lambda: any(action.startswith(("send.", "adapter.", "chat.")) for action in ear.actions))
        await here.settled()
    assert adapter.raised


class Garrulous(FakeAdapter):
    """Loses the connection after each message, and says over which."""

    def __init__(self, world: FakePlatform, error: Callable[[str], Exception]) -> None:
        super().__init__(world)
        self._raises = error

    async def run(self, receiver: Receiver) -> None:
        del receiver
        await asyncio.sleep(0)
        raise self._raises(CANARY)


@pytest.mark.parametrize("error", [ValueError, PlatformError])
async def test_a_connection_that_quotes(tmp_path: Path, ear: Ear, error: Callable[[str], Exception]) -> None:
    world = FakePlatform()
    async with running(tmp_path / "p.db", world, adapters=[Garrulous(world, error)]):
        await until(lambda: "account.down" in ear.actions)


async def test_a_hook_that_quotes(tmp_path: Path, ear: Ear) -> None:
    async def quote(_: GatewayEvent) -> None:
        await asyncio.sleep(0)
        raise ValueError(CANARY)

    async with running(tmp_path / "p.db", hooks=[quote]) as here:
        alice = here.world.person("alice")
        await here.world.dm(alice).say(alice, CANARY)
        await until(lambda: "hook.failed" in ear.actions)


def test_a_library_that_quotes(ear: Ear) -> None:
    with pytest.raises(ValueError, match=CANARY) as caught:
        int(CANARY)
    record = logging.LogRecord(
        "asyncio", logging.ERROR, "", 0, f"never retrieved\nfuture: {CANARY}", (), (ValueError, caught.value, None)
    )
    record.key = CANARY
    ear.records.append(record)
    lines = [formatter.format(record) for formatter in (HumanFormat(colours=True), JsonFormat())]
    assert not [line for line in lines if CANARY in line]
    assert all("never retrieved: ValueError at test_no_content.py:" in line for line in lines)
