"""Moves between conversations: the way back from any operation, and branches."""

from datetime import datetime
from typing import Any

from palaver.domain.key import SessionKey
from palaver.domain.lifecycle import EndReason
from palaver.domain.session import Principal, Session
from palaver.domain.source import Source
from palaver.ports.store import OperationKind, Undone
from palaver.ports.work import Lock, Steps, work
from palaver.stores import operations
from palaver.stores.records import entries_of, from_json, micros
from palaver.stores.sessions import create, end, get, get_visible, open_by_key, refuse_busy
from palaver.stores.transcript import SEQS, journal

__all__ = ["back", "branch", "redo"]

_HIDING = frozenset({OperationKind.UNDO, OperationKind.COMPACTION})


@work
def back(key: SessionKey, now: datetime, *, principal: Principal) -> Steps[Undone | None]:
    """Take back the last operation of this conversation that still stands, whatever it was."""
    return (yield from _take_back(key, now, principal, *OperationKind))


@work
def redo(key: SessionKey, now: datetime, *, principal: Principal) -> Steps[Undone | None]:
    """Bring back what the last undo took."""
    return (yield from _take_back(key, now, principal, OperationKind.UNDO))


def _take_back(key: SessionKey, now: datetime, principal: Principal, *kinds: OperationKind) -> Steps[Undone | None]:
    yield Lock(key.text)
    found = yield from operations.newest(key, *kinds)
    if found is None:
        return None
    number, session_number, kind, details = found
    yield from get_visible((yield from get(session_number)).id, principal)
    yield from operations.mark_undone(number, now)
    if kind in _HIDING:
        return (yield from _show(OperationKind(kind), number, session_number, from_json(details)))
    return (yield from _return(OperationKind(kind), key, session_number, from_json(details), now))


def _show(kind: OperationKind, operation: int, session_number: int, details: dict[str, Any]) -> Steps[Undone]:
    """Show what the operation hid; the summary that stood for it goes out of sight instead."""
    rows = yield (
        "UPDATE entries SET hidden_by = NULL WHERE hidden_by = ? AND id >= ? AND id < ? RETURNING id, body",
        (
            operation,
            session_number * SEQS,
            (session_number + 1) * SEQS,
        ),
    )
    entries = tuple(entries_of(row[1] for row in sorted(rows)))
    if entries:
        yield from journal("show", session_number, entries[0].seq, entries[-1].seq)
    if "summary" in details:
        seq = details["summary"]
        yield "UPDATE entries SET hidden_by = ? WHERE id = ?", (operation, session_number * SEQS + seq)
        yield from journal("hide", session_number, seq, seq)
    session = yield from get(session_number)
    return Undone(kind=kind, session=session.id, entries=entries)


def _return(
    kind: OperationKind, key: SessionKey, session_number: int, details: dict[str, Any], now: datetime
) -> Steps[Undone | None]:
    """Go back to the session that was left; the one that was moved here goes where it came from."""
    current = yield from open_by_key(key)
    if current is not None:
        yield from end(current.number, EndReason.SWITCHED, now)
    if kind is OperationKind.SWITCH and details["key"] != key.text:
        yield from _send_home(session_number, details, now)
    before = details.get("before")
    if before is None:
        yield "DELETE FROM routes WHERE key = ?", (key.text,)
        return Undone(kind=kind, session=(yield from get(session_number)).id)
    yield "UPDATE sessions SET ended = NULL, end_reason = NULL, key = ? WHERE no = ?", (key.text, before)
    yield "UPDATE routes SET session_no = ? WHERE key = ?", (before, key.text)
    return Undone(kind=kind, session=(yield from get(before)).id)


def _send_home(session_number: int, details: dict[str, Any], now: datetime) -> Steps[None]:
    """Give a session back to the key it was taken from, open as it was unless something else is open there."""
    home: str = details["key"]
    yield Lock(home)
    yield from refuse_busy((yield from get(session_number)))
    yield (
        "UPDATE sessions SET key = ?, ended = ?, end_reason = ? WHERE no = ?",
        (home, micros(now), details.get("reason", EndReason.SWITCHED.value), session_number),
    )
    if details["was_open"]:
        yield (
            "UPDATE sessions SET ended = NULL, end_reason = NULL WHERE no = ?"
            " AND NOT EXISTS (SELECT 1 FROM sessions o WHERE o.key = ? AND o.ended IS NULL)",
            (session_number, home),
        )


@work
def branch(
    key: SessionKey,
    source: Source,
    principal: Principal,
    now: datetime,
    *,
    by: str,
    title: str | None = None,
    from_session: str | None = None,
    at_seq: int | None = None,
) -> Steps[Session]:
    """Go on from here, or from an earlier entry, in a new session that holds a copy of what came before."""
    yield Lock(key.text)
    current = yield from open_by_key(key)
    parent = (yield from get_visible(from_session, principal)) if from_session else current
    if parent is None:
        return (yield from create(key, source, now, title=title))
    if current is not None:
        yield from end(current.number, EndReason.SWITCHED, now)
    child = yield from create(key, source, now, title=title or parent.title, parent=parent.id)
    rows = yield "SELECT next_seq FROM sessions WHERE no = ?", (parent.number,)
    last = rows[0][0] - 1 if at_seq is None else min(at_seq, rows[0][0] - 1)
    yield from _copy(parent.number, child.number, last)
    yield from operations.record(
        OperationKind.BRANCH, key, child.number, now, by, {"before": current and current.number, "key": key.text}
    )
    return (yield from get(child.number))


def _copy(parent: int, child: int, last_seq: int) -> Steps[None]:
    """What is copied is not journalled, so that a search finds it once, where it was said."""
    yield (
        "INSERT INTO entries (id, role, turn_no, observed, body)"
        " SELECT id + ?, role, turn_no, observed, body FROM entries WHERE id >= ? AND id <= ? AND hidden_by IS NULL",
        ((child - parent) * SEQS, parent * SEQS, parent * SEQS + last_seq),
    )
    yield "UPDATE sessions SET next_seq = ?, parent_seq = ? WHERE no = ?", (last_seq + 1, last_seq, child)
