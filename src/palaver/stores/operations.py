"""Operations in the store: every move that can be taken back, and the taking back."""

from collections.abc import Mapping
from datetime import datetime

from palaver.domain.key import SessionKey
from palaver.ports.store import OperationKind
from palaver.ports.work import Steps, work
from palaver.stores.records import json_text, micros

__all__ = ["mark_undone", "newest", "record"]


@work
def record(
    kind: OperationKind, key: SessionKey, session_number: int, now: datetime, by: str, details: Mapping[str, object]
) -> Steps[int]:
    rows = yield (
        "INSERT INTO operations (key, session_no, kind, at, by_whom, details) VALUES (?, ?, ?, ?, ?, ?) RETURNING no",
        (key.text, session_number, kind.value, micros(now), by, json_text(dict(details))),
    )
    return rows[0][0]


@work
def newest(key: SessionKey, *kinds: OperationKind) -> Steps[tuple[int, int, str, str] | None]:
    """Number, session, kind and details of the last operation that still stands."""
    marks = ", ".join("?" * len(kinds))
    rows = yield (
        "SELECT no, session_no, kind, details FROM operations"
        f" WHERE key = ? AND undone_at IS NULL AND kind IN ({marks}) ORDER BY at DESC, no DESC LIMIT 1",
        (key.text, *(kind.value for kind in kinds)),
    )
    return (rows[0][0], rows[0][1], rows[0][2], rows[0][3]) if rows else None


@work
def mark_undone(number: int, now: datetime) -> Steps[None]:
    yield "UPDATE operations SET undone_at = ? WHERE no = ?", (micros(now), number)
