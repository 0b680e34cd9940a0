"""Simulated gateways: each a process of its own, that can be killed, stopped for a while, or drained."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

from palaver.agents.echo import EchoAgent
from palaver.commands.builtin import builtin_commands
from palaver.engine.engine import Engine
from palaver.engine.settings import Settings
from palaver.model.turn import Outbound
from palaver.protocols.adapter import Limits
from palaver.protocols.capabilities import MenuCommand
from palaver.protocols.clock import Clock
from palaver.protocols.hooks import GatewayEvent
from palaver.store.store import Store
from palaver.testkit.adapter import FakeAdapter, UpdateStream
from palaver.testkit.platform import FakePlatform, LoopClock
from tests.simulation.database import Door, SharedDatabase, nobody
from tests.simulation.loop import PROCESS, Process, VirtualLoop
from tests.simulation.trace import Trace

__all__ = ["Gateway", "SkewedClock", "Wire"]

T = TypeVar("T")

_ROUNDS = 50


class SkewedClock:
    """The clock of one machine, so many seconds ahead."""

    def __init__(self, offset: float) -> None:
        self.offset = offset
        self._clock = LoopClock()

    def now(self) -> datetime:
        return self._clock.now() + timedelta(seconds=self.offset)


class Wire:
    """The platform as one gateway reaches it. What was sent off arrives, no matter what becomes of the sender."""

    def __init__(
        self, world: FakePlatform, process: Process, meet: Callable[[Process, str], None], trace: Trace
    ) -> None:
        self._world = world
        self._process = process
        self._meet = meet
        self._trace = trace
        self._vanishing: list[Callable[[], None]] = []

    async def open(self, account: str) -> UpdateStream:
        await self._while_alive()
        line = await self._world.open(account)
        self._vanishing.append(line.cut)
        return line

    async def send(self, account: str, outbound: Outbound, key: str) -> str:
        return await self._do(f"send {key}", self._world.send(account, outbound, key))

    async def open_thread(self, account: str, outbound: Outbound, key: str) -> str:
        return await self._do(f"open {key}", self._world.open_thread(account, outbound, key))

    async def fetch(self, account: str, handle: str) -> bytes:
        return await self._world.fetch(account, handle)

    async def send_file(self, account: str, outbound: Outbound, content: bytes, key: str) -> str:
        return await self._do(f"send {key}", self._world.send_file(account, outbound, content, key))

    async def edit(self, account: str, receipt: str, outbound: Outbound) -> None:
        await self._do(f"edit {outbound.chat_id} {receipt}", self._world.edit(account, receipt, outbound))

    async def typing(self, account: str, outbound: Outbound) -> None:
        await self._world.typing(account, outbound)

    async def show_menu(self, account: str, commands: Sequence[MenuCommand]) -> None:
        await self._world.show_menu(account, commands)

    def vanish(self) -> None:
        for vanish in self._vanishing:
            vanish()

    async def _do(self, name: str, act: Coroutine[Any, Any, T]) -> T:
        if self._process.dead:
            act.close()
        await self._while_alive()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().create_task(self._act(name, act, answer), context=nobody())
        return await answer

    async def _act(self, name: str, act: Coroutine[Any, Any, T], answer: "asyncio.Future[T]") -> None:
        self._meet(self._process, f"before {name}")
        try:
            result = await act
        except Exception as error:  # noqa: BLE001 - it belongs to the sender
            self._trace.note(self._process.name, f"{name}: {type(error).__name__}")
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # a dead sender does not look at it
        else:
            self._trace.note(self._process.name, name)
            if not answer.done():
                answer.set_result(result)
        self._meet(self._process, f"after {name}")

    async def _while_alive(self) -> None:
        if self._process.dead:
            await asyncio.get_running_loop().create_future()


class Gateway:
    """One engine in one process."""

    def __init__(
        self,
        name: str,
        *,
        database: SharedDatabase,
        world: FakePlatform,
        accounts: Sequence[str],
        limits: Limits,
        agent: EchoAgent,
        settings: Settings,
        clock: Clock,
        alone: bool,
        seed: int,
        trace: Trace,
    ) -> None:
        self.process = Process(name)
        self._trace = trace
        self._wire = Wire(world, self.process, database.meet, trace)
        store = Store(Door(database, self.process), cast("Any", None))
        self._engine = Engine(
            store=store,
            adapters=[FakeAdapter(self._wire, account, limits=limits) for account in accounts],
            agent=agent,
            commands=builtin_commands(store),
            settings=settings,
            clock=clock,
            worker=name,
            alone=alone,
            hooks=(self._hear,),
            chance=random.Random(seed),  # noqa: S311 - a simulation
        )
        self._context = copy_context()
        self._context.run(PROCESS.set, self.process)
        self._serving = self._start(self._engine.serve())
        self._ends = False
        trace.note(name, "starts")

    @property
    def is_alive(self) -> bool:
        return not self.process.dead

    @property
    def is_well(self) -> bool:
        """At work: neither dead nor standing still nor about to end."""
        return not (self.process.dead or self.process.stands or self._ends)

    def kill(self, why: str) -> None:
        """As SIGKILL does: not one more step, and the platform sees its connections vanish."""
        self._trace.note(self.process.name, f"killed {why}")
        self.process.dead = self.process.stands = True
        self._wire.vanish()

    async def stand_still(self, seconds: float) -> None:
        """As SIGSTOP does; then it goes on as if nothing had been."""
        self._trace.note(self.process.name, f"stands still for {seconds:.1f} s")
        self.process.stands = True
        await asyncio.sleep(seconds)
        if self.is_alive:
            self._trace.note(self.process.name, "goes on")
            self._loop.let_go(self.process)

    async def stop(self) -> list[str]:
        """Drain and end; gives what it left behind."""
        self._trace.note(self.process.name, "drains")
        self._ends = True
        draining = self._start(self._engine.drain())
        while self.is_alive and not draining.done():  # noqa: ASYNC110 - it may be killed meanwhile
            await asyncio.sleep(0.1)
        if not self.is_alive:
            return []
        self._serving.cancel()
        await asyncio.wait({self._serving})
        await asyncio.sleep(1)
        broken = [] if self._serving.cancelled() else [f"ended with {self._serving.exception()!r}"]
        left = [f"left behind: {task!r}" for task in self.process.alive]
        self.process.dead = True
        self._wire.vanish()
        self._trace.note(self.process.name, "ended")
        return broken + left

    async def bury(self) -> None:
        """Take down all tasks there are; what they still ask for is not done."""
        self.process.dead = True
        self._loop.let_go(self.process)
        for _ in range(_ROUNDS):
            if not self.process.alive:
                return
            for task in self.process.alive:
                task.cancel()
            await asyncio.sleep(1)
        raise AssertionError(f"cannot be cancelled: {self.process.alive}")

    def _start(self, coro: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        return self._loop.create_task(coro, context=self._context)

    @property
    def _loop(self) -> VirtualLoop:
        return cast("VirtualLoop", asyncio.get_running_loop())

    async def _hear(self, happening: GatewayEvent) -> None:
        numbers = f"turn={happening.turn} delivery={happening.delivery}"
        self._trace.note(self.process.name, f"{happening.kind} {numbers} {happening.reason or ''}")
