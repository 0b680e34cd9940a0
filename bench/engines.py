"""The two engines as the measurements see them: stores to open, and the bare driver beside them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Limit, ratio_at_least
from bench.raw import Raw, Transactor
from bench.raw_postgres import BarePool, RawPostgres
from bench.raw_sqlite import BareWriter, RawSqlite
from bench.workshop import Workshop

__all__ = ["Engine", "postgres", "sqlite"]


@dataclass(frozen=True, kw_only=True)
class Engine:
    prefix: str
    """Its figures begin with it."""
    driver: str
    crowd_name: str
    copy: Callable[[Path], str]
    """The URL of a copy of a SQLite store's rows that nobody else writes to."""
    shared: Callable[[Path], str]
    """The URL of one that is only read."""
    raw: Callable[[str], Awaitable[Raw]]
    crowd: Callable[[str], Awaitable[Transactor]]
    """Serves many tasks at once."""
    at_once: Limit
    """How many turns from many tasks at once, beside that."""


def sqlite(workshop: Workshop) -> Engine:
    return Engine(
        prefix="store",
        driver="sqlite3",
        crowd_name="a bare batching writer",
        copy=lambda path: str(workshop.copy(path)),
        shared=str,
        raw=RawSqlite.open,
        crowd=BareWriter.open,
        at_once=ratio_at_least(0.6, goal=0.8),
    )


def postgres(workshop: Workshop) -> Engine:
    return Engine(
        prefix="pg",
        driver="asyncpg",
        crowd_name="a bare asyncpg pool",
        copy=workshop.copy_on_postgres,
        shared=workshop.on_postgres,
        raw=RawPostgres.open,
        crowd=BarePool.open,
        at_once=ratio_at_least(3, goal=5),
    )
