"""Operations in the store: every move that can be taken back, and the taking back."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.key import SessionKey
from palaver.model.turn import Outbound
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.outbox import enqueue
from palaver.store.records import from_json, json_text, micros
from palaver.store.results import OperationKind

__all__ = [
    "HIDING",
    "Operation",
    "amend",
    "get",
    "give_up",
    "mark_undone",
    "newest",
    "record",
    "tell",
]

_NO_DETAILS: Mapping[str, object] = {}
HIDING = frozenset({OperationKind.UNDO, OperationKind.COMPACTION, OperationKind.REVISION})
"""What these hide goes with the session, wherever it is carried; every other operation belongs to the key."""


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
    # Never before what it follows, though the clock be set back: the way back goes by these times.
    last = yield "SELECT max(at) FROM operations WHERE key = ? OR session_no = ?", (key.text, session_number)
    at = max(micros(now), last[0][0] or 0)
    rows = yield (
        "INSERT INTO operations (key, session_no, kind, at, by_whom, details, from_session, from_key)"
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
def newest(key: SessionKey, session_number: int | None, *kinds: OperationKind) -> Statements[Operation | None]:
    """The last operation that still stands, of the key or of the session it leads to."""
    hidings, moves = ([kind.value for kind in kinds if (kind in HIDING) == hides] for hides in (True, False))
    rows = yield (
        f"SELECT {_COLUMNS} FROM operations WHERE undone_at IS NULL"
        f" AND ((key = ? AND kind IN ({_marks(moves)})) OR (session_no = ? AND kind IN ({_marks(hidings)})))"
        " ORDER BY at DESC, no DESC LIMIT 1",
        (key.text, *moves, session_number, *hidings),
    )
    return _operation(rows[0]) if rows else None


@transaction
def get(number: int) -> Statements[Operation | None]:
    """An operation that still stands."""
    rows = yield f"SELECT {_COLUMNS} FROM operations WHERE no = ? AND undone_at IS NULL", (number,)
    return _operation(rows[0]) if rows else None


_COLUMNS = "no, session_no, kind, details, from_session, from_key, to_key"


def _operation(row: Row) -> Operation:
    number, session, kind, details, *course = row
    return Operation(number, session, OperationKind(kind), from_json(details), *course)


def _marks(kinds: Sequence[str]) -> str:
    return ", ".join("?" * len(kinds)) or "NULL"


@transaction
def give_up(key: SessionKey, now: datetime) -> Statements[None]:
    """Nobody goes back to what was done in a conversation: whose it is has changed."""
    kept = [kind.value for kind in HIDING]
    yield (
        f"UPDATE operations SET undone_at = ? WHERE key = ? AND undone_at IS NULL AND kind NOT IN ({_marks(kept)})",
        (micros(now), key.text, *kept),
    )


@transaction
def mark_undone(number: int, now: datetime) -> Statements[None]:
    yield "UPDATE operations SET undone_at = ? WHERE no = ?", (micros(now), number)


@transaction
def amend(operation: Operation, more: Mapping[str, object], *, to_key: str) -> Statements[None]:
    """Something has become known that taking it back needs."""
    details = json_text({**operation.details, **more})
    yield "UPDATE operations SET details = ?, to_key = ? WHERE no = ?", (details, to_key, operation.number)


@transaction
def tell(number: int, now: datetime) -> Statements[None]:
    """An operation was taken back elsewhere: what it says about that is owed to where it was done."""
    rows = yield "SELECT details FROM operations WHERE no = ?", (number,)
    if rows and (said := from_json(rows[0][0]).get("tell")):
        yield from enqueue(msgspec.convert(said, Outbound), SendCause(CauseKind.UNDONE, number), now)
