"""What happens to the storage during a play: outages, errors, a full disk, a slow disk, flushes that copy the log."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.database import SharedDatabase
from tests.simulation.trace import Trace

__all__ = ["StorageTroubles"]


class StorageTroubles:
    def __init__(self, database: SharedDatabase, chance: random.Random, trace: Trace) -> None:
        self._database = database
        self._chance = chance
        self._trace = trace

    @property
    def all(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        return (self.outage, self._errors, self._full, self._slow, self._checkpoint)

    def from_the_start(self) -> None:
        """What goes wrong now and then, all the time."""
        database, chance = self._database, self._chance
        database.lost = chance.choice((0.0, 0.0, 0.01, 0.05))
        database.slow = chance.choice((0.0, 0.01, 0.05))
        database.errors = chance.choice((0.0, 0.0, 0.0, 0.02))
        database.latency = chance.choice((0.0, 0.0, 0.0, 0.02, 0.1))

    def end(self) -> None:
        self._database.lost = self._database.slow = self._database.errors = self._database.latency = 0.0

    async def outage(self) -> None:
        self._trace.note("store", "away")
        self._database.down = True
        await self._for_a_while()
        self._trace.note("store", "back")
        self._database.come_back()

    async def _errors(self) -> None:
        self._trace.note("disk", "fails now and then")
        self._database.errors = self._chance.choice((0.1, 0.5, 1.0))
        await self._for_a_while()
        self._trace.note("disk", "is well")
        self._database.errors = 0.0

    async def _full(self) -> None:
        self._trace.note("disk", "full")
        self._database.disk.is_full = True
        await self._for_a_while()
        self._trace.note("disk", "has room")
        self._database.disk.is_full = False

    async def _slow(self) -> None:
        """A flush takes up to a second, and one waits for the other: leases can run out before they are extended."""
        self._trace.note("disk", "slow")
        self._database.latency = self._chance.choice((0.1, 0.3, 1.0))
        await self._for_a_while()
        self._trace.note("disk", "quick")
        self._database.latency = 0.0

    async def _checkpoint(self) -> None:
        self._trace.note("disk", "checkpoint")
        self._database.disk.checkpoint()

    async def _for_a_while(self) -> None:
        await asyncio.sleep(self._chance.uniform(0.1, 30))
