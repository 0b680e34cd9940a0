"""What is known to be missing: rows that a salvage left behind, and what a failover lost."""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import NamedTuple

from palaver.db.transaction import Statements, transaction
from palaver.store.records import details_of, micros, placeholders


class LostRow(NamedTuple):
    number: int
    table: str
    row: str
    reason: str


@transaction
def record_loss(
    table: str,
    row: str,
    reason: str,
    now: datetime,
    *,
    content: str = "{}",
    session: int | None = None,
    identity: str | None = None,
) -> Statements[None]:
    """Record a row that is not there, so that it is named once and then known."""
    yield (
        "INSERT INTO set_aside (at, from_table, row_name, reason, content, session_no, identity)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (micros(now), table, row, reason, content, session, identity),
    )


@transaction
def list_losses(after: int = 0) -> Statements[list[LostRow]]:
    """Return what nobody dismissed yet."""
    rows = yield (
        "SELECT no, from_table, row_name, reason FROM set_aside WHERE dismissed IS NULL AND no > ? ORDER BY no",
        (after,),
    )
    return [LostRow(*row) for row in rows]


@transaction
def known_losses(table: str) -> Statements[set[str]]:
    """Return the names of the rows of a table that are known to be missing."""
    rows = yield "SELECT row_name FROM set_aside WHERE from_table = ?", (table,)
    return {row[0] for row in rows}


@transaction
def dismiss_losses(now: datetime) -> Statements[int]:
    """Warn no longer of what is missing now; return how many rows that are."""
    rows = yield "UPDATE set_aside SET dismissed = ? WHERE dismissed IS NULL RETURNING no", (micros(now),)
    return len(rows)


@transaction
def forget_losses(
    sessions: Collection[int], identities: Collection[str], names_them: Callable[[str], bool]
) -> Statements[int]:
    """Delete the records about these sessions and identities, and those that name a person."""
    rows = yield "SELECT no, row_name, content, session_no, identity FROM set_aside", ()
    theirs = [
        number
        for number, name, content, session, identity in rows
        if session in sessions or identity in identities or names_them(f"{name} {_words(content)}")
    ]
    yield f"DELETE FROM set_aside WHERE no IN ({placeholders(theirs)})", tuple(theirs)
    return len(theirs)


def _words(content: str) -> str:
    """Return the content as text, with ids of chats in quotes."""
    return " ".join(f'"{value}"' if "chat" in name else str(value) for name, value in details_of(content).items())
