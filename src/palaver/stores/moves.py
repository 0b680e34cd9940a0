"""Moves between conversations: the way back from any operation, and branches."""

from datetime import datetime
from typing import Any

from palaver.domain.key import SessionKey
from palaver.domain.lifecycle import EndReason
from palaver.domain.session import Principal, Session
from palaver.domain.source import Source
from palaver.ports.store import OperationKind, Undone
from palaver.ports.work import Lock, Steps, Value, work
from palaver.stores import operations
from palaver.stores.records import entries_of, from_json, micros, source_text
from palaver.stores.sessions import create, end, get, get_visible, open_by_key, refuse_busy, reopen
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
    """Go back to the session that was left; the one that was brought here goes where it came from."""
    left = yield from _left(details.get("before"), key)
    current = yield from open_by_key(key)
    if current is not None:
        yield from end(current.number, EndReason.SWITCHED, now)
    if kind is OperationKind.SWITCH and details["key"] != key.text:
        yield from _send_home(session_number, key, details, now)
    if left is None:
        # Nothing was open here: what was taken back must not come again with the next message.
        yield "DELETE FROM routes WHERE key = ?", (key.text,)
        return Undone(kind=kind, session=(yield from get(session_number)).id)
    yield from reopen(left.number, key, now)
    yield from _lead(key, left)
    return Undone(kind=kind, session=left.id)


def _left(number: int | None, key: SessionKey) -> Steps[Session | None]:
    """The session that was left; if it is somewhere else now, it must not be in the middle of a turn there."""
    if number is None:
        return None
    left = yield from get(number)
    if left.key != key:
        yield Lock(left.key.text)
        yield from refuse_busy((yield from get(number)))
    return left


def _send_home(session_number: int, key: SessionKey, details: dict[str, Any], now: datetime) -> Steps[None]:
    """Give a session back to the key it was taken from, open as it was unless something else is open there."""
    moved = yield from get(session_number)
    if moved.key != key:
        return  # it has moved on since
    home = SessionKey.parse(details["key"])
    yield Lock(home.text)
    yield from refuse_busy(moved)
    yield (
        "UPDATE sessions SET key = ?, ended = ?, end_reason = ? WHERE no = ?",
        (home.text, micros(now), details.get("reason", EndReason.SWITCHED.value), session_number),
    )
    if details["was_open"] and (yield from open_by_key(home)) is None:
        yield from reopen(session_number, home, now)
        yield from _lead(home, moved)


def _lead(key: SessionKey, session: Session) -> Steps[None]:
    """The route of the key leads to the session; where answers go stays as it was."""
    yield (
        "INSERT INTO routes (key, session_no, address) VALUES (?, ?, ?)"
        " ON CONFLICT (key) DO UPDATE SET session_no = excluded.session_no",
        (key.text, session.number, source_text(session.origin)),
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
    yield from _copy(parent.number, child.number, at_seq)
    yield from operations.record(
        OperationKind.BRANCH, key, child.number, now, by, {"before": current and current.number, "key": key.text}
    )
    return (yield from get(child.number))


def _copy(parent: int, child: int, at_seq: int | None) -> Steps[None]:
    """What is copied is not journalled, so that a search finds it once, where it was said."""
    rows = yield (
        "SELECT id, role, turn_no, observed, body FROM entries WHERE id >= ? AND id < ? AND hidden_by IS NULL"
        " ORDER BY id",
        (parent * SEQS, (parent + 1) * SEQS),
    )
    entries = entries_of(row[4] for row in rows)
    kept = [index for index, entry in enumerate(entries) if at_seq is None or entry.position <= at_seq]
    copies: list[tuple[Value, ...]] = [(rows[index][0] + (child - parent) * SEQS, *rows[index][1:]) for index in kept]
    last = max((entries[index].seq for index in kept), default=0)
    yield "INSERT INTO entries (id, role, turn_no, observed, body) VALUES (?, ?, ?, ?, ?)", copies
    yield "UPDATE sessions SET next_seq = ?, parent_seq = ? WHERE no = ?", (last + 1, last, child)
