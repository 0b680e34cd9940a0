"""Attached places: one conversation that is reached from several chats."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime

from palaver.db.transaction import Lock, Row, Statements, transaction
from palaver.model.errors import BadArgument
from palaver.model.key import SessionKey
from palaver.model.session import Principal, Session
from palaver.model.turn import Outbound
from palaver.store.conversations import undo_log
from palaver.store.conversations.visibility import find, lock_session
from palaver.store.queue.inbox import move_waiting
from palaver.store.records import micros, placeholders
from palaver.store.results import OperationKind


@transaction
def conversation_of(place: SessionKey) -> Statements[SessionKey]:
    """Return the conversation of a place: its own, unless it is attached to another."""
    rows = yield "SELECT key FROM attached_chats WHERE place = ?", (place.text,)
    return SessionKey.parse(rows[0][0]) if rows else place


@transaction
def find_attachable(target: str, place: SessionKey, principal: Principal) -> Statements[Session]:
    """Find and lock the session that `target` names. It has to be open in another place."""
    found = yield from lock_session((yield from find(target, principal)), place, principal)
    if found.ended is not None or found.key == place or found.key.profile != place.profile:
        raise BadArgument(
            "You can attach only to a conversation that is open in another chat, not to",
            found=target,
            allowed="an open one, or /resume for one that has ended",
            example=f"/resume {found.id}",
        )
    # Both keys are locked, so no chain and no circle can come about.
    if (yield "SELECT 1 FROM attached_chats WHERE place = ? OR key = ? LIMIT 1", (found.key.text, place.text)):
        raise BadArgument(
            "Attached chats cannot be chained, as they would be with",
            found=target,
            allowed="/detach in the other chat first",
            example="/detach",
        )
    return found


@transaction
def has_other_speakers(session: Session, principal: Principal) -> Statements[bool]:
    """Return whether others spoke in it, or in what it is a branch of, even if they have left."""
    names = ("", *sorted(principal.identities))
    where = f"session_no = ? AND identity NOT IN ({placeholders(names)})"
    return bool((yield f"SELECT 1 FROM participants WHERE {where} LIMIT 1", (session.number, *names)))


@transaction
def has_several_people(session: Session) -> Statements[bool]:
    """Return whether several people take part; linked identities are one person."""
    rows = yield f"SELECT {_SEVERAL}", (session.number,)
    return bool(rows[0][0])


_WHO = "coalesce(i.person, p.identity)"
# The first and the last differ: that needs no list of all.
_SEVERAL = (
    f"min({_WHO}) < max({_WHO}) FROM participants p"
    " LEFT JOIN identities i ON i.identity = p.identity WHERE p.session_no = ? AND p.left_at IS NULL"
)


@transaction
def is_shared(session: Session) -> Statements[bool]:
    """Return whether others take part or can: also before they have spoken, and if what they said is hidden."""
    rows = yield (
        f"SELECT NULL, {_SEVERAL} UNION ALL SELECT place, NULL FROM attached_chats WHERE key = ?",
        (session.number, session.key.text),
    )
    return session.key.shared or any(
        several or (place is not None and SessionKey.parse(place).shared) for place, several in rows
    )


@transaction
def attached_places(key: SessionKey) -> Statements[list[SessionKey]]:
    """Return the places that are attached to a conversation."""
    rows = yield "SELECT place FROM attached_chats WHERE key = ?", (key.text,)
    return [SessionKey.parse(place) for (place,) in rows]


@transaction
def attach(place: SessionKey, session: Session, now: datetime, *, by: str, farewell: Outbound) -> Statements[None]:
    """Attach a place to the conversation of a session from `find_attachable`."""
    yield from detach(place, now)
    operation = yield from undo_log.record(
        OperationKind.ATTACH, place, session.number, now, by, {"tell": asdict(farewell)}
    )
    # Never before the end of an earlier session, even if the clock was set back: `detach_all` compares the two.
    ended = yield "SELECT max(ended) FROM sessions WHERE key = ?", (session.key.text,)
    since = max(micros(now), ended[0][0] or 0)
    yield (
        "INSERT INTO attached_chats (place, key, since, operation, actor) VALUES (?, ?, ?, ?, ?)",
        (place.text, session.key.text, since, operation, by),
    )
    yield from move_waiting(place, place, session.key)


@transaction
def detach(place: SessionKey, now: datetime) -> Statements[bool]:
    """Lead a place back to its own conversation, while the other one is locked."""
    yield Lock((yield from conversation_of(place)).text)
    rows = yield f"DELETE FROM attached_chats WHERE place = ? {_RETURNING}", (place.text,)
    yield from _after_detach(rows, now)
    return bool(rows)


@transaction
def attach_operation(place: SessionKey) -> Statements[int | None]:
    """Return the operation that attached a place."""
    rows = yield "SELECT operation FROM attached_chats WHERE place = ?", (place.text,)
    return rows[0][0] if rows else None


@transaction
def detach_all(key: SessionKey, now: datetime, *, entering: Session | None = None) -> Statements[None]:
    """Detach all places when a conversation is left or another session is opened in it.

    Their people would otherwise read what was not meant for them. Places that were attached when the session `entering`
    ended stay attached.
    """
    left = entering.ended if entering and entering.key == key else None
    rows = yield (
        f"DELETE FROM attached_chats WHERE key = ? AND since >= ? {_RETURNING}",
        (key.text, micros(left) if left else 0),
    )
    yield from _after_detach(rows, now)
    for _, _, operation in rows:
        yield from undo_log.notify_origin(operation, now)


_RETURNING = "RETURNING place, key, operation"


def _after_detach(rows: Iterable[Row], now: datetime) -> Statements[None]:
    for place, key, operation in rows:
        yield from undo_log.mark_undone(operation, now)
        yield from move_waiting(SessionKey.parse(place), SessionKey.parse(key), SessionKey.parse(place))
