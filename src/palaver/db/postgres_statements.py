"""Statements as PostgreSQL understands them, and which errors are not the fault of a statement."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import NamedTuple

import asyncpg

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))"

# The server rolled the transaction back in favour of another: run it again.
ROLLED_BACK = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.LockNotAvailableError,
)


class StandbyAnswered(Exception):
    """The server takes no writes now: it is a standby, or was made one."""


# The connection is gone or the server is not ready.
LOST = (
    StandbyAnswered,
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
)
# SQLSTATE classes that are not the fault of a statement: read-only server, timeout, full disk, shutdown, server error.
_TRANSIENT = ("25006", "25P04", "53", "57", "58")


def is_transient(error: Exception) -> bool:
    return str(getattr(error, "sqlstate", "")).startswith(_TRANSIENT)


def is_of_server(error: Exception) -> bool:
    """Tell whether any other statement would have failed, too: not if only this one took too long."""
    if isinstance(error, asyncpg.QueryCanceledError):
        return False
    return isinstance(error, asyncpg.IdleInTransactionSessionTimeoutError) or is_transient(error)


@lru_cache(maxsize=512)
def to_postgres(sql: str) -> str:
    """Number the values of a statement, and uncomment what only PostgreSQL understands (`/*pg … */`)."""
    numbers = count(1)
    numbered = re.sub(r"\?", lambda _: f"${next(numbers)}", sql)
    return re.sub(r"/\*pg (.*?)\*/", r"\1", numbered)


@lru_cache(maxsize=512)
def with_caller(sql: str) -> str | None:
    """Return a statement whose rows end with its last value, the number of its caller; None if it returns no rows."""
    text = to_postgres(sql)
    caller = f"${1 + max(map(int, re.findall(r'[$]([0-9]+)', text)), default=0)}::bigint"
    if re.match(r"\s*(SELECT|WITH)\b", text):
        return f"SELECT found.*, {caller} FROM ({text}) AS found"
    return f"{text}, {caller}" if re.search(r"\bRETURNING\b", text) else None


class OfRows(NamedTuple):
    """A statement that does for many rows of values what another one does for each."""

    beginning: str
    key: str = ""
    """The column that says which row to change. Its value is the last one."""

    def fits(self, rows: Sequence[Sequence[object]]) -> bool:
        """Return whether there are several, and no two change the same row: only one of those would."""
        return len(rows) > 1 and not (self.key and len({row[-1] for row in rows}) < len(rows))

    def sql(self, types: Sequence[str]) -> str:
        """Return the statement. It takes one array for each of the values, which have these types."""
        arrays = [f"${number}::{each}[]" for number, each in enumerate(types, 1)]
        names = ", ".join(f"v{number}" for number in range(1, len(types) + 1))
        # With the array, the index of the column is used even by a plan that was made while the table was empty.
        where = f" WHERE {self.key} = ANY({arrays[-1]}) AND {self.key} = given.v{len(types)}" if self.key else ""
        return f"{self.beginning} FROM unnest({', '.join(arrays)}) AS given ({names}){where}"


@lru_cache(maxsize=512)
def of_rows(sql: str) -> OfRows | None:
    """Return the statement for many rows of values; None if it would not do the same, or if that is hard to tell."""
    text = re.sub(r"\$(\d+)", r"given.v\1", to_postgres(sql))
    if re.search(r"\b(SELECT|ON CONFLICT|RETURNING)\b", text):  # a question would not see the rows before
        return None
    if found := re.fullmatch(r"(INSERT INTO \w+ \([\w, ]+\)) VALUES \((.*)\)", text, re.DOTALL):
        return OfRows(f"{found[1]} SELECT {found[2]}")
    # If it changed its key, the next row could mean another row of the table.
    found = re.fullmatch(r"(UPDATE \w+ SET (?:(?!\bFROM\b).)*) WHERE (\w+) = given\.v\d+", text, re.DOTALL)
    return OfRows(found[1], found[2]) if found and not re.search(rf"\b{found[2]} =", found[1]) else None
