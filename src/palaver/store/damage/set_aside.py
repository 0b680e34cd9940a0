"""Rows that a repair set aside: taken out of their table, kept as they were, read by nobody."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from palaver.db.transaction import Statements, Value, transaction
from palaver.store.records import REPLIES, SEQS, details_of, json_text, micros, placeholders

ROW_NAMES = {
    **dict.fromkeys(("entries", "outbox", "people"), "id"),
    **dict.fromkeys(("routes", "ready_queue"), "key"),
    **dict.fromkeys(
        (
            *("inbox", "turns", "sessions", "operations", "schedules", "processes"),
            *("grants", "links", "access_log", "erasures", "api_tokens"),
        ),
        "no",
    ),
    "identities": "identity",
    "attached_chats": "place",
}
"""The column that names a row. In other tables the first two columns do."""


class SetAside(NamedTuple):
    number: int
    table: str
    row: str
    reason: str


@transaction
def set_aside(table: str, where: str, values: tuple[Value, ...], reason: str, now: datetime) -> Statements[int]:
    """Take rows out of their table; return how many there were."""
    count = yield from keep_copies(table, where, values, reason, now)
    yield f"DELETE FROM {table} WHERE {where}", values
    return count


@transaction
def keep_copies(table: str, where: str, values: tuple[Value, ...], reason: str, now: datetime) -> Statements[int]:
    """Keep rows as they are before a repair changes them; return how many there are."""
    names = yield from _columns_of(table)
    rows = yield f"SELECT {', '.join(names)} FROM {table} WHERE {where}", values
    for row in rows:
        columns = dict(zip(names, row, strict=True))
        yield from record_loss(
            table,
            _name_of(table, columns),
            reason,
            now,
            content=json_text({name: _storable(value) for name, value in columns.items()}),
            session=(yield from _session_of(table, columns)),
            identity=columns.get("identity"),
        )
    return len(rows)


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
    """Record what became of a row, also of one of which nothing is left."""
    yield (
        "INSERT INTO set_aside (at, from_table, row_name, reason, content, session_no, identity)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (micros(now), table, row, reason, content, session, identity),
    )


def _columns_of(table: str) -> Statements[list[str]]:
    rows = yield (
        "SELECT /*pg column_name::text FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = ? ORDER BY ordinal_position --*/ name FROM pragma_table_info(?)",
        (table,),
    )
    return [row[0] for row in rows]


def _name_of(table: str, columns: Mapping[str, Any]) -> str:
    named = ROW_NAMES.get(table)
    return str(columns[named]) if named else " ".join(str(value) for value in [*columns.values()][:2])


def _storable(value: object) -> object:
    """Bytes are kept as hex digits."""
    return {"hex": value.hex()} if isinstance(value, bytes) else value if isinstance(value, int | None) else str(value)


def _session_of(table: str, columns: Mapping[str, Any]) -> Statements[int | None]:
    """Return the session that a row belongs to, as far as its columns say."""
    if table == "entries":
        return columns["id"] // SEQS
    if table == "sessions":
        return columns["no"]
    if table == "attachments" and columns["kind"] == "entry":
        return columns["holder"] // SEQS
    turn = columns["id"] // REPLIES if table == "outbox" and columns["id"] > 0 else columns.get("turn_no")
    if turn is None:
        return columns.get("session_no")
    rows = yield "SELECT session_no FROM turns WHERE no = ?", (turn,)
    return rows[0][0] if rows else None


@transaction
def list_set_aside() -> Statements[list[SetAside]]:
    """Return what nobody dismissed yet."""
    rows = yield "SELECT no, from_table, row_name, reason FROM set_aside WHERE dismissed IS NULL ORDER BY no", ()
    return [SetAside(*row) for row in rows]


@transaction
def dismiss_set_aside(now: datetime) -> Statements[int]:
    """Warn no longer of what is set aside now; return how many rows that are. They stay."""
    rows = yield "UPDATE set_aside SET dismissed = ? WHERE dismissed IS NULL RETURNING no", (micros(now),)
    return len(rows)


@transaction
def forget_set_aside(
    sessions: Collection[int], identities: Collection[str], names_them: Callable[[str], bool]
) -> Statements[int]:
    """Delete what was set aside of these sessions and identities, and every row whose content names a person."""
    rows = yield "SELECT no, row_name, content, session_no, identity FROM set_aside", ()
    theirs = [
        number
        for number, name, content, session, identity in rows
        if session in sessions or identity in identities or names_them(f"{name} {_words(content)}")
    ]
    yield f"DELETE FROM set_aside WHERE no IN ({placeholders(theirs)})", tuple(theirs)
    return len(theirs)


def _words(content: str) -> str:
    """Return the content as text, with its bytes as far as they are text, and ids of chats in quotes."""
    columns = details_of(content)
    return " ".join(f'"{value}"' if "chat" in name else _plain(value) for name, value in columns.items())


def _plain(value: object) -> str:
    match value:
        case {"hex": str(digits)}:
            return bytes.fromhex(digits).decode(errors="replace")
        case _:
            return str(value)
