"""The gateway to measure: the engine with the echo agent on the fake platform."""

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime

from palaver.agents.echo import EchoAgent
from palaver.commands.builtin import builtin_commands
from palaver.db.transaction import Database
from palaver.engine.engine import Engine
from palaver.engine.hooks import NoMeter, Step
from palaver.engine.settings import Settings
from palaver.gateway.gateway import GC_THRESHOLD
from palaver.model.access import AccessRole, Grant
from palaver.model.turn import Outbound
from palaver.protocols.clock import SystemClock
from palaver.settings.engine import EngineConfig
from palaver.settings.limits import LimitsConfig
from palaver.store.opening import open_store
from palaver.store.search.search import Search
from palaver.testkit.adapter import FakeAdapter, PlatformClient
from palaver.testkit.chat import Chat
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import Person

__all__ = ["AT_ONCE", "SETTINGS", "Crowd", "Gateway", "TimedAdapter", "gateway"]

AT_ONCE = 256
_PATIENCE = 300.0
SETTINGS = Settings(
    grants=(Grant(platform="fake", role=AccessRole.MEMBER),),
    config=EngineConfig(acknowledges=False, limits=LimitsConfig(concurrent_turns=64, concurrent_sends=64)),
)


class TimedAdapter(FakeAdapter):
    """Remembers when each message was answered."""

    def __init__(self, link: PlatformClient) -> None:
        super().__init__(link, concurrency=AT_ONCE)
        self.answered: dict[tuple[str, str | None], float] = {}
        """By the chat and the message."""

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        receipt = await super().send(outbound, idempotency_key=idempotency_key)
        self.answered[outbound.chat_id, outbound.reply_to] = time.perf_counter()
        return receipt


@dataclass
class Crowd:
    """Many people, each in a chat of their own."""

    world: FakePlatform
    size: int
    chats: list[tuple[Chat, Person]] = field(default_factory=list[tuple[Chat, Person]])

    def __post_init__(self) -> None:
        for number in range(self.size):
            person = self.world.person(f"person {number}")
            self.chats.append((self.world.dm(person), person))

    def forget(self) -> None:
        self.chats.clear()
        self.world.chats.clear()

    async def say(self, number: int, text: str) -> tuple[str, str]:
        """Gives the chat and the message."""
        chat, person = self.chats[number % self.size]
        return chat.id, (await chat.say(person, text)).id


@dataclass
class Gateway(NoMeter):
    """It is its own meter: a send counts when its receipt is in the store."""

    crowd: Crowd
    adapter: TimedAdapter
    search: Search
    database: Database
    _delivered: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def step(self, name: Step, turn: int = 0, received: datetime | None = None) -> AbstractContextManager[None]:
        return self._send() if name == "send" else super().step(name, turn, received)

    @contextmanager
    def _send(self) -> Generator[None]:
        yield
        self._delivered += 1
        self._changed.set()

    async def until_delivered(self, count: int) -> None:
        """Until so many more receipts are in the store."""
        wanted = self._delivered + count
        async with asyncio.timeout(_PATIENCE):
            while self._delivered < wanted:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def gateway(url: str, people: int) -> AsyncGenerator[Gateway]:
    world = FakePlatform(clock=SystemClock())
    adapter = TimedAdapter(world)
    gc.set_threshold(GC_THRESHOLD)  # as the real one does
    async with await open_store(url, exclusive=True) as store:
        measured = Gateway(Crowd(world, people), adapter, store.search, store.database)
        engine = Engine(
            store=store,
            adapters=[adapter],
            agent=EchoAgent(),
            commands=builtin_commands(store),
            settings=SETTINGS,
            clock=SystemClock(),
            worker="bench",
            alone=True,
            meter=measured,
        )
        serving = asyncio.create_task(engine.serve())
        try:
            yield measured
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
