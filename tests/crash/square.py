"""The square: where people of a town speak to the agent and see what it says. Here on the fake platform."""

import random
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from palaver.engine.texts import MAY_BE_DUPLICATE
from palaver.model.turn import Outbound
from palaver.protocols.clock import SystemClock
from palaver.store.store import Store
from palaver.testkit.chat import Chat
from palaver.testkit.faults import Faults
from palaver.testkit.platform import FakePlatform
from palaver.testkit.socket import serve
from palaver.testkit.updates import Message, Person
from tests.crash.gateway import PACE_SECONDS
from tests.crash.verdict import Arrived, Room, token

__all__ = ["FAULTS", "FakeSquare", "Forgetful", "Square", "View", "fake_square", "is_group"]

FAULTS = Faults(duplicate=0.1, reorder=0.2, busy=0.01, busy_for=0.05, lost_before=0.002, lost_after=0.002)
PACED = Faults(delay=0.15)
"""Only slow, as a real platform is: nothing but kills makes a send unclear."""


class Square(Protocol):
    @property
    def platform(self) -> str: ...
    @property
    def where(self) -> Mapping[str, Any]:
        """What an adapter has to be told to be there, too."""
        ...

    @property
    def keeps_position(self) -> bool:
        """How far an adapter has read is known to us and not to the platform."""
        ...

    async def settle(self, chats: int) -> None:
        """Most people are alone with the agent; some are in groups of three."""
        ...

    async def is_heard(self, store: Store) -> bool:
        """Whether all that is said from now on will be heard, however late somebody listens."""
        ...

    async def speak(self, chance: random.Random, number: int, order: str) -> str:
        """Somebody says something with a word in it that nobody has said before; gives the word."""
        ...

    async def waiting(self, store: Store) -> int:
        """How much of what was said is not known to be safe."""
        ...

    async def look(self) -> Sequence[Room]: ...


@runtime_checkable
class Forgetful(Protocol):
    """A square without acknowledgements: what was written to a connection is forgotten."""

    @property
    def connections(self) -> Sequence[Sequence[str]]:
        """The ids of what was written to each, in order; the last can still be open."""
        ...


@dataclass(frozen=True, kw_only=True)
class View:
    """What is to be seen in a chat, in order."""

    id: str
    messages: Sequence[Message]


def is_group(number: int) -> bool:
    """Every tenth chat."""
    return number % 10 == 0


@dataclass(kw_only=True, eq=False)
class WatchedPlatform(FakePlatform):
    """Remembers every request to send that arrived, whatever came of it."""

    requests: list[Arrived] = field(default_factory=list[Arrived])

    async def send(self, account: str, outbound: Outbound, key: str) -> str:
        self.requests.append(Arrived(key, MAY_BE_DUPLICATE in outbound.text, time.monotonic()))
        return await super().send(account, outbound, key)


@dataclass(kw_only=True)
class FakeSquare:
    world: FakePlatform
    where: Mapping[str, Any]
    platform: str = "fake"
    keeps_position: bool = False
    small_talk: str = ""
    """What people say beside the word."""
    requests: Sequence[Arrived] | None = None
    """Every request to send that arrived, if somebody counts them."""
    _chats: list[tuple[Chat, tuple[Person, ...]]] = field(default_factory=list[tuple[Chat, tuple[Person, ...]]])

    async def settle(self, chats: int) -> None:
        for number in range(chats):
            if is_group(number):
                people = tuple(self.world.person(f"person {number}.{each}") for each in range(3))
                self._chats.append((self.world.group(f"group {number}", *people), people))
            else:
                person = self.world.person(f"person {number}")
                self._chats.append((self.world.dm(person), (person,)))

    async def is_heard(self, store: Store) -> bool:
        del store
        return True

    async def speak(self, chance: random.Random, number: int, order: str) -> str:
        chat, people = chance.choice(self._chats)
        word = token(chat, number)
        await chat.say(chance.choice(people), f"{order} {word} {self.small_talk}".strip())
        return word

    async def burst(self, numbers: Iterator[int], messages: int) -> None:
        """Somebody who is alone with the agent says so much at once."""
        chat, people = next(each for each in self._chats if len(each[1]) == 1)
        for number in islice(numbers, messages):
            await chat.say(people[0], token(chat, number))

    async def waiting(self, store: Store) -> int:
        del store
        return len(self.world.unacknowledged())

    async def look(self) -> Sequence[Room]:
        return list(self.world.chats.values())


@asynccontextmanager
async def fake_square(seed: int, *, is_paced: bool = False) -> AsyncGenerator[FakeSquare]:
    pace, faults = (PACE_SECONDS, PACED) if is_paced else (0.0, FAULTS)
    world = WatchedPlatform(faults=faults, seed=seed, clock=SystemClock(), interval=pace)
    with tempfile.TemporaryDirectory(prefix="palaver-world-") as folder:
        async with serve(world, Path(folder) / "world"):
            if is_paced:
                owner = world.person("owner")
                await world.dm(owner).say(owner, "Tell me what goes wrong.")
            small_talk = "and what do you think of it" if is_paced else ""
            yield FakeSquare(
                world=world, where={"path": f"{folder}/world"}, small_talk=small_talk, requests=world.requests
            )
