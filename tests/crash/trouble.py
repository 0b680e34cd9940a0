"""What happens to PostgreSQL during a siege: it is restarted, and connections are cut in the middle of a batch."""

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.store.outages import Cut, Proxy, Server

__all__ = ["Trouble", "trouble_of"]

_WORDS = (b"", b"", b"COMMIT;")
"""Where a connection is cut: at anything that a gateway says, or while it commits."""
_PASSING = 30
_PAUSE_SECONDS = 1.0
_OUTAGE_SECONDS = 0.3


@dataclass(kw_only=True)
class Trouble:
    server: Server
    proxy: Proxy
    """What gateways connect to."""
    chance: random.Random
    happened: Counter[str] = field(default_factory=Counter[str])

    async def go_on(self) -> None:
        """Make trouble until cancelled."""
        while True:
            await asyncio.sleep(self.chance.uniform(0, 2 * _PAUSE_SECONDS))
            await self._one()

    async def _one(self) -> None:
        kind = self.chance.random()
        if kind < 0.1:
            mode = self.chance.choice(("immediate", "fast"))
            await asyncio.to_thread(self.server.restart, mode)
            self.happened[f"restarts ({mode})"] += 1
        elif kind < 0.2:
            self.proxy.cut()
            await asyncio.sleep(_OUTAGE_SECONDS)
            self.proxy.mend()
            self.happened["outages"] += 1
        else:
            faults, cut = self.proxy.faults, self.chance.choice(tuple(Cut))
            self.proxy.fail_at(self.chance.choice(_WORDS), cut, self.chance.randrange(_PASSING))
            await asyncio.sleep(_PAUSE_SECONDS)
            self.proxy.forget_fault()
            self.happened[f"cuts {cut}"] += self.proxy.faults - faults


@asynccontextmanager
async def trouble_of(server: Server, url: str, seed: int) -> AsyncGenerator[Trouble]:
    with tempfile.TemporaryDirectory(prefix="palaver-proxy-") as folder:
        async with Proxy(server, url, Path(folder)).running() as proxy:
            yield Trouble(server=server, proxy=proxy, chance=random.Random(seed))  # noqa: S311
