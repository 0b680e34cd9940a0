"""A play: people talk while things go wrong; then it gets quiet, and what came of it is judged."""

import asyncio
import logging
import random
import re
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from palaver.model.turn import Received
from palaver.store.damage.missing import find_missing_messages
from palaver.store.status.invariants import violations
from palaver.testkit.faults import Faults
from tests.simulation.database import SharedDatabase, nobody
from tests.simulation.gateways import Gateway, SkewedClock
from tests.simulation.loop import PROCESS, Process, VirtualLoop, run
from tests.simulation.scenery import draw_lines, draw_scenery
from tests.simulation.storage import StorageTroubles
from tests.simulation.trace import Trace
from tests.simulation.verdict import Books

__all__ = ["MAX_CLOCK_SKEW_SECONDS", "PATIENCE", "Ending", "perform"]

PATIENCE = 4 * 3600.0
"""Virtual seconds after which something that should come to rest counts as not doing so."""
MAX_CLOCK_SKEW_SECONDS = 0.0
"""How far the clocks of gateways are apart."""
_WELL_KNOWN = {"StoreUnavailable", "StaleFence"}


class Ending:
    """What came of a play."""

    def __init__(self, seed: int, trace: Trace) -> None:
        self.seed = seed
        self.trace = trace
        self.problems: list[str] = []
        self.said = 0
        self.kills = 0
        self.power_failures = 0
        self.seconds = 0.0
        self.paused: set[str] = set()
        """The gateways that found themselves in a crash loop, and left interrupted turns to the next calm start."""

    @property
    def complaint(self) -> str:
        """What went wrong, and how to see it again."""
        again = f"python -m tests.simulation --seed {self.seed} --verbose"
        return f"seed={self.seed} {'; '.join(self.problems[:3])} | {again}"


class _Ear(logging.Handler):
    """Hears of crash loops, and of exceptions that nobody foresaw: the engine survives them, but they are mistakes."""

    def __init__(self, ending: Ending) -> None:
        super().__init__()
        self._ending = ending

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        if process and getattr(record, "action", "") == "crash_loop":
            self._ending.paused.add(process.name)
        text = record.getMessage()
        error = re.search(r": (\w+)", text) if str(getattr(record, "action", "")).endswith(".error") else None
        if error and error[1] not in _WELL_KNOWN:
            self._ending.problems.append(text)


class Play:
    def __init__(self, ending: Ending, skew: float) -> None:
        self._ending = ending
        self._trace = ending.trace
        self._chance = random.Random(ending.seed)  # noqa: S311 - a simulation
        self._scenery = draw_scenery(self._chance)
        self._lines = draw_lines(self._scenery, self._chance)
        self._kills = self._chance.choice((0, 0, 1, 3, 6))
        self._power_failures = self._chance.choice((0, 0, 1, 2))
        self._clocks = [SkewedClock(self._draw_skew(skew)) for _ in range(self._scenery.gateways)]
        """Of each machine that a gateway runs on."""
        self._skew = skew
        self._gateways: list[Gateway] = []
        self._all: list[Gateway] = []
        self._changing: set[asyncio.Task[None]] = set()
        self._database: SharedDatabase
        self._storage: StorageTroubles

    async def act(self) -> None:
        self._database = SharedDatabase(self._fork(), self._trace)
        self._storage = StorageTroubles(self._database, self._fork(), self._trace)
        try:
            await self._act()
        finally:
            for gateway in self._all:
                await gateway.bury()

    async def _act(self) -> None:
        self._storage.from_the_start()
        self._database.meet = self._meet
        if self._scenery.gateways > 1:  # one that is alone needs no leases: what it finds running is its own
            self._database.leases.seconds = self._scenery.settings.limits.lease.total_seconds()
        self._gateways = [self._start(slot) for slot in range(self._scenery.gateways)]
        await asyncio.gather(self._talk(), self._trouble())
        self._calm_down()
        await self._rest()
        while asked := Books(self._database, self._scenery).asked():
            await self._answer(asked)
            await self._rest()
        self._ending.problems += Books(self._database, self._scenery).problems()
        self._ending.problems += self._database.leases.stolen
        for broken in self._database.look(violations()):
            self._ending.problems.append(f"{broken.invariant.sentence}: {broken.examples}")
        self._ending.problems += [f"doctor misses {each.name}" for each in self._database.look(find_missing_messages())]
        await self._end()

    def _fork(self) -> random.Random:
        return random.Random(self._chance.getrandbits(32))  # noqa: S311 - a simulation

    def _start(self, slot: int) -> Gateway:
        scenery = self._scenery
        gateway = Gateway(
            f"w{slot}.{len(self._all)}",
            database=self._database,
            world=scenery.world,
            accounts=scenery.accounts,
            limits=scenery.limits,
            agent=replace(scenery.agent),
            settings=scenery.settings,
            clock=self._clocks[slot],
            alone=scenery.gateways == 1,
            seed=self._chance.getrandbits(32),
            trace=self._trace,
        )
        self._all.append(gateway)
        return gateway

    # Talk and trouble

    async def _talk(self) -> None:
        loop = asyncio.get_running_loop()
        for line in self._lines:
            await asyncio.sleep(line.at - loop.time())
            message = await line.chat.say(line.person, line.text, thread=line.thread)
            where = f"{line.chat.id} {line.thread or ''} as {message.id}"
            self._trace.note(line.person.name, f"says {line.text[:30]!r} in {where}")
            self._ending.said += 1

    async def _trouble(self) -> None:
        troubles = (
            *(self._kill, self._restart, self._freeze, self._power_failure, self._cut, self._platform_down),
            *self._storage.all,
            *((self._set_clock,) if self._skew else ()),
        )
        times = sorted(self._chance.uniform(0, self._scenery.length) for _ in range(self._chance.randint(0, 8)))
        for at in times:
            await asyncio.sleep(at - asyncio.get_running_loop().time())
            self._do(self._chance.choice(troubles)())
        await asyncio.sleep(self._scenery.length - asyncio.get_running_loop().time())

    def _do(self, trouble: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(trouble, context=nobody())
        self._changing.add(task)
        task.add_done_callback(self._changing.discard)

    def _meet(self, process: Process, where: str) -> None:
        """A gateway is at a point where being killed, or losing what was just written, might hurt."""
        if self._kills and not process.dead and self._chance.random() < 0.01:
            self._kills -= 1
            gateway = next(gateway for gateway in self._gateways if gateway.process is process)
            self._do(self._kill(gateway, where))
        elif self._power_failures and where.startswith("committed") and self._chance.random() < 0.03:
            self._power_failures -= 1
            self._do(self._power_failure())

    async def _kill(self, gateway: Gateway | None = None, where: str = "") -> None:
        gateway = gateway or self._chance.choice(self._gateways)
        if not gateway.is_alive:
            return
        gateway.kill(where)
        self._ending.kills += 1
        await asyncio.sleep(self._chance.choice((0.0, 1.0, 30.0)))
        self._replace(gateway)

    async def _restart(self) -> None:
        gateway = self._chance.choice(self._gateways)
        if gateway.is_well:
            self._ending.problems += await gateway.stop()
            self._replace(gateway)

    def _replace(self, gateway: Gateway) -> None:
        if gateway in self._gateways:
            slot = self._gateways.index(gateway)
            self._gateways[slot] = self._start(slot)

    async def _freeze(self) -> None:
        gateway = self._chance.choice(self._gateways)
        if gateway.is_well:
            await gateway.stand_still(self._chance.uniform(1, 60))

    async def _power_failure(self) -> None:
        """The machine of the database loses power. A gateway on the same machine dies with it, others see an outage."""
        self._ending.power_failures += 1
        if self._scenery.gateways > 1:
            self._database.lose_power()
            await self._storage.outage()
        else:
            self._database.lose_power()
            await self._kill(where="with its machine")

    async def _set_clock(self) -> None:
        clock = self._chance.choice(self._clocks)
        clock.offset = self._draw_skew(self._skew)
        self._trace.note("clock", f"of {self._clocks.index(clock)} is {clock.offset:.1f} s off")

    def _draw_skew(self, most: float) -> float:
        return self._chance.uniform(-most, most) if most else 0.0

    async def _cut(self) -> None:
        self._trace.note("platform", "cut")
        self._scenery.world.cut()

    async def _platform_down(self) -> None:
        self._trace.note("platform", "down")
        self._scenery.world.down = True
        await asyncio.sleep(self._chance.uniform(0.1, 30))
        self._trace.note("platform", "up")
        self._scenery.world.down = False

    # Quiet

    def _calm_down(self) -> None:
        self._kills = self._power_failures = 0
        self._storage.end()
        for clock in self._clocks:
            clock.offset = 0.0
        self._scenery.world.injector.faults = Faults()

    async def _rest(self) -> None:
        """Until every trouble is over and nothing is left to do. Turns that are paused go on with a calm start."""
        await self._settle()
        if self._is_paused:
            await asyncio.sleep(self._scenery.settings.limits.crash_window.total_seconds())
            await self._restart()
            await self._settle()
            if self._is_paused:
                raise AssertionError("it takes a calm start for a crash loop")

    @property
    def _is_paused(self) -> bool:
        return any(gateway.process.name in self._ending.paused for gateway in self._gateways)

    async def _settle(self) -> None:
        loop = asyncio.get_running_loop()
        books = Books(self._database, self._scenery)
        while self._changing or books.undone(is_paused=self._is_paused):
            if loop.time() > PATIENCE:
                raise AssertionError(f"it does not come to rest: {self._changing or books.undone()}")
            await asyncio.sleep(5)
        # Anything that comes late comes now.
        await asyncio.sleep(40)
        if undone := books.undone(is_paused=self._is_paused):
            raise AssertionError(f"it does not stay at rest: {undone}")

    async def _answer(self, asked: Sequence[Received]) -> None:
        """Anyone who was asked for permission says something to that at last."""
        for source in (each.inbound.source for each in asked):
            chat = self._scenery.world.chats[source.chat_id or ""]
            person = next(person for person in chat.people if person.id == source.user_id)
            await chat.say(person, self._chance.choice(("/approve", "/deny", "/stop")), thread=source.thread_id)

    async def _end(self) -> None:
        for gateway in self._gateways:
            self._ending.problems += [f"{gateway.process.name} {left}" for left in await gateway.stop()]
        self._ending.seconds = asyncio.get_running_loop().time()


def perform(seed: int, *, aloud: bool = False, skew: float = MAX_CLOCK_SKEW_SECONDS) -> Ending:
    """One play from its seed. The clocks of its gateways are up to `skew` seconds off."""
    loop = VirtualLoop()
    ending = Ending(seed, Trace(aloud=aloud))
    ear = _Ear(ending)
    engine_log = logging.getLogger("palaver.engine")
    before = engine_log.propagate
    engine_log.addHandler(ear)
    engine_log.propagate = False
    try:
        run(Play(ending, skew).act(), loop)
    except Exception as error:  # noqa: BLE001 - any error is reported with its seed
        ending.problems.append(f"{type(error).__name__}: {error}")
    finally:
        engine_log.removeHandler(ear)
        engine_log.propagate = before
    ending.problems += loop.complaints
    return ending
