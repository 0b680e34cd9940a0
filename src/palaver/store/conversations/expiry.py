"""Expired sessions, finalise hooks of ended ones, and unused routes."""

from datetime import datetime

from palaver.db.transaction import Lock, Statements, transaction
from palaver.model.key import SessionKey
from palaver.model.reset import ResetRule
from palaver.model.session import EndReason, Session
from palaver.store.conversations.sessions import end, open_by_key, reset_reason
from palaver.store.conversations.visibility import select_sessions
from palaver.store.queue.inbox import OPEN_TURN
from palaver.store.records import instant, micros


@transaction
def list_idle(since: datetime, until: datetime, after: Session | None, limit: int) -> Statements[list[Session]]:
    """List a page of open sessions in which a person last spoke between these times."""
    last = (micros(after.last_human), after.number) if after else (micros(since), 0)
    where = "s.ended IS NULL AND s.last_human <= ? AND (s.last_human, s.no) > (?, ?)"
    order = "ORDER BY s.last_human, s.no LIMIT ?"
    return (yield from select_sessions(f"{where} {order}", micros(until), *last, limit))


@transaction
def expire(session: Session, rule: ResetRule, now: datetime) -> Statements[EndReason | None]:
    """End a session if its reset policy says so now; return why.

    A waiting message decides instead: it may have been sent in time.
    """
    yield Lock(session.key.text)
    current = yield from open_by_key(session.key)
    if current is None or (yield "SELECT 1 FROM ready_queue WHERE key = ?", (session.key.text,)):
        return None
    reason = yield from reset_reason(current, now, rule)
    if reason:
        yield from end(current.number, reason, now)
    return reason


@transaction
def list_unfinalised(limit: int) -> Statements[list[Session]]:
    return (yield from select_sessions("s.ended IS NOT NULL AND s.finalised IS NULL ORDER BY s.no LIMIT ?", limit))


@transaction
def count_finalise_try(session: Session, now: datetime, *, tries: int) -> Statements[bool]:
    """Count a try before the hooks run, so that a crash counts too. False if they are not to run."""
    rows = yield (
        f"UPDATE sessions SET finalise_tries = finalise_tries + 1 WHERE {_THIS_ENDING} AND finalise_tries < ?"
        " RETURNING no",
        (*_ending(session), tries),
    )
    if not rows:
        yield from mark_finalised(session, now, done=False, tries=tries)
    return bool(rows)


@transaction
def mark_finalised(session: Session, now: datetime, *, done: bool, tries: int) -> Statements[None]:
    """Record that the hooks ran, or that they will not run after so many tries."""
    yield (
        f"UPDATE sessions SET finalised = ? WHERE {_THIS_ENDING} AND (? = 1 OR finalise_tries >= ?)",
        (micros(now), *_ending(session), int(done), tries),
    )


# A session that was reopened and has ended again gets its hooks again.
_THIS_ENDING = "no = ? AND ended = ? AND finalised IS NULL"


def _ending(session: Session) -> tuple[int, int | None]:
    return session.number, session.ended and micros(session.ended)


_IN_NO_TURN = f"NOT EXISTS (SELECT 1 FROM turns t WHERE t.key = r.key AND t.state IN {OPEN_TURN})"


@transaction
def list_unused_routes(since: datetime, until: datetime, limit: int) -> Statements[list[tuple[SessionKey, datetime]]]:
    """List keys whose routed session was last used between these times, with that time, oldest first."""
    rows = yield (
        "SELECT r.key, s.last_active FROM sessions s JOIN routes r ON r.session_no = s.no"
        f" WHERE s.last_active >= ? AND s.last_active < ? AND {_IN_NO_TURN} ORDER BY s.last_active, s.no LIMIT ?",
        (micros(since), micros(until), limit),
    )
    return [(SessionKey.parse(key), instant(active)) for key, active in rows]


@transaction
def drop_route(key: SessionKey, before: datetime, now: datetime) -> Statements[bool]:
    """Delete the route of a conversation that nobody used since then; its transcript stays."""
    yield Lock(key.text)
    # Checked under the lock: a message may have come meanwhile.
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
