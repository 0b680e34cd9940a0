"""A database of which the seed decides how long everything takes and what goes wrong: one for all gateways."""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from palaver.db.high_water import Seen
from palaver.db.sqlite import run_statements
from palaver.db.transaction import Transaction
from palaver.model.epochs import NO_EPOCHS
from palaver.model.errors import StoreUnavailable
from tests.simulation.disk import NOTHING, Disk, Mark
from tests.simulation.leases import LeaseWatch
from tests.simulation.loop import PROCESS, Process
from tests.simulation.trace import Trace

__all__ = ["Door", "SharedDatabase", "nobody"]

T = TypeVar("T")


def nobody() -> Context:
    """Where things happen that belong to no gateway: on the platform, in the database."""
    context = Context()
    context.run(PROCESS.set, None)
    return context


@dataclass(kw_only=True, eq=False)
class _Job(Generic[T]):
    work: Transaction[T]
    process: Process
    answer: "asyncio.Future[T]"
    reads: bool
    asked: float
    seen: Mark = NOTHING
    """What was written when it was done, and thus what its answer may tell of."""

    @property
    def name(self) -> str:
        start: partial[Any] = self.work
        return start.func.__name__ + ("?" if self.reads else "")


class SharedDatabase:
    """Commits one piece of work after the other, each at its own time; what is cancelled before leaves no trace."""

    def __init__(self, chance: random.Random, trace: Trace) -> None:
        self.down = False
        """Nobody gets through."""
        self.lost = 0.0
        """How often an answer does not arrive, before the commit or after it."""
        self.slow = 0.0
        """How often something takes seconds."""
        self.errors = 0.0
        """How often the disk fails, at some statement or at the commit."""
        self.latency = 0.0
        """How many seconds a flush takes; one follows the other."""
        self.meet: Callable[[Process, str], None] = lambda _process, _where: None
        """Told of every point at which a gateway might be struck."""
        self.leases = LeaseWatch()
        self.disk = Disk()
        self._chance = chance
        self._trace = trace
        self._context = nobody()
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self._open: dict[_Job[Any], None] = {}
        """What nobody was answered yet, in order."""
        self._free_at = 0.0

    @property
    def db(self) -> sqlite3.Connection:
        return self.disk.db

    def look(self, work: Transaction[T]) -> T:
        """At once, for the judge."""
        return run_statements(self.db, iter(work), set())

    def submit(self, job: _Job[Any]) -> None:
        self._open[job] = None
        loop = asyncio.get_running_loop()
        at = loop.time() + self._delay()
        if self.latency and not job.reads:
            at = self._free_at = max(at, self._free_at) + self._chance.uniform(0.5, 1.5) * self.latency
        loop.call_at(at, self._run, job, context=self._context)

    @contextmanager
    def listen(self, topic: str) -> Generator[asyncio.Event]:
        event = asyncio.Event()
        with self.hear(topic, event.set):
            yield event

    @contextmanager
    def hear(self, topic: str, call: Callable[[], None]) -> Generator[None]:
        listeners = self._listeners.setdefault(topic, [])
        # No matter who wakes it, what it begins belongs to the gateway that listens.
        hears = partial(copy_context().run, call)
        listeners.append(hears)
        try:
            yield
        finally:
            listeners.remove(hears)
            if not listeners:
                self._listeners.pop(topic, None)

    def come_back(self) -> None:
        """Anyone who listened may have missed something: everybody looks again."""
        self.down = False
        for topic in sorted(self._listeners):
            self._wake(topic)

    def _later(self, step: Callable[..., None], *args: object) -> None:
        asyncio.get_running_loop().call_later(self._delay(), step, *args, context=self._context)

    def _delay(self) -> float:
        chance = self._chance
        if chance.random() < self.slow:
            return chance.uniform(0.5, 5.0)
        return chance.uniform(0.0, 0.02) if chance.random() < 0.9 else chance.uniform(0.02, 0.4)

    def _run(self, job: _Job[Any]) -> None:
        self.meet(job.process, f"before {job.name}")
        if job not in self._open:  # the power failed
            return
        if job.answer.cancelled() or (job.process.dead and self._chance.random() < 0.5):
            del self._open[job]
            return
        if self.down or self._chance.random() < self.lost:
            self._later(self._fail, job, StoreUnavailable("the database does not answer; nothing was written"))
            return
        notified, before = set[str](), self.disk.mark
        fails_after = self._chance.randrange(6) if self._chance.random() < self.errors else None
        try:
            result = self.disk.run(job.work, notified, reads=job.reads, fails_after=fails_after)
        except Exception as error:  # noqa: BLE001 - it belongs to the caller
            job.seen = self.disk.mark
            self._later(self._fail, job, error)
            return
        job.seen = self.disk.mark
        if job.seen != before:
            self.leases.look(self.db, job.asked)
        self._trace.note(job.process.name, job.name)
        for topic in sorted(notified):
            self._later(self._wake, topic)
        if self._chance.random() < self.lost:
            self._later(self._fail, job, StoreUnavailable("it is not known whether it was committed"))
        else:
            self._later(self._settle, job, result)
        self.meet(job.process, f"{'after' if job.seen == before else 'committed'} {job.name}")

    def lose_power(self) -> None:
        """Of what nobody was answered yet, the last commits may be gone; none of those who wait learns which."""
        self._trace.note("store", self.disk.lose_power(self._chance))
        self.leases.begin_anew(self.db)
        waiting, self._open = self._open, {}
        for job in waiting:
            self._raise(job, StoreUnavailable("it is not known whether it was committed"))

    def _settle(self, job: _Job[T], result: T) -> None:
        if self._closes(job) and not job.answer.done():
            job.answer.set_result(result)

    def _fail(self, job: _Job[Any], error: Exception) -> None:
        if self._closes(job):
            self._raise(job, error)

    def _raise(self, job: _Job[Any], error: Exception) -> None:
        if not job.answer.done():
            self._trace.note(job.process.name, f"{job.name}: {type(error).__name__}")
            job.answer.set_exception(error)
            job.answer.exception()  # a dead gateway does not look at it

    def _closes(self, job: _Job[Any]) -> bool:
        """Whether it can be answered; what the answer tells of has to stay from now on."""
        if job not in self._open:
            return False
        del self._open[job]
        self.disk.keep(job.seen)
        return True

    def _wake(self, topic: str) -> None:
        if not self.down:
            for call in tuple(self._listeners.get(topic, ())):
                call()


class Door:
    """The database as one gateway has it. A dead gateway gets no answer any more."""

    def __init__(self, database: SharedDatabase, process: Process) -> None:
        self._database = database
        self._process = process

    async def transact(self, work: Transaction[T]) -> T:
        return await self._ask(work, reads=False)

    async def read(self, work: Transaction[T]) -> T:
        return await self._ask(work, reads=True)

    async def browse(self, work: Transaction[T]) -> T:
        return await self._ask(work, reads=True)

    def listen(self, topic: str) -> AbstractContextManager[asyncio.Event]:
        return self._database.listen(topic)

    def hear(self, topic: str, call: Callable[[], None]) -> AbstractContextManager[None]:
        return self._database.hear(topic, call)

    async def scrub(self) -> None: ...

    damage = ""
    """Its disk fails, but damages nothing."""
    is_away = False
    is_stalled = False
    epochs = NO_EPOCHS

    def saw(self, seen: Seen) -> None: ...

    def take_loss(self) -> None: ...

    async def close(self) -> None: ...

    async def _ask(self, work: Transaction[T], *, reads: bool) -> T:
        iter(work).close()  # a gateway that dies drops its work: that is not a transaction forgotten by the code
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        if not self._process.dead:
            job = _Job(work=work, process=self._process, answer=answer, reads=reads, asked=loop.time())
            self._database.submit(job)
        return await answer
