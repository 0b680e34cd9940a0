"""Statements as PostgreSQL understands them, and which errors are not the fault of a statement."""

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import count
from typing import NamedTuple

import asyncpg

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))"

# The server rolled the transaction back in favour of another: run it again.
ROLLED_BACK = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.IdleInTransactionSessionTimeoutError)
# The connection is gone or the server is not ready.
LOST = (
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


COLUMN_TYPES = (
    "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
    " WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped"
)


class PlainInsert(NamedTuple):
    """An INSERT of one row of given values."""

    text: str
    """Up to the values."""
    table: str
    columns: tuple[str, ...]

    def of_rows(self, types: Mapping[str, str]) -> str:
        """Return the same for any number of rows, which are given column by column."""
        columns = ", ".join(f"${number}::{types[name]}[]" for number, name in enumerate(self.columns, 1))
        return f"{self.text} SELECT * FROM unnest({columns})"


@lru_cache(maxsize=512)
def plain_insert(sql: str) -> PlainInsert | None:
    found = re.fullmatch(r"(INSERT INTO (\w+) \(([\w, ]+)\)) VALUES \(\?(?:, \?)*\)", sql)
    return PlainInsert(found[1], found[2], tuple(found[3].split(", "))) if found else None
