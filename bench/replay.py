"""What a gateway asks of its SQLite store, recorded while it works, and the same on a bare connection."""

import sqlite3
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from bench.raw import Script
from palaver.db.sqlite import connect
from palaver.db.transaction import Database, Lock, Notify, Row, Statements, Transaction, transaction

__all__ = ["Recording", "recording", "replay_seconds"]

T = TypeVar("T")
_TOGETHER = 64
"""Transactions that share a commit when they are replayed, as they do on the writer's thread under load."""


class Recording:
    """Scripts in the order in which they ended; a transaction that failed is not among them."""

    def __init__(self) -> None:
        self.transactions: list[Script] = []
        self.reads: list[Script] = []


@transaction
def _recorded(work: Transaction[T], ended: list[Script]) -> Statements[T]:
    script, steps = Script(), iter(work)
    rows = list[Row]()
    try:
        statement = next(steps)
        while True:
            if not isinstance(statement, Lock | Notify):
                script.append(statement)
            rows = yield statement
            statement = steps.send(rows)
    except StopIteration as finished:
        ended.append(script)
        return finished.value


@contextmanager
def recording(database: Database) -> Generator[Recording]:
    found = Recording()
    changed: Any = database

    def record(run: Callable[..., Awaitable[Any]], ended: list[Script]) -> Callable[..., Awaitable[Any]]:
        def run_recorded(work: Transaction[Any]) -> Awaitable[Any]:
            return run(_recorded(work, ended))

        return run_recorded

    changed.transact = record(database.transact, found.transactions)
    changed.read = record(database.read, found.reads)
    try:
        yield found
    finally:
        del changed.transact, changed.read


def replay_seconds(path: Path, found: Recording) -> float:
    """Processor time of the same statements with the same values, on the database as it was before them."""
    with closing(connect(path)) as db:
        start = time.process_time()
        for first in range(0, len(found.transactions), _TOGETHER):
            _replay(db, found.transactions[first : first + _TOGETHER])
        _replay(db, found.reads)
        return time.process_time() - start


def _replay(db: sqlite3.Connection, scripts: list[Script]) -> None:
    db.execute("BEGIN")
    for script in scripts:
        for sql, values in script:
            if isinstance(values, list):
                db.executemany(sql, values)
            else:
                db.execute(sql, values).fetchall()
    db.execute("COMMIT")
