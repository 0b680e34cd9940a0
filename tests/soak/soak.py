"""The soak itself: people and programs talk for so long while everything goes wrong; then it gets quiet."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from palaver.db.transaction import Statements, transaction
from palaver.store.opening import open_store
from palaver.store.store import Store
from tests.soak.gateway import Process
from tests.soak.site import Place, Site

__all__ = ["TROUBLES", "Soak"]

TROUBLES = ("kills", "full-disk", "skew", "crashing-agents", "flapping-platform", "bursts", "slow-clients")
_RATE = 1.0
"""Messages per second from people, beside those of programs."""
_TALKERS = 4
_SLOW_CLIENTS = 20
_BACKLOG = 300
"""So many messages may wait to be taken in; people who get no answer stop speaking."""
_SMALLEST_BURST, _LARGEST_BURST = 10, 300
_CALM_SECONDS = 60.0
"""How long nothing may happen, after all trouble is over, while something is left to do."""
_RESTART_SECONDS = 1.0
_SKEWS = (0, 20, -20, 600, -600)
_ORDERS = ("", "", "", "", "", "", "", "!slow", "!crash")


@dataclass(kw_only=True)
class Soak:
    """One site, for so many seconds."""

    site: Site
    seconds: float
    troubles: frozenset[str]
    said: int = 0
    kills: int = 0
    full: int = 0
    """How often the disk was full."""
    ended_alone: list[str] = field(default_factory=list[str])
    """Gateways that nobody ended; a service manager starts them again."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    _began: float = field(default_factory=time.monotonic)

    async def run(self) -> None:
        site = self.site
        async with asyncio.TaskGroup() as group:
            for place in site.places:
                group.create_task(self._live(place))
            while not await site.places[0].listens():  # noqa: ASYNC110 - it is elsewhere
                await asyncio.sleep(0.1)
            self._began = time.monotonic()
            talk = [site.api.talk(number, self.over) for number in range(_TALKERS)]
            for task in (self._speak(), self._sample(), *talk, *self._optional()):
                group.create_task(task)
            await asyncio.sleep(self.seconds)
            self.over.set()
        await self._until_quiet()

    def _optional(self) -> list[Coroutine[Any, Any, None]]:
        found: list[Coroutine[Any, Any, None]] = []
        if "flapping-platform" in self.troubles:
            found.append(self._flap())
        if "bursts" in self.troubles:
            found.append(self._burst())
        if "slow-clients" in self.troubles:
            found += [self.site.slow.hold(self.over) for _ in range(_SLOW_CLIENTS)]
        if "full-disk" in self.troubles and self.site.disk:
            found.append(self._fill())
        if "skew" in self.troubles and len(self.site.places) > 1:
            found.append(self._skew())
        return found

    @property
    def _elapsed(self) -> float:
        """From 0 to 1."""
        return (time.monotonic() - self._began) / self.seconds

    def _some(self, share: float) -> float:
        """Seconds: such a share of the whole time, more or less, but at least five if there is time for that."""
        return max(min(5.0, self.seconds / 6), self.site.chance.uniform(0.5, 1.5) * share * self.seconds)

    async def _pause(self, share: float) -> bool:
        """Wait for such a share of the whole time; gives whether there is more to come."""
        try:
            await asyncio.wait_for(self.over.wait(), self._some(share))
        except TimeoutError:
            return True
        return False

    # Talk

    async def _speak(self) -> None:
        chance, square = self.site.chance, self.site.square
        orders = [order for order in _ORDERS if order != "!crash" or "crashing-agents" in self.troubles]
        while not self.over.is_set():
            await asyncio.sleep(chance.expovariate(_RATE))
            if len(square.world.unacknowledged()) < _BACKLOG:
                await self._say(chance.choice(orders))

    async def _say(self, order: str) -> None:
        self.said += 1
        await self.site.square.speak(self.site.chance, next(self.site.spoken), order)

    async def _burst(self) -> None:
        """Somebody says very much at once."""
        messages = int(min(_LARGEST_BURST, max(_SMALLEST_BURST, self.seconds / 4)))
        while await self._pause(0.1):
            await self.site.square.burst(self.site.spoken, messages)
            self.said += messages

    # Trouble

    async def _live(self, place: Place) -> None:
        """One gateway after the other; the first place keeps one for the middle half, and the last one stays."""
        while True:
            process = await place.start()
            if self.site.chance.random() < 0.8:  # the others end before they are up
                await self._until_up(place)
            await self._wait_for_end(process, self._life(place))
            if self.over.is_set():
                await self._until_up(place)
            if not process.is_alive:
                self.ended_alone.append(f"{process.name} ended with {process.process.returncode}")
                await asyncio.sleep(_RESTART_SECONDS)
            elif self.over.is_set():
                return
            elif self.site.chance.random() < 0.7:
                await process.kill()
            else:
                await process.stop()
            self.kills += 1

    def _life(self, place: Place) -> float:
        """How many seconds a gateway lives."""
        if "kills" not in self.troubles:
            return self.seconds
        if 0.25 < self._elapsed < 0.75 and place is self.site.places[0]:
            return (0.75 - self._elapsed) * self.seconds
        return self._some(0.05)

    async def _wait_for_end(self, process: Process, seconds: float) -> None:
        """Until its life is over, or the soak, or it ends by itself."""
        waits = [asyncio.ensure_future(each) for each in (self.over.wait(), process.process.wait())]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _until_up(self, place: Place) -> None:
        while place.is_up and not await place.listens():  # noqa: ASYNC110 - it is elsewhere
            await asyncio.sleep(0.1)

    async def _fill(self) -> None:
        disk, place = self.site.disk, self.site.places[0]
        assert disk
        while await self._pause(0.2):
            pid = place.process.process.pid if place.process else 0
            await asyncio.to_thread(disk.fill, pid)
            self.full += 1
            await self._pause(0.01)
            await asyncio.to_thread(disk.free, pid)

    async def _skew(self) -> None:
        """The clock of the last gateway goes wrong, again and again."""
        place = self.site.places[-1]
        while await self._pause(0.05):
            place.clock.write_text(str(self.site.chance.choice(_SKEWS)))
        place.clock.write_text("0")

    async def _flap(self) -> None:
        world = self.site.square.world
        while await self._pause(0.01):
            world.cut()
            world.down = True
            await asyncio.sleep(self.site.chance.uniform(0.2, 3.0))
            world.down = False

    async def _sample(self) -> None:
        while not self.over.is_set():
            for place in self.site.places:
                if place.process and place.is_up:
                    place.process.sample()
            await self.site.control.measure()
            await asyncio.sleep(min(1.0, self.seconds / 100))

    # Quiet

    async def _until_quiet(self) -> None:
        """Until nothing is left to do, or nothing is done any more."""
        async with await open_store(self.site.store) as store:
            left, patience = await self._left(store), _CALM_SECONDS
            while left and patience > 0:
                await asyncio.sleep(0.5)
                before, left = left, await self._left(store)
                patience = _CALM_SECONDS if left != before else patience - 0.5

    async def _left(self, store: Store) -> int:
        return await self.site.square.waiting(store) + await store.read(_unfinished())


@transaction
def _unfinished() -> Statements[int]:
    """How much waits, runs or is owed."""
    waiting = yield "SELECT count(*) FROM inbox WHERE state = 'waiting'", ()
    running = yield "SELECT count(*) FROM turns WHERE ended IS NULL", ()
    owed = yield "SELECT count(*) FROM outbox WHERE state IN ('due', 'claimed', 'sending')", ()
    return waiting[0][0] + running[0][0] + owed[0][0]
