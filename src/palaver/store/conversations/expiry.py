"""Endings in the store: sessions that have expired, hooks that are owed to ended ones, routes nobody uses."""

from datetime import datetime

from palaver.db.transaction import Lock, Statements, transaction
from palaver.model.key import SessionKey
from palaver.model.lifecycle import EndReason
from palaver.model.session import Session
from palaver.store.conversations.sessions import due, end, open_by_key
from palaver.store.queue.inbox import OPEN_TURN
from palaver.store.records import SESSION_COLUMNS, instant, micros, session_of
from palaver.store.results import ResetRule

__all__ = [
    "drop_route",
    "expire",
    "finalise",
    "silent",
    "to_finalise",
    "try_finalising",
    "unused",
]


@transaction
def silent(since: datetime, until: datetime, after: Session | None, limit: int) -> Statements[list[Session]]:
    """Open sessions in which a person spoke last between these times; a page at a time."""
    last = (micros(after.last_human), after.number) if after else (micros(since), 0)
    rows = yield (
        f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE s.ended IS NULL AND s.last_human <= ?"
        " AND (s.last_human, s.no) > (?, ?) ORDER BY s.last_human, s.no LIMIT ?",
        (micros(until), *last, limit),
    )
    return [session_of(row) for row in rows]


@transaction
def expire(session: Session, rule: ResetRule, now: datetime) -> Statements[EndReason | None]:
    """End a session if its time has come; gives why. Somebody may have spoken since it was looked at.

    While something waits in it, that decides: it may have been said in time.
    """
    yield Lock(session.key.text)
    current = yield from open_by_key(session.key)
    if current is None or (yield "SELECT 1 FROM lines WHERE key = ?", (session.key.text,)):
        return None
    reason = yield from due(current, now, rule)
    if reason:
        yield from end(current.number, reason, now)
    return reason


@transaction
def to_finalise(limit: int) -> Statements[list[Session]]:
    rows = yield (
        f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE s.ended IS NOT NULL AND s.finalised IS NULL"
        " ORDER BY s.no LIMIT ?",
        (limit,),
    )
    return [session_of(row) for row in rows]


@transaction
def try_finalising(session: Session, now: datetime, *, tries: int) -> Statements[bool]:
    """Count a try before the hooks are told: whoever dies in it has tried. False where they are not to be told."""
    rows = yield (
        f"UPDATE sessions SET finalise_tries = finalise_tries + 1 WHERE {_THIS_ENDING} AND finalise_tries < ?"
        " RETURNING no",
        (*_ending(session), tries),
    )
    if not rows:
        yield from finalise(session, now, done=False, tries=tries)
    return bool(rows)


@transaction
def finalise(session: Session, now: datetime, *, done: bool, tries: int) -> Statements[None]:
    """Remember that the hooks were told; after so many tries, that they will not be."""
    yield (
        f"UPDATE sessions SET finalised = ? WHERE {_THIS_ENDING} AND (? = 1 OR finalise_tries >= ?)",
        (micros(now), *_ending(session), int(done), tries),
    )


# A session that was taken up again and has ended anew is owed them anew.
_THIS_ENDING = "no = ? AND ended = ? AND finalised IS NULL"


def _ending(session: Session) -> tuple[int, int | None]:
    return session.number, session.ended and micros(session.ended)


_IN_NO_TURN = f"NOT EXISTS (SELECT 1 FROM turns t WHERE t.key = r.key AND t.state IN {OPEN_TURN})"


@transaction
def unused(since: datetime, until: datetime, limit: int) -> Statements[list[tuple[SessionKey, datetime]]]:
    """Keys whose route leads to a session last used between these times, each with that time; the oldest first."""
    rows = yield (
        "SELECT r.key, s.last_active FROM sessions s JOIN routes r ON r.session_no = s.no"
        f" WHERE s.last_active >= ? AND s.last_active < ? AND {_IN_NO_TURN} ORDER BY s.last_active, s.no LIMIT ?",
        (micros(since), micros(until), limit),
    )
    return [(SessionKey.parse(key), instant(active)) for key, active in rows]


@transaction
def drop_route(key: SessionKey, before: datetime, now: datetime) -> Statements[bool]:
    """Forget where a conversation that nobody has used since then would go on; what was said in it stays."""
    yield Lock(key.text)
    # Looked at under the lock: somebody may have spoken meanwhile.
    rows = yield (
        "DELETE FROM routes WHERE key IN (SELECT r.key FROM routes r JOIN sessions s ON s.no = r.session_no"
        f" WHERE r.key = ? AND s.last_active < ? AND {_IN_NO_TURN}) RETURNING session_no",
        (key.text, micros(before)),
    )
    for (number,) in rows:
        yield (
            "UPDATE sessions SET ended = ?, end_reason = ? WHERE no = ? AND key = ? AND ended IS NULL",
            (micros(now), EndReason.EXPIRED.value, number, key.text),
        )
    return bool(rows)
