"""A gateway for tests: the real engine over a real store, and a fake platform to speak into."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from palaver.agents.echo import EchoAgent
from palaver.commands.standard import standard_commands
from palaver.domain.access import AccessRole, Grant
from palaver.engine.engine import Engine
from palaver.engine.options import Options
from palaver.platforms.kit.adapter import FakeAdapter
from palaver.platforms.kit.world import LoopClock, World
from palaver.ports.adapter import Adapter, Limits
from palaver.ports.agent import Agent
from palaver.ports.hooks import Happening
from palaver.stores.opening import open_store
from palaver.stores.store import Store

__all__ = ["Bench", "options", "running"]


def options(**changed: object) -> Options:
    """Everybody on the fake platform may speak."""
    return Options(**{"grants": (Grant(platform="fake", role=AccessRole.MEMBER),), **changed})  # pyright: ignore[reportArgumentType]


@dataclass(kw_only=True)
class Bench:
    """What a test has before it: the platform's side, and the store."""

    world: World
    store: Store
    engine: Engine
    happened: list[Happening] = field(default_factory=list[Happening])


@asynccontextmanager
async def running(
    url: str | Path,
    world: World | None = None,
    *,
    agent: Agent | None = None,
    worker: str = "w1",
    alone: bool = True,
    adapters: Sequence[Adapter] | None = None,
    limits: Limits | None = None,
    **changed: object,
) -> AsyncGenerator[Bench]:
    """A gateway at work; when the test is done with it, it is dropped as a crash would drop it."""
    world = world or World()
    happened: list[Happening] = []

    async def note(happening: Happening) -> None:
        happened.append(happening)

    async with await open_store(str(url)) as store:
        engine = Engine(
            store=store,
            adapters=adapters or [FakeAdapter(world, limits=limits)],
            agent=agent or EchoAgent(),
            commands=standard_commands(store),
            options=options(**changed),
            clock=LoopClock(),
            worker=worker,
            alone=alone,
            hooks=(note,),
        )
        serving = asyncio.create_task(engine.serve())
        try:
            yield Bench(world=world, store=store, engine=engine, happened=happened)
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
