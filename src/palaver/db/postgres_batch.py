"""Run transactions of different conversations in step, in one database transaction.

A transaction is a generator that waits for the rows of its statement. Statements with the same text go to the server
together, so many transactions need hardly more round trips than one, and a single commit.

It is as safe as a database transaction for each (docs/decisions/0022-in-step.md): those that run in step have different
keys, so none reads what another writes; a name that several lock belongs to one of them until that one has ended; and
one that fails, or would wait for another connection, leaves the batch and runs alone.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, TypeVar, cast

import asyncpg

from palaver.db.postgres_statements import LOST, TRY_LOCK, is_of_server, to_postgres, with_caller
from palaver.db.transaction import KeyedTransaction, Lock, Notify, Row, Statement, Statements, TryLock, Value, storable

T = TypeVar("T")
# asyncpg has no types of its own.
Connection = Any

BEGIN_BATCH = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
    " SET LOCAL lock_timeout = '250ms'; SET LOCAL statement_timeout = '5s'; SET LOCAL enable_seqscan = off;"
)
"""A member whose row is locked for longer by another connection, or which is slow, leaves: the others wait for it.

Its statements are for a few rows of one conversation. A plan from when a table was empty would read all of it.
"""
MAX_BATCH = 128
MIN_SPLIT = 16
"""So many that wait run in two batches at once, if none runs yet."""
MAX_OF_KEY = 8
"""Members with the same key run one after the other, and all others of the batch wait for its commit."""
MAX_RUNNING = 2
"""While the server runs one batch, we go on with the other."""
_MAX_TEXTS = 2048

Text = tuple[str, bool]
"""SQL, and whether it comes with a list of values to run it with each."""
_LOCK: Text = (TRY_LOCK, False)


class RunAlone(Exception):
    """A transaction left its batch: run it in a database transaction of its own."""


class BatchUndone(Exception):
    """A batch has to be rolled back, and run again without these members, which run alone."""

    def __init__(self, leaving: Iterable["Member"]) -> None:
        super().__init__()
        self.leaving = frozenset(leaving)


class Member:
    """A transaction in a batch."""

    def __init__(self, work: KeyedTransaction[Any], future: "asyncio.Future[Any]") -> None:
        self.work = work
        self.future = future
        self.restart()

    def restart(self) -> None:
        self.steps: Statements[Any] | None = None
        self.statement: Statement | None = None
        """What it waits for; None before the first one and after the last."""
        self.position = 0
        """How many statements it has run."""
        self.names: list[str] = []
        """What nobody else in the batch can have until it ends: its key and its locks."""
        self.topics: set[str] = set()
        self.has_written = False
        self.result: object = None
        self.error: Exception | None = None

    def step(self, rows: list[Row]) -> None:
        """Go on to the next statement or to the end."""
        self.position += 1
        try:
            if self.steps is None:
                self.steps = iter(self.work)
                self.statement = next(self.steps)
            else:
                self.statement = self.steps.send(rows)
        except StopIteration as finished:
            self.statement, self.result = None, finished.value
        except Exception as error:  # noqa: BLE001 - its caller gets what it raises alone
            self.statement, self.error = None, error

    def settle(self) -> None:
        """Give the result to the caller, after the commit."""
        if self.future.done():
            return
        if self.error:
            self.future.set_exception(RunAlone())
        else:
            self.future.set_result(self.result)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Batch:
    """One run of several members in a database transaction that somebody else begins and ends."""

    def __init__(self, connection: Connection, members: Sequence[Member], positions: dict[Text, int]) -> None:
        self._connection = connection
        self._members = members
        self._positions = positions
        """The last place at which each text was seen in a transaction. Who is behind goes first, so all meet again."""
        self._waiting: dict[Text, list[Member]] = {}
        """Members by the statement that they wait for."""
        self._holders: dict[str, Member] = {}
        self._blocked: dict[str, deque[Member]] = {}
        """Members by the name that they wait for until its holder ends."""
        self._locked: set[str] = set()
        """Locks that the database transaction has. It keeps them until the commit."""

    async def run(self) -> set[str]:
        """Run all members to their end; return the topics to notify. Raise BatchUndone if some have to leave."""
        for member in self._members:
            member.restart()
            self._enter(member)
        while self._waiting:
            text = min(self._waiting, key=self._position)
            await self._run_group(text, self._waiting.pop(text))
        if self._blocked:  # they wait for each other
            raise BatchUndone(next(iter(self._blocked.values())))
        leaving = [each for each in self._members if each.has_written and (each.error or each.future.cancelled())]
        if leaving:
            raise BatchUndone(leaving)
        return {topic for member in self._members if not member.error for topic in member.topics}

    # Who waits for what

    def _enter(self, member: Member) -> None:
        if self._take(member.work.key, member):
            member.step([])
            self._place(member)

    def _place(self, member: Member) -> None:
        """Let a member wait for the server or for a name, or end it."""
        while (statement := member.statement) is not None:
            if isinstance(statement, Notify):
                member.topics.add(statement.topic)
            elif not isinstance(statement, Lock):
                self._wait((statement[0], isinstance(statement[1], list)), member)
                return
            elif not self._take(statement.name, member):
                return
            elif statement.name not in self._locked:
                self._wait(_LOCK, member)
                return
            member.step([(True,)])
        self._end(member)

    def _take(self, name: str, member: Member) -> bool:
        """Take a name, or let the member wait until its holder ends."""
        holder = self._holders.setdefault(name, member)
        if holder is not member:
            self._blocked.setdefault(name, deque()).append(member)
        elif name not in member.names:
            member.names.append(name)
        return holder is member

    def _wait(self, text: Text, member: Member) -> None:
        if len(self._positions) > _MAX_TEXTS:
            self._positions.clear()
        self._positions[text] = max(member.position, self._position(text))
        self._waiting.setdefault(text, []).append(member)

    def _position(self, text: Text) -> int:
        return self._positions.get(text, 0)  # another batch can have cleared them

    def _end(self, member: Member) -> None:
        """Let those go on that wait for a name of this member."""
        for name in member.names:
            del self._holders[name]
        for name in member.names:
            for each in self._blocked.pop(name, ()):
                if each.steps is None:
                    self._enter(each)
                else:
                    self._place(each)

    # On the server

    async def _run_group(self, text: Text, members: Sequence[Member]) -> None:
        try:
            found = await self._fetch(text, members)
        except (*LOST, asyncpg.PostgresError) as error:
            if self._connection.is_closed() or is_of_server(error):
                raise
            raise BatchUndone(members) from error
        for member, rows in zip(members, found, strict=False):
            if text is _LOCK:
                self._lock(member, is_granted=rows[0][0])
            else:
                member.has_written |= not text[0].startswith("SELECT")
                member.step(rows)
            self._place(member)

    def _lock(self, member: Member, *, is_granted: bool) -> None:
        lock = cast("Lock", member.statement)
        if is_granted:
            self._locked.add(lock.name)
        if is_granted or isinstance(lock, TryLock):
            member.step([(is_granted,)])
        elif member.has_written:
            raise BatchUndone([member])
        else:
            member.statement, member.error = None, RunAlone()

    async def _fetch(self, text: Text, members: Sequence[Member]) -> Iterable[list[Row]]:
        """Run the statement of each member; return the rows of each."""
        sql, is_list = text
        if text is _LOCK:
            names = [(cast("Lock", member.statement).name,) for member in members]
            return [[row] for row in await self._connection.fetchmany(sql, names)]
        values = [cast("tuple[str, Any]", member.statement)[1] for member in members]
        if is_list:
            await self._connection.executemany(to_postgres(sql), [storable(row) for rows in values for row in rows])
            return repeat([])
        if len(members) == 1:
            return [await self._connection.fetch(to_postgres(sql), *storable(values[0]))]
        if (asking := with_caller(sql)) is None:
            await self._connection.executemany(to_postgres(sql), map(storable, values))
            return repeat([])
        return await self._fetch_each(asking, values)

    async def _fetch_each(self, asking: str, values: Sequence[tuple[Value, ...]]) -> list[list[Row]]:
        found: list[list[Row]] = [[] for _ in values]
        numbered = ((*storable(each), number) for number, each in enumerate(values))
        rows: list[Row] = await self._connection.fetchmany(asking, numbered)
        for row in rows:
            number: int = row[-1]
            found[number].append(row[:-1])
        return found


class Batcher:
    """Collects transactions while batches run, and runs them in the next one, first come first served."""

    def __init__(self, run: Callable[[Sequence[Member]], Awaitable[None]]) -> None:
        self._run = run
        """Runs and commits a batch, or raises BatchUndone."""
        self._queue: deque[Member] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[str] = set()
        """The keys of the batches that run. The next transaction with such a key waits for the end of its batch."""

    async def transact(self, work: KeyedTransaction[T]) -> T:
        """Run it in the next batch. Raise RunAlone if it has to leave that."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append(Member(work, future))
        if len(self._tasks) < MAX_RUNNING:
            self._tasks.add(asyncio.create_task(self._serve(), name="palaver-batches"))
        return await future

    async def _serve(self) -> None:
        try:
            while members := self._take():
                keys = {member.work.key for member in members}
                self._running |= keys
                try:
                    await self._run_until_settled(members)
                finally:
                    self._running -= keys
        finally:
            # At once, not in a callback: the next transaction has to start another task.
            self._tasks.remove(cast("asyncio.Task[None]", asyncio.current_task()))

    def _take(self) -> list[Member]:
        """Return the members of the next batch, in the order in which they came: half of many, if no other one runs."""
        taken, left = list[Member](), list[Member]()
        times = Counter[str]()
        size = MAX_BATCH if self._running or len(self._queue) < MIN_SPLIT else (len(self._queue) + 1) // 2
        while self._queue and len(taken) < size:
            member = self._queue.popleft()
            key = member.work.key
            times[key] += 1
            (left if key in self._running or times[key] > MAX_OF_KEY else taken).append(member)
        self._queue.extendleft(reversed(left))
        return taken

    async def _run_until_settled(self, members: Sequence[Member]) -> None:
        while members := [member for member in members if not member.future.done()]:
            try:
                await self._run(members)
            except BatchUndone as undone:
                for member in undone.leaving:
                    member.fail(RunAlone())
            except Exception as error:  # noqa: BLE001 - everyone waits for this task
                for member in members:
                    member.fail(error)
            else:
                for member in members:
                    member.settle()
