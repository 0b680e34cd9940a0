"""Stores side by side, on paper: people talk, conversations move, people link their accounts, a store is lost.

`python -m tests.simulation.stores --people 1000000` plays a million people on 16 stores.
"""

import argparse
import asyncio
import gc
import hashlib
import random
import sys
import time
from array import array
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from palaver.model.key import SessionKey
from palaver.model.source import GROUP, Source, canonical_source, identity_of
from tests.simulation import store_model
from tests.simulation.loop import VirtualLoop, run
from tests.simulation.store_model import (
    Address,
    Away,
    Conversation,
    Directory,
    Home,
    Id,
    Message,
    NotHere,
    Send,
    State,
    Store,
    place_of,
)
from tests.simulation.trace import Trace

__all__ = ["Ending", "Stores", "main", "perform"]

T = TypeVar("T")

LENGTH = 60.0
"""Virtual seconds in which people begin to talk."""
PATIENCE = 600.0
_GATEWAYS = 3
_CACHED = 50_000


class Chat(NamedTuple):
    forms: tuple[Source, ...]
    """The same chat under each of the ids that its person has."""
    circle: int
    """Who can read what is said there: a person, or, below zero, everybody in a group."""
    person: int


class Ending:
    """What came of a play."""

    def __init__(self, seed: int, trace: Trace) -> None:
        self.seed = seed
        self.trace = trace
        self.problems: list[str] = []
        self.said = self.moves = self.links = self.refused = self.marked = 0
        self.shown = hashlib.sha256()

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.shown.hexdigest()} {self.trace.digest}".encode()).hexdigest()


class Stores:
    """A play."""

    def __init__(self, ending: Ending, people: int, stores: int) -> None:
        self._ending = ending
        self._people = people
        self._rarely = 8 if people < 20_000 else 80
        """Every so many has two apps and links them, and about as many move: of many people that is enough."""
        self._chance = random.Random(ending.seed)  # noqa: S311 - a simulation
        self.stores = [Store(f"e{number}") for number in range(stores)]
        self.directory = Directory(self.stores)
        self._caches: list[dict[SessionKey, tuple[int, Store, int]]] = [{} for _ in range(_GATEWAYS)]
        self._aliases: dict[str, str] = {}
        self._is_over = self._is_away = False
        self._living: dict[asyncio.Task[None], None] = {}
        self._running: set[SessionKey] = set()
        self.circles = array("q")
        """Of each message, by its number: who can read it, who said it, where, its id, and how it was answered."""
        self.speakers = array("q")
        self.addresses: list[Address] = []
        self.ids: list[Id | None] = []
        self.plain, self.marked = bytearray(), bytearray()
        self.shown_at = array("d")

    async def act(self) -> None:
        servers = [self._serve(store) for store in self.stores]
        servers += [self._lose(self._chance.choice(self.stores)), self._be_away()]
        for steps in servers:
            asyncio.get_running_loop().create_task(steps).add_done_callback(self._end)
        for number, at in enumerate(sorted(self._chance.uniform(0, LENGTH) for _ in range(self._people))):
            await asyncio.sleep(at - self._now)
            self._live(number)
        while self._living or any(store.ready for store in self.stores if store.successor is store):
            await asyncio.sleep(1)
            if self._now > LENGTH + PATIENCE:
                raise AssertionError(f"it does not come to rest: {len(self._living)} tasks")
        self._is_over = True
        await asyncio.sleep(LENGTH)
        self._ending.said, self._ending.marked = len(self.ids), sum(self.marked)
        self._ending.problems += _verdict(self)

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _start(self, steps: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(steps)
        self._living[task] = None
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._living.pop(task, None)
        if error := task.exception():
            self._ending.problems.append(repr(error))

    async def _call(self, store: Store, step: Callable[..., T], *args: Any) -> T:
        """Run a transaction. Its answer can be lost, with or without what it did."""
        await asyncio.sleep(self._chance.uniform(0.001, 0.05))
        luck = self._chance.random()
        if store.is_lost or luck < 0.01:
            raise Away
        done = step(*args)
        if luck < 0.02:
            raise Away
        return done

    async def _ask(self, step: Callable[..., T], *args: Any) -> T:
        await asyncio.sleep(0.002)
        if self._is_away:
            raise Away
        return step(*args)

    async def _insist(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        while True:
            try:
                return await call()
            except (Away, NotHere):
                await asyncio.sleep(0.5)

    # People

    def _live(self, number: int) -> None:
        """Somebody begins to talk: in a direct chat, some in a group too, some in a second app that they link."""
        person = str(number)
        chats = [Chat((Source(platform="telegram", account="bot", chat_id=person, user_id=person),), number, number)]
        if number % 5 == 1:
            group, thread = number // 50, self._chance.choice((None, "7"))
            source = Source(
                platform="telegram",
                chat_kind=GROUP,
                account="bot",
                chat_id=f"-{group}",
                user_id=person,
                thread_id=thread,
            )
            chats.append(Chat((source,), -1 - group if thread else number, number))
        if number % self._rarely == 0:
            chats.append(self._second_app(number))
            self._start(self._link(chats[0].forms[0], chats[-1].forms[0]))
        if self._chance.random() < 1 / self._rarely:
            self._start(self._wander(self._chance.choice(chats).forms[0]))
        for chat in chats:
            self._start(self._talk(chat, self._chance.choice((1, 1, 1, 2)) + 3 * (number % self._rarely == 0)))

    def _second_app(self, number: int) -> Chat:
        """Three ids of one person: a phone number, an account, and an account with a device."""
        account, phone, device = f"{number}@s.whatsapp.net", f"+{number}", f"{number}:3@lid"
        self._aliases |= {phone: account, device: phone}
        return Chat(
            tuple(
                Source(platform="whatsapp", account="line", chat_id=form, user_id=form)
                for form in (account, phone, device)
            ),
            number,
            number,
        )

    async def _talk(self, chat: Chat, count: int) -> None:
        for left in reversed(range(count)):
            token = len(self.ids)
            source = replace(self._chance.choice(chat.forms), message_id=str(token))
            self.ids.append(None)
            self.addresses.append(canonical_source(source, self._aliases).address)
            self.circles.append(chat.circle)
            self.speakers.append(chat.person)
            self.plain.append(0)
            self.marked.append(0)
            self.shown_at.append(0)
            await self._deliver(source, token)
            if self._chance.random() < 0.1:  # the platform has not heard of it, and repeats it later
                self._start(self._deliver(source, token, self._chance.uniform(0, 20)))
            if left:
                await asyncio.sleep(self._chance.uniform(0, 3))

    async def _deliver(self, source: Source, token: int, after: float = 0) -> None:
        await asyncio.sleep(after)
        found = await self._insist(lambda: self._receive(source, token))
        if self.ids[token] not in {None, found}:
            self._ending.problems.append(f"message {token} has two ids: {self.ids[token]}, {found}")
        self.ids[token] = found

    # Gateways

    async def _receive(self, source: Source, token: int) -> Id:
        """Accept a message where the directory says, or said when this gateway last read it."""
        source = canonical_source(source, self._aliases)
        cache, place = self._chance.choice(self._caches), place_of(source)
        if place not in cache:
            if len(cache) >= _CACHED:
                cache.clear()
            home = await self._ask(self.directory.find, place)
            cache[place] = home.name, home.store, home.version
        name, store, version = cache[place]
        try:
            return await self._call(store, store.accept, name, version, source, token)
        except (Away, NotHere):
            self._ending.refused += 1
            cache.pop(place, None)
            raise

    async def _serve(self, store: Store) -> None:
        while not (self._is_over or store.is_lost):
            for home, key in store.idle(self._now):
                self._start(self._work(store, home, key))
            await asyncio.sleep(0.5)

    async def _work(self, store: Store, home: int, key: SessionKey) -> None:
        """Do what a conversation has to do, until it is done or this worker dies."""
        try:
            while work := await self._call(store, store.claim, home, key, self._now):
                await (self._send(work.send) if work.send else self._run(key))
                if self._chance.random() < 0.01:
                    return
                await self._call(store, store.delivered if work.send else store.settle, home, key, work)
        except (Away, NotHere):
            """Somebody else finds it when the claim ends."""

    async def _run(self, key: SessionKey) -> None:
        if key in self._running:
            self._ending.problems.append(f"two turns at a time in {key.text}")
        self._running.add(key)
        await asyncio.sleep(self._chance.uniform(0.1, 3))
        self._running.discard(key)

    async def _send(self, send: Send) -> None:
        await asyncio.sleep(self._chance.uniform(0.01, 0.3))
        self._ending.shown.update(repr((send.tokens, send.is_marked, self._now)).encode())
        if send.address != self.addresses[send.tokens[-1]]:
            self._ending.problems.append(f"the answer to message {send.tokens[-1]} was shown in {send.address}")
        for token in send.tokens:
            count = self.marked if send.is_marked else self.plain
            count[token] = min(count[token] + 1, 9)
            self.shown_at[token] = self.shown_at[token] or self._now

    # Moves

    async def _wander(self, source: Source) -> None:
        """Move a chat to other stores while its people talk."""
        place = place_of(canonical_source(source, self._aliases))
        for _ in range(self._chance.choice((1, 1, 2))):
            await asyncio.sleep(self._chance.uniform(0, 4))
            (home,) = await self._insist(lambda: self._ask(self.directory.claim, place))
            goal = self._chance.choice(self.stores)
            await self._bring(home, lambda goal=goal: goal.successor)
            await self._insist(lambda home=home: self._call(home.store, home.store.open, home.name, home.version))
            home.is_claimed = False

    async def _bring(self, home: Home, goal: Callable[[], Store]) -> None:
        """Move a home; it arrives sealed. If something fails meanwhile, it tries again from there."""
        left: list[tuple[Store, int]] = []
        while home.store is not goal():
            try:
                await self._step(home, home.store, goal(), left)
            except (Away, NotHere):
                """It is tried again from what the directory says then."""
            await asyncio.sleep(0.2)
        self._ending.moves += len(left)
        for store, version in left:
            self._trace(f"home {home.name} goes from {store.check} to {home.store.check}")
            while not store.is_lost:
                try:
                    await self._call(store, store.drop, home.name, version)
                    break
                except Away:
                    await asyncio.sleep(0.5)

    async def _step(self, home: Home, source: Store, target: Store, left: list[tuple[Store, int]]) -> None:
        version = home.version
        rows = await self._call(source, source.seal, home.name, version, self._now)
        if rows is not None:
            await self._call(target, target.take, home.name, version + 1, rows)
            await self._ask(self.directory.commit, home, version, target)
            left.append((source, version))

    async def _link(self, one: Source, two: Source) -> None:
        """Two chats turn out to be one person's: bring them together, then make them one home."""
        await asyncio.sleep(self._chance.uniform(2, 8))
        sources = [canonical_source(each, self._aliases) for each in (one, two)]
        places = [place_of(each) for each in sources]
        names = str(identity_of(sources[0])), str(identity_of(sources[1]))
        first, second = await self._insist(lambda: self._ask(self.directory.claim, *places))
        while not await self._is_merged(first, second, names):
            await self._bring(second, lambda: first.store.successor)
            await asyncio.sleep(0.2)
        await self._insist(lambda: self._ask(self.directory.merge, first, places[1]))
        first.is_claimed = False
        self._ending.links += 1

    async def _is_merged(self, home: Home, other: Home, names: tuple[str, str]) -> bool:
        store = home.store
        try:
            if other.store is store and await self._call(
                store, store.merge, home.name, home.version, other.name, names
            ):
                return True
            await self._call(other.store, other.store.seal, other.name, other.version, self._now)
            return await self._call(store, store.merge, home.name, home.version, other.name, names)
        except (Away, NotHere):
            return False

    # Trouble

    async def _lose(self, store: Store) -> None:
        """A store is gone with its machines. Its synchronous standby elsewhere has all that it committed."""
        await asyncio.sleep(self._chance.uniform(LENGTH / 3, LENGTH * 2 / 3))
        store.is_lost = True
        self._trace(f"store {store.check} is lost")
        await asyncio.sleep(10)
        successor = store_model.succeed(store)
        self.stores.append(successor)
        self.directory.give_away(store, successor)
        await self._serve(successor)

    async def _be_away(self) -> None:
        while not self._is_over:
            await asyncio.sleep(self._chance.uniform(10, 30))
            self._is_away = True
            await asyncio.sleep(5)
            self._is_away = False

    def _trace(self, what: str) -> None:
        self._ending.trace.note("stores", what)


# Verdict


def _verdict(play: Stores) -> Iterator[str]:
    accepted, said = bytearray(len(play.ids)), bytearray(len(play.ids))
    keys: set[SessionKey] = set()
    homes = {home.name: home for home in play.directory.homes.values()}
    here = [(store, name) for store in play.stores if store.successor is store for name in store.homes]
    yield from _names(play, [store.homes[name].inbox.values() for store, name in here])
    for store, name in here:
        rows, home = store.homes[name], homes.get(name)
        if home is None or (home.store, home.version, State.OPEN) != (store, rows.version, rows.state):
            yield f"home {name} is in {store.check}, {rows.state.name}, and not where the directory says"
        _count(accepted, [message.token for message in rows.inbox.values()])
        for key, found in rows.conversations.items():
            yield from (f"{key.text} is in two homes" for _ in range(key in keys))
            keys.add(key)
            yield from _conversation(play, key, found)
            _count(said, found.said)
    for token, counts in enumerate(zip(accepted, said, play.plain, strict=True)):
        if counts[:2] != (1, 1) or counts[2] > 1 or not counts[2] + play.marked[token]:
            yield f"message {token}: accepted, in a transcript, answered without a mark: {counts}"


def _count(counts: bytearray, tokens: Iterable[int]) -> None:
    for token in tokens:
        counts[token] = min(counts[token] + 1, 9)


def _names(play: Stores, inboxes: Iterable[Iterable[Message]]) -> Iterator[str]:
    """An id names one message for ever: the one for which it was given."""
    named: dict[Id, int] = {}
    for message in chain.from_iterable(inboxes):
        if named.setdefault(message.id, message.token) != message.token or play.ids[message.token] != message.id:
            yield f"the id {message.id} of message {message.token} names another, or is not the one it got"


def _conversation(play: Stores, key: SessionKey, found: Conversation) -> Iterator[str]:
    if found.waiting or found.owed:
        yield f"{key.text} still waits"
    if len({play.circles[token] for token in found.said}) > 1:
        yield f"{key.text} has words of others"
    latest: dict[tuple[Address, int], int] = {}
    for token in found.said:
        place = play.addresses[token], play.speakers[token]
        if token < latest.get(place, 0):
            yield f"{key.text} is not in the order in which it was said"
        latest[place] = token
    times = [play.shown_at[token] for token in found.said if not play.marked[token]]
    if times != sorted(times):
        yield f"{key.text} was answered out of order"


def perform(seed: int, *, people: int = 400, stores: int = 16, aloud: bool = False) -> Ending:
    """One play from its seed."""
    loop = VirtualLoop()
    ending = Ending(seed, Trace(aloud=aloud))
    try:
        run(Stores(ending, people, stores).act(), loop)
    except Exception as error:  # noqa: BLE001 - any error is reported with its seed
        ending.problems.append(f"{type(error).__name__}: {error}")
    ending.problems += loop.complaints
    return ending


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.stores")
    parser.add_argument("--people", type=int, default=2_000)
    parser.add_argument("--stores", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=1, help="how many to play")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--verbose", action="store_true", help="tell of moves and losses")
    asked = parser.parse_args(args)
    broken = 0
    gc.disable()  # a million people are many objects to look through, and few of them are in cycles
    for seed in range(asked.first, asked.first + asked.seeds):
        began = time.monotonic()
        end = perform(seed, people=asked.people, stores=asked.stores, aloud=asked.verbose)
        broken += len(end.problems)
        for problem in end.problems[:5]:
            sys.stdout.write(f"seed={seed} {problem}\n")
        sys.stdout.write(
            f"seed={seed} people={asked.people} stores={asked.stores} messages={end.said} moves={end.moves}"
            f" links={end.links} refused={end.refused} marked={end.marked} broken={len(end.problems)}"
            f" trace={end.digest[:12]} took={time.monotonic() - began:.1f}s\n"
        )
        sys.stdout.flush()
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
