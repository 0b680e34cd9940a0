"""A gateway for tests: the real engine over a real store, and a fake platform to speak into."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from palaver.agents.echo import EchoAgent
from palaver.commands.builtin import builtin_commands
from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.engine.context import Resources
from palaver.engine.delivery.departures import Departures
from palaver.engine.engine import Engine
from palaver.engine.hooks import Meter
from palaver.engine.jobs.scripts import Scripts
from palaver.engine.reply_waiter import ReplyWaiter
from palaver.engine.settings import Agents, Settings
from palaver.model.access import AccessRole, Grant
from palaver.model.session import Principal
from palaver.model.transcript import Entry
from palaver.protocols.adapter import Adapter, Limits
from palaver.protocols.agent import Agent
from palaver.protocols.clock import Clock
from palaver.protocols.hooks import GatewayEvent, Hook
from palaver.protocols.tools import Toolset
from palaver.protocols.voice import Voice
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.opening import open_store
from palaver.store.privacy.pseudonyms import load_pseudonyms
from palaver.store.store import Store
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform, LoopClock
from tests.settings import change

__all__ = ["Bench", "MovableClock", "NoPauses", "running", "settings", "until"]

OPERATOR = Principal.operator()


def settings(**named: Any) -> Settings:
    """Everybody on the fake platform may speak."""
    usual = {"grants": (Grant(platform="fake", role=AccessRole.MEMBER),), "acknowledge_after": timedelta()}
    return change(Settings(), **{**usual, **named})


class MovableClock:
    """The time of the event loop, which a test can move on without waiting."""

    def __init__(self) -> None:
        self._clock = LoopClock()
        self._ahead = timedelta()

    def now(self) -> datetime:
        return self._clock.now() + self._ahead

    def later(self, **span: float) -> None:
        self._ahead += timedelta(**span)


class NoPauses(random.Random):
    """Anything that is tried again is tried again at once."""

    def uniform(self, a: float, b: float) -> float:  # noqa: ARG002
        return 0.0


@dataclass(kw_only=True)
class Bench:
    """What a test has before it: the platform's side, and the store."""

    world: FakePlatform
    store: Store
    engine: Engine
    serving: "asyncio.Task[None]"
    happened: list[GatewayEvent] = field(default_factory=list[GatewayEvent])

    async def rows(self, sql: str, *values: Value) -> list[Row]:
        return await self.store.read(_rows(sql, values))

    async def entries(self, session: str | None = None) -> list[Entry]:
        """What stands in a session, by default the newest."""
        name = session or (await self.rows("SELECT id FROM sessions ORDER BY no DESC LIMIT 1"))[0][0]
        return await self.store.read(self.store.transcript.load_visible(name, OPERATOR))

    async def texts(self, session: str | None = None) -> list[str]:
        return [entry.text for entry in await self.entries(session)]

    async def settled(self) -> None:
        """Until nothing waits, runs or is owed any more."""
        await until(self._is_settled)

    async def _is_settled(self) -> bool:
        if self.world.unacknowledged():
            return False
        rows = await self.rows(
            "SELECT (SELECT count(*) FROM inbox WHERE state = 'waiting')"
            " + (SELECT count(*) FROM turns WHERE state IN ('running', 'interrupted'))"
            " + (SELECT count(*) FROM outbox WHERE state IN ('due', 'claimed', 'sending'))"
        )
        return rows[0][0] == 0


@transaction
def _rows(sql: str, values: Sequence[Value]) -> Statements[list[Row]]:
    return (yield sql, tuple(values))


async def until(holds: Callable[[], bool | Awaitable[bool]], *, within: float = 180.0) -> None:
    """Wait for something that nobody tells of."""
    pause = 0.005
    async with asyncio.timeout(within):
        while not await _held(holds()):
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.05)  # what takes long is asked for less often: each look takes processor time


async def _held(answer: bool | Awaitable[bool]) -> bool:
    return answer if isinstance(answer, bool) else await answer


@asynccontextmanager
async def running(
    url: str | Path,
    world: FakePlatform | None = None,
    *,
    agent: Agent | Agents | None = None,
    worker: str = "w1",
    alone: bool = True,
    adapters: Sequence[Adapter] | None = None,
    limits: Limits | None = None,
    clock: Clock | Callable[[Store], Clock] | None = None,
    hooks: Sequence[Hook] = (),
    meter: Meter | None = None,
    chance: random.Random | None = None,
    shelf: BlobStore | None = None,
    scripts: Scripts | None = None,
    voice: Voice | None = None,
    toolsets: Callable[[Store], Sequence[Toolset]] = lambda _: (),
    loops: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
    departures: Departures | None = None,
    **changed: object,
) -> AsyncGenerator[Bench]:
    """A gateway at work; when the test is done with it, it is dropped as a crash would drop it."""
    world = world or FakePlatform()
    happened: list[GatewayEvent] = []

    async def note(happening: GatewayEvent) -> None:
        happened.append(happening)

    async with await open_store(str(url), exclusive=alone) as store:
        engine = Engine(
            store=store,
            adapters=[FakeAdapter(world, limits=limits)] if adapters is None else adapters,
            agent=agent or EchoAgent(),
            commands=builtin_commands(store),
            settings=settings(**changed),
            clock=clock(store) if callable(clock) else clock or LoopClock(),
            worker=worker,
            alone=alone,
            hooks=(note, *hooks),
            chance=chance,
            departures=departures,
            meter=meter,
            resources=Resources(
                reply_waiter=ReplyWaiter(store),
                blob_store=shelf,
                scripts=scripts,
                voice=voice,
                toolsets=toolsets(store),
            ),
            pseudonyms=await store.transact(load_pseudonyms()) if "privacy" in changed else None,
            loops=loops,
        )
        serving = asyncio.create_task(engine.serve())
        try:
            yield Bench(world=world, store=store, engine=engine, serving=serving, happened=happened)
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
