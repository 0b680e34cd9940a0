"""The log of operations that can be undone: reset, switch, undo, compaction, branch, attach, handoff, revision."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.key import SessionKey
from palaver.model.turn import Outbound
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.outbox import enqueue
from palaver.store.records import details_of, from_json, json_text, micros, placeholders, read_one
from palaver.store.results import OperationKind

_NO_DETAILS: Mapping[str, object] = {}
HIDING = frozenset({OperationKind.UNDO, OperationKind.COMPACTION, OperationKind.REVISION})
"""Operations that hide entries belong to the session, wherever it moves; all others belong to the key."""


@transaction
def record(
    kind: OperationKind,
    key: SessionKey,
    session_number: int,
    now: datetime,
    by: str,
    details: Mapping[str, object] = _NO_DETAILS,
    *,
    from_session: str | None = None,
    from_key: str | None = None,
) -> Statements[int]:
    # Never before an earlier operation, even if the clock was set back: `latest` orders by time.
    last = yield "SELECT max(at) FROM operations WHERE key = ? OR session_no = ?", (key.text, session_number)
    at = max(micros(now), last[0][0] or 0)
    rows = yield (
        "INSERT INTO operations (key, session_no, kind, at, actor, details, from_session, from_key)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING no",
        (key.text, session_number, kind.value, at, by, json_text(dict(details)), from_session, from_key),
    )
    return rows[0][0]


class Operation(NamedTuple):
    number: int
    session_number: int
    kind: OperationKind
    details: dict[str, Any]
    from_session: str | None
    """The session that was left; its public id."""
    from_key: str | None
    """The key that the session had before it was brought here."""
    to_key: str | None
    """The key that a session got elsewhere."""


@transaction
def latest(key: SessionKey, session_number: int | None, *kinds: OperationKind) -> Statements[Operation | None]:
    """Return the last operation of the key or the session that was not undone."""
    hidings, moves = ([kind.value for kind in kinds if (kind in HIDING) == hides] for hides in (True, False))
    rows = yield (
        f"SELECT {OPERATION_COLUMNS} FROM operations WHERE undone_at IS NULL"
        f" AND ((key = ? AND kind IN ({placeholders(moves)}))"
        f" OR (session_no = ? AND kind IN ({placeholders(hidings)}))) ORDER BY at DESC, no DESC LIMIT 1",
        (key.text, *moves, session_number, *hidings),
    )
    return read_one(operation_of, rows, "operation")


@transaction
def get(number: int) -> Statements[Operation | None]:
    """Return an operation that was not undone."""
    rows = yield f"SELECT {OPERATION_COLUMNS} FROM operations WHERE no = ? AND undone_at IS NULL", (number,)
    return read_one(operation_of, rows, "operation")


@transaction
def reset_that_began(key: SessionKey, session_number: int) -> Statements[Operation | None]:
    """Return the reset of a conversation that began this session, unless it was undone."""
    rows = yield (
        f"SELECT {OPERATION_COLUMNS} FROM operations"
        " WHERE key = ? AND session_no = ? AND kind = 'reset' AND undone_at IS NULL",
        (key.text, session_number),
    )
    return read_one(operation_of, rows, "operation")


OPERATION_COLUMNS = "no, session_no, kind, details, from_session, from_key, to_key"


def operation_of(row: Row) -> Operation:
    number, session, kind, details, *course = row
    return Operation(number, session, OperationKind(kind), from_json(details), *course)


@transaction
def mark_undone(number: int, now: datetime) -> Statements[None]:
    yield "UPDATE operations SET undone_at = ? WHERE no = ?", (micros(now), number)


@transaction
def add_details(operation: Operation, more: Mapping[str, object], *, to_key: str) -> Statements[None]:
    """Add what is needed to undo an operation and was not known when it was recorded."""
    details = json_text({**operation.details, **more})
    yield "UPDATE operations SET details = ?, to_key = ? WHERE no = ?", (details, to_key, operation.number)


@transaction
def notify_origin(number: int, now: datetime) -> Statements[None]:
    """Send the notice that an operation keeps for when it is undone elsewhere."""
    rows = yield "SELECT details FROM operations WHERE no = ?", (number,)
    if rows and (notice := details_of(rows[0][0]).get("tell")):
        yield from enqueue(msgspec.convert(notice, Outbound), SendCause(CauseKind.UNDONE, number), now)
