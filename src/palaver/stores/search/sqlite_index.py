"""The index of a SQLite store: an FTS5 table in a file of its own, on a thread of its own."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from palaver.ports.work import Steps, work
from palaver.stores.search.documents import Candidate, Wanted
from palaver.stores.search.sqlite_file import Batch, IndexFile, Mark
from palaver.stores.search.truth import Noted, Progress, changes_of
from palaver.stores.sqlite import SqliteDatabase

__all__ = ["SqliteIndex"]

T = TypeVar("T")
_NOTES = 256


class _Read(NamedTuple):
    """What the journal says after a mark: nothing, if the mark is from another database."""

    progress: Progress | None
    mark: Mark


class SqliteIndex:
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._file = IndexFile(database.path.with_name(database.path.name + ".search"))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="palaver-search")
        self._complete = 0
        self._one_at_a_time = asyncio.Lock()

    async def catch_up(self, *, tidy: bool) -> int:
        async with self._one_at_a_time:
            entries = await self._read_on()
            self._complete = await self._run(lambda: self._file.generation)
        while tidy and await self._run(self._file.tidy):
            pass  # small steps, so that a search need not wait for all of them
        return entries

    async def _read_on(self) -> int:
        """Read the journal to its end."""
        entries = 0
        while True:
            mark = await self._run(self._file.mark)
            read = await self._database.read(_after(mark))
            if read.progress is None:
                await self._run(self._file.clear)
            elif read.mark == mark:
                return entries
            else:
                batch = Batch(mark, read.mark, read.progress.changes)
                entries += await self._run(partial(self._file.take, batch))

    async def candidates(self, wanted: Wanted, after: Candidate | None, limit: int, *, bodies: bool) -> list[Candidate]:
        complete = self._complete
        return await self._run(lambda: self._file.candidates(wanted, after, limit, bodies=bodies, of=complete))

    async def entries(self, after: int, limit: int) -> list[int]:
        return await self._run(lambda: self._file.entries(after, limit))

    async def clear(self) -> None:
        await self._run(self._file.clear)

    async def close(self) -> None:
        await self._run(self._file.close)
        self._thread.shutdown()

    async def _run(self, step: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, step)


@work
def _after(mark: Mark) -> Steps[_Read]:
    """Positions are given in the order of commits, so what was committed later stands behind the mark."""
    rows = yield (
        f"SELECT pos, session_no, kind, first_seq, last_seq FROM journal WHERE pos >= ? ORDER BY pos LIMIT {_NOTES}",
        (mark.pos,),
    )
    noted = [Noted(*row) for row in rows]
    if mark.pos and (not noted or mark.note != _note(noted[0])):
        return _Read(None, mark)
    if mark.pos:
        noted[:1] = [noted[0]._replace(done=mark.seq)] if mark.seq < noted[0].last else []
    if not noted:
        return _Read(Progress([], 0), mark)
    progress = yield from changes_of(noted)
    if progress.rows < len(noted):
        row = noted[progress.rows]
        return _Read(progress, Mark(row.pos, progress.done, _note(row)))
    return _Read(progress, Mark(noted[-1].pos, noted[-1].last, _note(noted[-1])))


def _note(row: Noted) -> str:
    return f"{row.session} {row.kind} {row.first} {row.last}"
