"""Attached places in the store: one conversation reached from several places, and the ways they part again."""

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
from palaver.store.queue.inbox import carry
from palaver.store.records import micros
from palaver.store.results import OperationKind

__all__ = [
    "attach",
    "attach_operation",
    "attached_places",
    "conversation_of",
    "detach",
    "detach_all",
    "find_attachable",
    "has_other_speakers",
    "has_several_people",
    "is_shared",
]


@transaction
def conversation_of(place: SessionKey) -> Statements[SessionKey]:
    """The conversation that is spoken to in a place: its own, unless it is attached to another."""
    rows = yield "SELECT key FROM attached WHERE place = ?", (place.text,)
    return SessionKey.parse(rows[0][0]) if rows else place


@transaction
def find_attachable(target: str, place: SessionKey, principal: Principal) -> Statements[Session]:
    """The conversation that `target` names, held. One that has ended is not going on anywhere."""
    found = yield from lock_session((yield from find(target, principal)), place, principal)
    if found.ended is not None or found.key == place or found.key.profile != place.profile:
        raise BadArgument(
            "A place is attached to a conversation that goes on elsewhere, not to",
            found=target,
            allowed="one that is open in another place; /resume takes up one that has ended",
            example=f"/resume {found.id}",
        )
    # Both keys are held, so this stays true: no chain and no circle comes about, whoever attaches what at once.
    if (yield "SELECT 1 FROM attached WHERE place = ? OR key = ? LIMIT 1", (found.key.text, place.text)):
        raise BadArgument(
            "A place is attached straight to where a conversation is at home, not by way of another, as it would be to",
            found=target,
            allowed="one whose own place is not attached elsewhere, from a place that nothing is attached to; "
            "/detach there first",
            example="/detach",
        )
    return found


@transaction
def has_other_speakers(session: Session, principal: Principal) -> Statements[bool]:
    """Whether somebody else took part in it, or in what it is a branch of: their words are in it, also if they left."""
    names = ("", *sorted(principal.identities))
    others = yield (
        f"SELECT 1 FROM participants WHERE session_no = ? AND identity NOT IN ({', '.join('?' * len(names))}) LIMIT 1",
        (session.number, *names),
    )
    return bool(others)


@transaction
def has_several_people(session: Session) -> Statements[bool]:
    """People, not accounts: identities that are linked are one."""
    rows = yield f"SELECT {_SEVERAL}", (session.number,)
    return bool(rows[0][0])


_WHO = "coalesce(i.person, p.identity)"
# The first and the last of them are two: that takes no list of all.
_SEVERAL = (
    f"min({_WHO}) < max({_WHO}) FROM participants p"
    " LEFT JOIN identities i ON i.identity = p.identity WHERE p.session_no = ? AND p.left_at IS NULL"
)


@transaction
def is_shared(session: Session) -> Statements[bool]:
    """Also while nobody has come through the door that is open to them, and when what they said is hidden."""
    rows = yield (
        f"SELECT NULL, {_SEVERAL} UNION ALL SELECT place, NULL FROM attached WHERE key = ?",
        (session.number, session.key.text),
    )
    return session.key.shared or any(
        several or (place is not None and SessionKey.parse(place).shared) for place, several in rows
    )


@transaction
def attached_places(key: SessionKey) -> Statements[list[SessionKey]]:
    """The places from which a conversation is spoken to besides its own."""
    rows = yield "SELECT place FROM attached WHERE key = ?", (key.text,)
    return [SessionKey.parse(place) for (place,) in rows]


@transaction
def attach(place: SessionKey, session: Session, now: datetime, *, by: str, farewell: Outbound) -> Statements[None]:
    """Lead a place to the conversation of a session that `attachable` gave."""
    yield from detach(place, now)
    operation = yield from undo_log.record(
        OperationKind.ATTACH, place, session.number, now, by, {"tell": asdict(farewell)}
    )
    # Never before the end of a session that was left there, though the clock be set back: `part` goes by it.
    ended = yield "SELECT max(ended) FROM sessions WHERE key = ?", (session.key.text,)
    since = max(micros(now), ended[0][0] or 0)
    yield (
        "INSERT INTO attached (place, key, since, operation) VALUES (?, ?, ?, ?)",
        (place.text, session.key.text, since, operation),
    )
    yield from carry(place, place, session.key)


@transaction
def detach(place: SessionKey, now: datetime) -> Statements[bool]:
    """Lead a place to its own conversation again. Whatever leads to a conversation is changed while that is held."""
    yield Lock((yield from conversation_of(place)).text)
    rows = yield f"DELETE FROM attached WHERE place = ? {_RETURNING}", (place.text,)
    yield from _freed(rows, now)
    return bool(rows)


@transaction
def attach_operation(place: SessionKey) -> Statements[int | None]:
    """The operation by which a place was attached."""
    rows = yield "SELECT operation FROM attached WHERE place = ?", (place.text,)
    return rows[0][0] if rows else None


@transaction
def detach_all(key: SessionKey, now: datetime, *, entering: Session | None = None) -> Statements[None]:
    """A conversation is left, or another session taken up in it: the places attached to it go their own ways again.

    Else their people would get to read what was never meant for them. Those that were attached already when the session
    was left stay.
    """
    seen = entering.ended if entering and entering.key == key else None
    rows = yield (
        f"DELETE FROM attached WHERE key = ? AND since >= ? {_RETURNING}",
        (key.text, micros(seen) if seen else 0),
    )
    yield from _freed(rows, now)
    for _, _, operation in rows:
        yield from undo_log.tell(operation, now)


_RETURNING = "RETURNING place, key, operation"


def _freed(rows: Iterable[Row], now: datetime) -> Statements[None]:
    for place, key, operation in rows:
        yield from undo_log.mark_undone(operation, now)
        yield from carry(SessionKey.parse(place), SessionKey.parse(key), SessionKey.parse(place))
