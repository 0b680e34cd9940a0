"""Expired sessions, and finalise hooks of ended ones."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from palaver.db.transaction import Lock, Row, Statements, transaction
from palaver.model.reset import ResetRule
from palaver.model.session import EndReason, Session
from palaver.store.conversations.sessions import end, open_by_key, reset_reason
from palaver.store.conversations.visibility import select_sessions
from palaver.store.records import from_json, json_text, micros, readable


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
def count_finalise_try(session: Session, now: datetime, *, tries: int) -> Statements[frozenset[str] | None]:
    """Count a try before the hooks run, so that a crash counts too. Return the hooks that succeeded before.

    Return None if none is to run.
    """
    rows = yield (
        f"UPDATE sessions SET finalise_tries = finalise_tries + 1 WHERE {_THIS_ENDING} AND finalise_tries < ?"
        " RETURNING finalised_by",
        (*_ending(session), tries),
    )
    if not rows:
        yield from mark_finalised(session, now, done=False, tries=tries)
        return None
    return frozenset(next(readable(_hooks, rows), ()))


def _hooks(row: Row) -> Sequence[str]:
    return from_json(row[0] or "[]")


@transaction
def record_finalised_by(session: Session, hooks: Iterable[str]) -> Statements[None]:
    """Record which hooks succeeded: they are not called again for this ending."""
    yield f"UPDATE sessions SET finalised_by = ? WHERE {_THIS_ENDING}", (json_text(sorted(hooks)), *_ending(session))


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
