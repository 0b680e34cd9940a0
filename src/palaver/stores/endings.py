"""Endings in the store: sessions that have expired, hooks that are owed to ended ones, routes nobody uses."""

from datetime import datetime

from palaver.domain.lifecycle import EndReason
from palaver.domain.session import Session
from palaver.ports.store import ResetRule
from palaver.ports.work import Lock, Steps, work
from palaver.stores.inbox import OPEN_TURN
from palaver.stores.records import SESSION_COLUMNS, micros, session_of
from palaver.stores.sessions import due, end, open_by_key

__all__ = ["drop_routes", "expire", "finalise", "open_after", "to_finalise"]


@work
def open_after(key: str, limit: int) -> Steps[list[Session]]:
    """Open sessions by key, a page at a time."""
    rows = yield (
        f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE s.ended IS NULL AND s.key > ? ORDER BY s.key LIMIT ?",
        (key, limit),
    )
    return [session_of(row) for row in rows]


@work
def expire(session: Session, rule: ResetRule, now: datetime) -> Steps[EndReason | None]:
    """End a session if its time has come; gives why. Somebody may have spoken since it was looked at."""
    yield Lock(session.key.text)
    current = yield from open_by_key(session.key)
    reason = (yield from due(current, now, rule)) if current else None
    if current and reason:
        yield from end(current.number, reason, now)
    return reason


@work
def to_finalise(limit: int) -> Steps[list[Session]]:
    rows = yield (
        f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE s.ended IS NOT NULL AND s.finalised IS NULL"
        " ORDER BY s.no LIMIT ?",
        (limit,),
    )
    return [session_of(row) for row in rows]


@work
def finalise(session: Session, now: datetime, *, done: bool, tries: int) -> Steps[None]:
    """Remember that the hooks were told; after so many tries that failed, that they will not be."""
    yield (
        "UPDATE sessions SET finalise_tries = finalise_tries + 1, finalised = CASE"
        " WHEN ? = 1 OR finalise_tries + 1 >= ? THEN CAST(? AS BIGINT) END WHERE no = ? AND ended IS NOT NULL",
        (int(done), tries, micros(now), session.number),
    )


_UNUSED = (
    "s.no = r.session_no AND s.last_active < ? AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.key = r.key"
    f" AND t.state IN {OPEN_TURN})"
)


@work
def drop_routes(before: datetime, now: datetime, *, limit: int = 500) -> Steps[int]:
    """Forget where conversations that nobody has used since then would go on; what was said in them stays."""
    old = yield (
        f"SELECT r.key FROM routes r JOIN sessions s ON {_UNUSED} ORDER BY r.key LIMIT ?",
        (micros(before), limit),
    )
    dropped = 0
    for (key,) in old:
        yield Lock(key)
        # Looked at again under the lock: somebody may have spoken meanwhile.
        rows = yield (
            "DELETE FROM routes WHERE key IN (SELECT r.key FROM routes r JOIN sessions s"
            f" ON {_UNUSED} WHERE r.key = ?) RETURNING session_no",
            (micros(before), key),
        )
        for (number,) in rows:
            dropped += 1
            yield (
                "UPDATE sessions SET ended = ?, end_reason = ? WHERE no = ? AND key = ? AND ended IS NULL",
                (micros(now), EndReason.EXPIRED.value, number, key),
            )
    return dropped
