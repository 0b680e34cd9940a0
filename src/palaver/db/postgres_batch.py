"""Batches on PostgreSQL: statements with the same text go to the server together, and one commit ends all of them."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, TypeVar, cast

import asyncpg

from palaver.db.in_step import LOCK, Batch, BatchUndone, Members, Text
from palaver.db.postgres_statements import LOST, TRY_LOCK, is_of_server, of_rows, to_postgres, with_caller
from palaver.db.transaction import KeyedTransaction, Lock, Member, Row, RunAlone, TryLock, Value, storable

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


async def run_batch(connection: Connection, members: Members, positions: dict[Text, int]) -> set[str]:
    """Run all members to their end; return the topics to notify. Raise BatchUndone if some have to leave."""
    for member in members:
        member.restart()
    batch = Batch(members, positions)
    while group := batch.next_group():
        await _run_group(connection, batch, *group)
    if leaving := [each for each in members if each.has_written and (each.error or each.future.cancelled())]:
        raise BatchUndone(leaving)
    return batch.topics


async def _run_group(connection: Connection, batch: Batch, text: Text, members: Members) -> None:
    try:
        found = await _fetch(connection, text, members)
    except (*LOST, asyncpg.PostgresError) as error:
        if connection.is_closed() or is_of_server(error):
            raise
        raise BatchUndone(members) from error
    if text is LOCK:
        for member, rows in zip(members, found, strict=True):
            _lock(batch, member, is_granted=rows[0][0])
        return
    if not text[0].startswith("SELECT"):
        for member in members:
            member.has_written = True
    batch.go_on(members, found)


def _lock(batch: Batch, member: Member[Any], *, is_granted: bool) -> None:
    lock = cast("Lock", member.statement)
    if is_granted:
        batch.locked.add(lock.name)
    if is_granted or isinstance(lock, TryLock):
        batch.go_on([member], [[(is_granted,)]])
    elif member.has_written:
        raise BatchUndone([member])
    else:
        batch.leave(member)


async def _fetch(connection: Connection, text: Text, members: Members) -> Iterable[list[Row]]:
    """Run the statement of each member; return the rows of each."""
    sql, is_list = text
    if text is LOCK:
        names = [(cast("Lock", member.statement).name,) for member in members]
        return [[row] for row in await connection.fetchmany(TRY_LOCK, names)]
    values = [cast("tuple[str, Any]", member.statement)[1] for member in members]
    if is_list:
        return await _run_each(connection, sql, [row for rows in values for row in rows])
    if not sql.startswith("SELECT"):
        return await _fetch_each(connection, sql, values)
    asked = list(dict.fromkeys(values))  # the same question has one answer: nothing is written between
    answers = dict(zip(asked, await _fetch_each(connection, sql, asked), strict=True))
    return [answers[each] for each in values]


async def _fetch_each(connection: Connection, sql: str, values: Sequence[tuple[Value, ...]]) -> Iterable[list[Row]]:
    """Run a statement with each of the values; return the rows of each."""
    if len(values) == 1:
        return [await connection.fetch(to_postgres(sql), *storable(values[0]))]
    if (asking := with_caller(sql)) is None:
        return await _run_each(connection, sql, values)
    found: list[list[Row]] = [[] for _ in values]
    numbered = ((*storable(each), number) for number, each in enumerate(values))
    rows: list[Row] = await connection.fetchmany(asking, numbered)
    for row in rows:
        number: int = row[-1]
        found[number].append(row[:-1])
    return found


async def _run_each(connection: Connection, sql: str, values: Sequence[tuple[Value, ...]]) -> Iterable[list[Row]]:
    """Run a statement that returns nothing. One for all values, if there is one, is less work for the server."""
    rows = list(map(storable, values))
    if (together := of_rows(sql)) and together.fits(rows):
        types = await _types_of_values(connection, sql)
        await connection.execute(together.sql(types), *map(list, zip(*rows, strict=True)))
    else:
        await connection.executemany(to_postgres(sql), rows)
    return repeat([])


async def _types_of_values(connection: Connection, sql: str) -> Sequence[str]:
    if sql not in _known_types:
        prepared = await connection.prepare(to_postgres(sql))
        _known_types[sql] = [each.name for each in prepared.get_parameters()]
    return _known_types[sql]


_known_types: dict[str, Sequence[str]] = {}
"""By statement: they are the same in every database of ours."""


class Batcher:
    """Collects transactions while batches run, and runs them in the next one, first come first served."""

    def __init__(self, run: Callable[[Members], Awaitable[None]]) -> None:
        self._run = run
        """Runs and commits a batch, or raises BatchUndone."""
        self._queue: deque[Member[Any]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[str] = set()
        """The keys of the batches that run. The next transaction with such a key waits for the end of its batch."""

    async def transact(self, work: KeyedTransaction[T]) -> T:
        """Run it in the next batch. Raise RunAlone if it has to leave that."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append(Member(work, future, work.key))
        if len(self._tasks) < MAX_RUNNING:
            self._tasks.add(asyncio.create_task(self._serve(), name="palaver-batches"))
        return await future

    async def _serve(self) -> None:
        try:
            while members := self._take():
                keys = {member.key for member in members}
                self._running |= keys
                try:
                    await self._run_until_settled(members)
                finally:
                    self._running -= keys
        finally:
            # At once, not in a callback: the next transaction has to start another task.
            self._tasks.remove(cast("asyncio.Task[None]", asyncio.current_task()))

    def _take(self) -> list[Member[Any]]:
        """Return the members of the next batch, in the order in which they came: half of many, if no other one runs."""
        taken, left = list[Member[Any]](), list[Member[Any]]()
        times = Counter[str]()
        size = MAX_BATCH if self._running or len(self._queue) < MIN_SPLIT else (len(self._queue) + 1) // 2
        while self._queue and len(taken) < size:
            member = self._queue.popleft()
            key = member.key
            times[key] += 1
            (left if key in self._running or times[key] > MAX_OF_KEY else taken).append(member)
        self._queue.extendleft(reversed(left))
        return taken

    async def _run_until_settled(self, members: Members) -> None:
        while members := [member for member in members if not member.future.done()]:
            try:
                await self._run(members)
            except BatchUndone as undone:
                for member in undone.leaving:
                    member.error = RunAlone()
                    member.settle()
            except Exception as error:  # noqa: BLE001 - everyone waits for this task
                for member in members:
                    member.error = error
                    member.settle()
            else:
                for member in members:
                    member.settle()
