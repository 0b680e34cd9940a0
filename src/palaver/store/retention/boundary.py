"""Where a time is in a table whose numbers grow with it."""

from datetime import datetime

from palaver.db.transaction import Statements, transaction
from palaver.store.records import micros


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
