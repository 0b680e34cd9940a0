"""Bare sqlite3: one connection in this thread, and a bare batching writer thread."""

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

from bench.raw import Call, Script
from palaver.db.sqlite import connect
from palaver.db.transaction import Lock, Notify, Row, Statement, Transaction

__all__ = ["BareWriter", "RawSqlite"]

_LARGE = 4 * 1024 * 1024


class RawSqlite:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = connect(path)

    @classmethod
    async def open(cls, url: str) -> Self:
        return cls(Path(url))

    async def record(self, work: Transaction[Any]) -> Script:
        script: Script = []
        steps = iter(work)
        self._db.execute("BEGIN")
        try:
            statement: Statement = next(steps)
            while True:
                if isinstance(statement, Lock | Notify):
                    statement = steps.send([])
                else:
                    script.append(statement)
                    statement = steps.send(_run(self._db, statement))
        except StopIteration:
            return script
        finally:
            self._db.execute("ROLLBACK")

    async def replay(self, script: Script) -> list[Row]:
        return _replay(self._db, script)

    async def transact(self, script: Script) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        _replay(self._db, script)
        self._db.execute("COMMIT")

    def between(self) -> None:
        _checkpoint_when_large(self._path)

    async def close(self) -> None:
        self._db.close()


def _run(db: sqlite3.Connection, call: Call) -> list[Row]:
    sql, values = call
    if isinstance(values, list):
        db.executemany(sql, values)
        return []
    return db.execute(sql, values).fetchall()


def _replay(db: sqlite3.Connection, script: Script) -> list[Row]:
    rows: list[Row] = []
    for call in script:
        rows = _run(db, call)
    return rows


def _checkpoint_when_large(path: Path) -> None:
    """What the store does beside its writer."""
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size > _LARGE:
        db = connect(path)
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        db.close()


_Owed = tuple[Script, "asyncio.Future[None]"]


class BareWriter:
    """A queue and one thread that writes everything queued in one commit, then wakes the loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = connect(path)
        self._queue: SimpleQueue[_Owed | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    @classmethod
    async def open(cls, url: str) -> Self:
        return cls(Path(url))

    async def transact(self, script: Script) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put((script, future))
        await future

    def between(self) -> None:
        _checkpoint_when_large(self._path)

    async def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._db.close()

    def _write(self) -> None:
        while batch := self._take():
            self._db.execute("BEGIN IMMEDIATE")
            for script, _ in batch:
                _replay(self._db, script)
            self._db.execute("COMMIT")
            futures = [future for _, future in batch]
            futures[0].get_loop().call_soon_threadsafe(_tell, futures)

    def _take(self) -> list[_Owed]:
        batch: list[_Owed] = []
        owed = self._queue.get()
        try:
            while owed:
                batch.append(owed)
                owed = self._queue.get_nowait()
        except Empty:
            pass
        return batch


def _tell(futures: Sequence["asyncio.Future[None]"]) -> None:
    for future in futures:
        future.set_result(None)
