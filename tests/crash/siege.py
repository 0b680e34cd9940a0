"""The siege: people speak all the time while the gateways that should answer are killed again and again."""

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from pathlib import Path

from palaver.platforms.kit.chat import Chat
from palaver.platforms.kit.faults import Faults
from palaver.platforms.kit.messages import Person
from palaver.platforms.kit.server import serving
from palaver.platforms.kit.world import World
from palaver.ports.clock import SystemClock
from palaver.stores.opening import open_store
from tests.crash.fuse import STEPS
from tests.crash.gateway import Gateway, Order, Slot, slots
from tests.crash.verdict import Verdict, judge, quiet, token

__all__ = ["FAULTS", "Siege", "Town", "town_of"]

FAULTS = Faults(duplicate=0.1, reorder=0.2, busy=0.01, busy_for=0.05, lost_before=0.002, lost_after=0.002)
_PATIENCE = 30.0
_BACKLOG = 200
"""So many messages may wait to be taken in; people who get no answer stop speaking."""
_SELDOM = ("hold", "reclaim", "reclaim_sends", "extend", "count_start")


@dataclass(kw_only=True)
class Town:
    """A world with people in it, a store, and places for gateways."""

    url: str
    folder: Path
    world: World
    chance: random.Random
    places: list[Slot]
    lease: float = 1.0
    _chats: list[tuple[Chat, tuple[Person, ...]]] = field(default_factory=list[tuple[Chat, tuple[Person, ...]]])
    _spoken: "count[int]" = field(default_factory=lambda: count(1))
    _lives: "count[int]" = field(default_factory=lambda: count(1))

    def settle(self, chats: int) -> None:
        """Most are alone with the agent; every tenth chat is a group of three."""
        for number in range(chats):
            if number % 10:
                person = self.world.person(f"person {number}")
                self._chats.append((self.world.dm(person), (person,)))
            else:
                people = tuple(self.world.person(f"person {number}.{each}") for each in range(3))
                self._chats.append((self.world.group(f"group {number}", *people), people))

    async def speak(self, order: str = "") -> str:
        """Somebody says something that nobody has said before; gives the word in it."""
        chat, people = self.chance.choice(self._chats)
        word = token(chat, next(self._spoken))
        await chat.say(self.chance.choice(people), f"{order} {word}".strip())
        return word

    async def start(self, place: int = 0, *, url: str | None = None, **changed: object) -> Gateway:
        """A gateway under a name of its own, one line of its log per thing it does."""
        worker = f"w{place}.{next(self._lives)}"
        order = Order(
            url=url or self.url,
            socket=str(self.folder / "world"),
            log=str(self.folder / "log"),
            worker=worker,
            alone=len(self.places) == 1,
            lease=self.lease,
            **changed,  # pyright: ignore[reportArgumentType]
        )
        return await self.places[place].start(order)

    @property
    def log(self) -> list[str]:
        path = self.folder / "log"
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
        async with await open_store(self.url) as store:
            signs, patience = self._signs, _PATIENCE
            while patience > 0 and (self.world.unacknowledged() or not await store.read(quiet())):
                await asyncio.sleep(0.05)
                patience = _PATIENCE if self._signs != signs else patience - 0.05
                signs = self._signs
            return await judge(list(self.world.chats.values()), store)

    @property
    def _signs(self) -> tuple[int, int]:
        """How much was taken in, and how much was shown."""
        return len(self.world.unacknowledged()), sum(len(chat.messages) for chat in self.world.chats.values())


@asynccontextmanager
async def town_of(
    url: str, *, workers: int, chats: int, seed: int, lease: float = 1.0, faults: Faults = FAULTS
) -> AsyncGenerator[Town]:
    """Everything a siege needs; at the end nothing of it is left, but the store."""
    world = World(faults=faults, seed=seed, clock=SystemClock())
    with tempfile.TemporaryDirectory(prefix="palaver-crash-") as name:
        folder = Path(name)
        async with serving(world, folder / "world"), slots(workers) as places:
            chance = random.Random(seed)  # noqa: S311 - the same seed is the same siege, as far as processes allow
            made = Town(url=url, folder=folder, world=world, chance=chance, places=places, lease=lease)
            made.settle(chats)
            yield made


@dataclass(kw_only=True)
class Siege:
    town: Town
    kills: int
    messages: int
    longest_life: float = 1.0
    tell: Callable[[str], None] = lambda _: None
    killed: int = 0
    said: int = 0
    reached: Counter[str] = field(default_factory=Counter[str])
    """At which steps gateways have died."""

    async def run(self) -> Verdict:
        steps = cycle(self.town.chance.sample(self.steps, len(self.steps)))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._speak())
            for place in range(len(self.town.places)):
                group.create_task(self._torment(place, steps))
            group.create_task(self._report())
        for place in range(len(self.town.places)):
            await self.town.start(place)
        return replace(await self.town.conclude(), kills=self.killed)

    @property
    def steps(self) -> tuple[str, ...]:
        """Only a gateway that is alone counts its starts."""
        alone = len(self.town.places) == 1
        return tuple(step for step in STEPS if alone or not step.endswith("count_start"))

    @property
    def _is_over(self) -> bool:
        return self.killed >= self.kills and self.said >= self.messages

    async def _speak(self) -> None:
        """As much as the kills have got on."""
        while self.said < self.messages:
            due = self.messages * min(1.0, (self.killed + 1) / self.kills)
            if self.said < due and len(self.town.world.unacknowledged()) < _BACKLOG:
                self.said += 1
                await self.town.speak(self.town.chance.choice(("", "", "!tool")))
            await asyncio.sleep(0.002)

    async def _torment(self, place: int, steps: "cycle[str]") -> None:
        """Start a gateway and kill it: every other one at the next step, and all of them some time."""
        chance = self.town.chance
        while not self._is_over:
            step = next(steps) if chance.random() < 0.7 else None
            length = chance.randint(1, 2 if step and step.endswith(_SELDOM) else 8)
            gateway = await self.town.start(place, step=step, length=length)
            life = self.longest_life if step else chance.uniform(0, self.longest_life)
            if await gateway.dies(within=life):
                self.reached[step or "?"] += 1
            else:
                await gateway.kill()
            self.killed += 1

    async def _report(self) -> None:
        began = asyncio.get_running_loop().time()
        while not self._is_over:
            await asyncio.sleep(0.2)
            if asyncio.get_running_loop().time() - began < 10:
                continue
            began = asyncio.get_running_loop().time()
            self.tell(f"kills={self.killed} messages={self.said} steps={len(self.reached)}/{len(self.steps)}")
