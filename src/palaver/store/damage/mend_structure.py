"""Mend sessions, turns, operations and routes that cannot be read, from the rows that belong to them."""

from collections.abc import Callable, Mapping
from datetime import datetime

from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.key import SessionKey
from palaver.model.session import EndReason, ModelOverride
from palaver.model.source import DM, MAIN, Source
from palaver.model.turn import TurnState
from palaver.store.damage.rows import BadRow
from palaver.store.damage.set_aside import keep_copies, set_aside
from palaver.store.records import (
    SELECT_RECEIVED,
    SEQS,
    UNREADABLE,
    entries_of,
    entry_span,
    from_json,
    instant,
    json_text,
    key_in,
    micros,
    readable,
    received_of,
    source_in,
    source_of,
    source_text,
)
from palaver.store.results import OperationKind


def _kept(value: Value, read: Callable[..., object], otherwise: Value) -> Value:
    """Return a value if it can be read."""
    try:
        read(value)
    except UNREADABLE:
        return otherwise
    return value


def _object(text: str) -> dict[str, object]:
    return dict(from_json(text))


def _override(text: str) -> ModelOverride:
    return ModelOverride(**from_json(text))


def _update(table: str, column: str, row: Value, values: Mapping[str, Value]) -> Statements[None]:
    changes = ", ".join(f"{name} = ?" for name in values)
    yield f"UPDATE {table} SET {changes} WHERE {column} = ?", (*values.values(), row)


def moments(names: str, row: Row, now: datetime) -> dict[str, Value]:
    """Return times that can be read; a time that cannot is now."""
    return {
        name: None if at is None else _kept(at, instant, micros(now))
        for name, at in zip(names.split(", "), row, strict=True)
    }


# Sessions

_TIMES = "started, ended, last_human, last_active"


@transaction
def mend_session(bad: BadRow, now: datetime) -> Statements[None]:
    number, id_ = bad.row[:2]
    yield from keep_copies("sessions", "no = ?", (number,), bad.problem.value, now)
    rows = yield f"SELECT end_reason, override, finalised_by, {_TIMES} FROM sessions WHERE no = ?", (number,)
    reason, override, hooks, *times = rows[0]
    key = (yield from key_of_session(number)) or SessionKey(MAIN, chat=id_)
    origin = (yield from origin_of_session(number)) or origin_of_key(key)
    yield from _update(
        "sessions",
        "no",
        number,
        {
            "key": key.text,
            "profile": key.profile,
            "origin": source_text(origin),
            "platform": origin.platform,
            "end_reason": reason and _kept(reason, EndReason, EndReason.SWITCHED.value),
            "override": override and _kept(override, _override, None),
            "finalised_by": hooks and _kept(hooks, from_json, None),
            "next_seq": (yield from _next_seq(number)),
            **moments(_TIMES, tuple(times), now),
        },
    )


def _next_seq(number: int) -> Statements[int]:
    """Return the number of the next entry: the one the session has if that can be, else one that was never given."""
    rows = yield (
        f"SELECT next_seq, (SELECT max(id) % {SEQS} FROM entries WHERE id >= ? AND id < ?),"
        " (SELECT max(last_seq) FROM journal WHERE session_no = ? AND kind = 'append') FROM sessions WHERE no = ?",
        (*entry_span(number), number, number),
    )
    found, *given = rows[0]
    return found if 0 < found < SEQS else 1 + max(seq or 0 for seq in given)


@transaction
def key_of_session(number: int) -> Statements[SessionKey | None]:
    """Return the key of a session: its own, that of its turns, or that of a route to it."""
    rows = yield (
        "SELECT key, 0, 0 FROM sessions WHERE no = ? UNION ALL SELECT key, 1, -no FROM turns WHERE session_no = ?"
        " UNION ALL SELECT key, 2, 0 FROM routes WHERE session_no = ? ORDER BY 2, 3",
        (number,) * 3,
    )
    return next(readable(key_in, rows), None)


@transaction
def origin_of_session(number: int) -> Statements[Source | None]:
    """Return where a session began: its own origin, the address of its route, or where its messages came from."""
    rows = yield (
        "SELECT 0, origin FROM sessions WHERE no = ? UNION ALL SELECT 1, address FROM routes WHERE session_no = ?"
        " ORDER BY 1",
        (number, number),
    )
    found = next(readable(source_in, rows), None)
    if found:
        return found
    rows = yield f"{SELECT_RECEIVED} WHERE t.session_no = ? AND length(i.body) > 0 ORDER BY i.no LIMIT 20", (number,)
    return next((each.inbound.source for each in readable(received_of, rows)), None)


def origin_of_key(key: SessionKey) -> Source:
    return Source(
        platform=key.platform or "unknown",
        chat_kind=key.kind if key.platform else DM,
        account=key.account or None,
        chat_id=key.chat or None,
        thread_id=key.thread or None,
        scope_id=key.scope or None,
        profile=key.profile,
    )


# Turns, operations, routes

_TURN_TIMES = "lease_until, started, halted, retry_at"


@transaction
def mend_turn(bad: BadRow, now: datetime) -> Statements[None]:
    number = bad.row[0]
    yield from keep_copies("turns", "no = ?", (number,), bad.problem.value, now)
    rows = yield f"SELECT key, session_no, state, approvals, ended, {_TURN_TIMES} FROM turns WHERE no = ?", (number,)
    key, session, state, approvals, ended, *times = rows[0]
    known = next(readable(key_in, [(key,)]), None) or (yield from key_of_session(session))
    lost = TurnState.INTERRUPTED if ended is None else TurnState.FAILED
    yield from _update(
        "turns",
        "no",
        number,
        {
            "key": (known or SessionKey(MAIN, chat=f"turn {number}")).text,
            "state": _kept(state, TurnState, lost.value),
            "approvals": approvals and _kept(approvals, from_json, None),
            **moments(_TURN_TIMES, tuple(times), now),
        },
    )


@transaction
def mend_operation(bad: BadRow, now: datetime) -> Statements[None]:
    number, session, kind = bad.row[:3]
    yield from keep_copies("operations", "no = ?", (number,), bad.problem.value, now)
    rows = yield "SELECT key, details, from_key, to_key FROM operations WHERE no = ?", (number,)
    key, details, from_key, to_key = rows[0]
    known = next(readable(key_in, [(key,)]), None) or (yield from key_of_session(session))
    lost = yield from _summary_of(number, session)
    yield from _update(
        "operations",
        "no",
        number,
        {
            "key": (known or SessionKey(MAIN, chat=f"operation {number}")).text,
            "kind": _kept(kind, OperationKind, OperationKind.UNDO.value),
            "details": _kept(details, _object, json_text(lost)),
            "from_key": from_key and _kept(from_key, SessionKey.parse, None),
            "to_key": to_key and _kept(to_key, SessionKey.parse, None),
        },
    )
    if _kept(details, _object, None) is None and not lost and kind not in _NEED_NO_DETAILS:
        yield "UPDATE operations SET undone_at = coalesce(undone_at, ?) WHERE no = ?", (micros(now), number)


def _summary_of(operation: int, session: int) -> Statements[dict[str, int]]:
    """Return the details of a compaction: which summary covers what it hides."""
    first, end = entry_span(session)
    hidden = yield (
        "SELECT min(id), max(id) FROM entries WHERE hidden_by = ? AND id >= ? AND id < ?",
        (operation, first, end),
    )
    rows = yield "SELECT id, body FROM entries WHERE id >= ? AND id < ? AND role = 'summary'", (first, end)
    low, high = (None if id_ is None else id_ - first for id_ in hidden[0])
    found = [entry.seq for entry in entries_of(rows) if entry.covers == (low, high)]
    return {"summary": found[-1]} if found else {}


_NEED_NO_DETAILS = frozenset({OperationKind.UNDO.value, OperationKind.RESET.value, OperationKind.BRANCH.value})
"""What can be undone although its details are lost."""


@transaction
def mend_route(bad: BadRow, now: datetime) -> Statements[None]:
    key, address, settings = bad.row
    if next(readable(key_in, [(key,)]), None) is None:
        yield from set_aside("routes", "key = ?", (key,), bad.problem.value, now)
        return
    yield from keep_copies("routes", "key = ?", (key,), bad.problem.value, now)
    rows = yield "SELECT s.no, s.origin FROM routes r JOIN sessions s ON s.no = r.session_no WHERE r.key = ?", (key,)
    known = next(readable(source_in, [("", address), *rows]), None) or origin_of_key(SessionKey.parse(key))
    yield from _update(
        "routes",
        "key",
        key,
        {"address": _kept(address, source_of, source_text(known)), "settings": _kept(settings, _object, "{}")},
    )
