"""Which time a limit leads to, and where a time is in a table whose numbers grow with it."""

from datetime import datetime
from typing import NamedTuple

from palaver.db.transaction import Statements, transaction
from palaver.model.retention import RetentionLimit, latest_cutoff
from palaver.store.records import instant, micros, placeholders

_PAGE = 200
_END = 1 << 62


class Kept(NamedTuple):
    """The rows of a class, as SQL."""

    rows: str
    """`FROM` these, with a `WHERE`."""
    order: tuple[str, ...]
    """Columns by which the newest has the highest values."""
    time: str
    size: str
    """In bytes."""

    @property
    def newest_first(self) -> str:
        return "ORDER BY " + ", ".join(f"{column} DESC" for column in self.order)


@transaction
def find_cutoff(kept: Kept, limit: RetentionLimit, now: datetime) -> Statements[datetime | None]:
    """Return the time before which rows go; None if none does."""
    by_count = by_size = None
    if limit.count is not None:
        by_count = (yield from _nth_newest(kept, limit.count)) if limit.count else now
    if limit.size is not None:
        by_size = yield from _newest_within(kept, limit.size)
    return latest_cutoff(limit, now, by_count, by_size)


def _nth_newest(kept: Kept, count: int) -> Statements[datetime | None]:
    rows = yield f"SELECT {kept.time} FROM {kept.rows} {kept.newest_first} LIMIT 1 OFFSET ?", (count - 1,)
    return instant(rows[0][0]) if rows else None


def _newest_within(kept: Kept, size: int) -> Statements[datetime | None]:
    """Return when the oldest row was used that still fits; None if all fit."""
    last, used, oldest = [_END] * len(kept.order), 0, _END
    page = (
        f"SELECT {kept.time}, {kept.size}, {', '.join(kept.order)} FROM {kept.rows}"
        f" AND ({', '.join(kept.order)}) < ({placeholders(last)}) {kept.newest_first} LIMIT ?"
    )
    while rows := (yield page, (*last, _PAGE)):
        for at, length, *place in rows:
            used += int(length)
            if used > size:
                # One that is as old as the last that fits goes with it only if that goes.
                return instant(min(oldest, at + 1))
            last, oldest = place, at
    return None


@transaction
def first_since(table: str, number: str, time: str, since: datetime, *, sign: int = 1) -> Statements[int]:
    """Return the first number whose row is not older than `since`, or the one after the last.

    With the sign -1 the numbers count down from -1; the result has that sign, too.
    """
    beyond, up, down = (">", "ASC", "DESC") if sign > 0 else ("<", "DESC", "ASC")
    rows = yield f"SELECT {number} FROM {table} WHERE {number} {beyond} 0 ORDER BY {number} {down} LIMIT 1", ()
    low, high = 1, sign * rows[0][0] + 1 if rows else 1
    while low < high:
        middle = (low + high) // 2
        found = yield (
            f"SELECT {number}, {time} FROM {table} WHERE {number} {beyond}= ? ORDER BY {number} {up} LIMIT 1",
            (sign * middle,),
        )
        if not found or found[0][1] >= micros(since):
            high = middle
        else:
            low = sign * found[0][0] + 1
    return sign * low
