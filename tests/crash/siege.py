"""The siege: people speak all the time while the gateways that should answer are killed again and again."""

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from pathlib import Path

from palaver.db.transaction import Row, Statements, transaction
from palaver.store.opening import open_store
from palaver.store.store import Store
from tests.crash.background import Background
from tests.crash.fuse import ASKED, BACKGROUND, ENDED, STEPS
from tests.crash.gateway import Gateway, Order, Slot, open_keyed, slots
from tests.crash.square import FakeSquare, Forgetful, Square, fake_square
from tests.crash.trouble import Trouble
from tests.crash.verdict import Verdict, all_told, judge, quiet

__all__ = ["Siege", "Town", "town_of"]

_PATIENCE = 70.0
"""Seconds in which something happens, unless all is done: a job can fire every minute."""
_BACKLOG = 200
"""So many messages may wait to be taken in; people who get no answer stop speaking."""
_FREEZES, _FROZEN_LEASES = 0.1, 3
_SELDOM = ("acquire", "reclaim", "reclaim_sends", "extend_leases", "count_start", *BACKGROUND)


@dataclass(kw_only=True)
class Town:
    """People on a square, a store, and places for gateways."""

    url: str
    folder: Path
    square: Square
    chance: random.Random
    places: list[Slot]
    lease: float = 1.0
    background: Background | None = None
    """Processes and jobs, if there are to be any."""
    key_file: Path | None = None
    """Where the key of an encrypted store is."""
    is_paced: bool = False
    """Chats get one message a second, and see answers grow."""
    _gateways: list[Gateway] = field(default_factory=list[Gateway])
    _spoken: "count[int]" = field(default_factory=lambda: count(1))
    _lives: "count[int]" = field(default_factory=lambda: count(1))

    async def speak(self, order: str = "") -> str:
        """Somebody says something that nobody has said before; gives the word in it."""
        return await self.square.speak(self.chance, next(self._spoken), order)

    async def wake(self) -> None:
        """From now on nothing that is said is past."""
        async with await open_store(self.url) as store:
            if await self.square.is_heard(store):
                return
            first = await self.start()
            async with asyncio.timeout(_PATIENCE):
                while not await self.square.is_heard(store):  # noqa: ASYNC110 - it is in another process
                    await asyncio.sleep(0.02)
            await first.kill()

    async def start(self, place: int = 0, *, url: str | None = None, **changed: object) -> Gateway:
        """A gateway under a name of its own, one line of its log per thing it does."""
        worker = f"w{place}.{next(self._lives)}"
        order = Order(
            url=url or self.url,
            platform=self.square.platform,
            where=dict(self.square.where),
            log=str(self.folder / "log"),
            worker=worker,
            alone=len(self.places) == 1,
            lease=self.lease,
            home=str(self.background.folder) if self.background else None,
            key_file=str(self.key_file) if self.key_file else None,
            is_paced=self.is_paced,
            **changed,  # pyright: ignore[reportArgumentType]
        )
        gateway = await self.places[place].start(order)
        self._gateways.append(gateway)
        return gateway

    @property
    def log(self) -> list[str]:
        return self._read("log")

    @property
    def notes(self) -> list[str]:
        """What gateways wrote down: what of which number, at which gateway, and when."""
        return self._read("notes")

    @property
    def agents(self) -> list[str]:
        """What of that is about turns that agents were asked for, and that they ended."""
        return [note for note in self.notes if note.startswith((ASKED, ENDED))]

    def _read(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    @property
    def errors(self) -> list[str]:
        """What no kill explains: a gateway that broke by itself."""
        return [line for line in self.log if " ERROR " in line or "Traceback" in line]

    async def until_logged(self, action: str, worker: str = "") -> None:
        """Until a gateway has said that it did something."""
        async with asyncio.timeout(60):
            while not any(f" {action} " in said and f" {worker}" in said for said in self.log):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def conclude(self) -> Verdict:
        """Wait until there is nothing left to do, or nothing is done any more, and look at everything."""
        async with await open_keyed(self.url, str(self.key_file) if self.key_file else None) as store:
            signs, patience = await store.read(_signs()), _PATIENCE
            while patience > 0 and not await self._is_quiet(store):
                await asyncio.sleep(0.05)
                before, signs = signs, await store.read(_signs())
                patience = _PATIENCE if signs != before else patience - 0.05
            connections = self.square.connections if isinstance(self.square, Forgetful) else ()
            requests = self.square.requests if isinstance(self.square, FakeSquare) else None
            verdict = await judge(
                await self.square.look(),
                store,
                connections,
                requests=requests,
                notes=self.notes,
                killed={each.order.worker: each.killed for each in self._gateways if each.killed},
                told=self.is_paced,
            )
            more = await self.background.judge(store) if self.background else []
            return replace(verdict, broken=[*verdict.broken, *more])

    async def _is_quiet(self, store: Store) -> bool:
        if await self.square.waiting(store) or (self.background and await self.background.left(store)):
            return False
        return await store.read(quiet()) and (not self.is_paced or await store.read(all_told()))


@transaction
def _signs() -> Statements[list[Row]]:
    """How much was taken in, and how much was settled."""
    settled = "state NOT IN ('due', 'claimed', 'sending')"
    return (yield f"SELECT (SELECT count(*) FROM inbox), count(*) FROM outbox WHERE {settled}", ())  # noqa: S608


@asynccontextmanager
async def town_of(
    url: str,
    square: Square | None = None,
    *,
    workers: int,
    chats: int,
    seed: int,
    lease: float = 1.0,
    job_repeats: int | None = None,
    is_paced: bool = False,
) -> AsyncGenerator[Town]:
    """Everything a siege needs; at the end nothing of it is left, but the store. Without a square it is a fake one.

    On a fake square, with a number of repeats of the first job, there is background work.
    """
    async with AsyncExitStack() as stack:
        square = square or await stack.enter_async_context(fake_square(seed, is_paced=is_paced))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="palaver-crash-")))
        places = await stack.enter_async_context(slots(workers, square.platform))
        chance = random.Random(seed)  # noqa: S311 - the same seed is the same siege, as far as processes allow
        await square.settle(chats)
        town = Town(url=url, folder=folder, square=square, chance=chance, places=places, lease=lease, is_paced=is_paced)
        if job_repeats is not None and isinstance(square, FakeSquare):
            town.background = Background(world=square.world, folder=folder, repeats=job_repeats)
            stack.push_async_callback(town.background.end)
        yield town


@dataclass(kw_only=True)
class Siege:
    town: Town
    kills: int
    messages: int
    longest_life: float = 1.0
    spoken_per_order: int = 5
    """So many messages are said for each process or job."""
    trouble: Trouble | None = None
    """What else happens meanwhile. Then some gateways are also frozen beyond their leases, and go on."""
    tell: Callable[[str], None] = lambda _: None
    killed: int = 0
    frozen: int = 0
    said: int = 0
    reached: Counter[str] = field(default_factory=Counter[str])
    """At which steps gateways have died."""

    async def run(self) -> Verdict:
        steps = cycle(self.town.chance.sample(self.steps, len(self.steps)))
        await self.town.wake()
        async with await open_store(self.town.url) as store, asyncio.TaskGroup() as group:
            torments = [
                group.create_task(self._speak(store)),
                *(group.create_task(self._torment(place, steps)) for place in range(len(self.town.places))),
                group.create_task(self._report()),
            ]
            if self.trouble:
                trouble = group.create_task(self.trouble.go_on())
                await asyncio.wait(torments)
                trouble.cancel()
        for place in range(len(self.town.places)):
            await self.town.start(place)
        return replace(await self.town.conclude(), kills=self.killed)

    @property
    def steps(self) -> tuple[str, ...]:
        """Only a gateway that is alone counts its starts, and only some platforms have positions."""
        is_there = {"count_start": len(self.town.places) == 1, "save_position": self.town.square.keeps_position}
        is_there |= dict.fromkeys(BACKGROUND, self.town.background is not None)
        return tuple(step for step in STEPS if is_there.get(step.rpartition(" ")[2], True))

    @property
    def _is_over(self) -> bool:
        return self.killed >= self.kills and self.said >= self.messages

    async def _speak(self, store: Store) -> None:
        """As much as the kills have got on."""
        while self.said < self.messages:
            due = self.messages * min(1.0, (self.killed + 1) / self.kills)
            if self.said < due and await self.town.square.waiting(store) < _BACKLOG:
                self.said += 1
                await self.town.speak(self.town.chance.choice(("", "", "!tool")))
                if self.town.background and self.said % self.spoken_per_order == 0:
                    await self.town.background.order()
            else:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.002)

    async def _torment(self, place: int, steps: "cycle[str]") -> None:
        """Start a gateway and kill it: every other one at the next step, and all of them some time."""
        chance = self.town.chance
        while not self._is_over:
            if self.town.is_paced:
                await self._kill_some_time(place)
                continue
            step = next(steps) if chance.random() < 0.7 else None
            length = chance.randint(1, 2 if step and step.endswith(_SELDOM) else 8)
            gateway = await self.town.start(place, url=self._url, step=step, length=length)
            life = self.longest_life if step else chance.uniform(0, self.longest_life)
            if self.trouble and chance.random() < _FREEZES:
                await self._freeze(gateway, life)
            if await gateway.dies(within=life):
                self.reached[step or "?"] += 1
            else:
                await gateway.kill()
            self.killed += 1

    async def _kill_some_time(self, place: int) -> None:
        gateway = await self.town.start(place, url=self._url)
        await gateway.serves()
        if not await gateway.dies(within=self.town.chance.uniform(0, self.longest_life)):
            await gateway.kill()
        self.killed += 1

    @property
    def _url(self) -> str | None:
        return self.trouble.proxy.url if self.trouble else None

    async def _freeze(self, gateway: Gateway, life: float) -> None:
        """Stop it in the middle of something for so long that others take over what it had, then let it go on."""
        if await gateway.dies(within=life):
            return
        gateway.freeze()
        await asyncio.sleep(_FROZEN_LEASES * self.town.lease)
        gateway.go_on()
        self.frozen += 1

    async def _report(self) -> None:
        began = asyncio.get_running_loop().time()
        while not self._is_over:
            await asyncio.sleep(0.2)
            if asyncio.get_running_loop().time() - began < 10:
                continue
            began = asyncio.get_running_loop().time()
            self.tell(f"kills={self.killed} messages={self.said} steps={len(self.reached)}/{len(self.steps)}")
