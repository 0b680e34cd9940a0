"""Which conversation linked people go on with, and where each of them goes when the link ends.

Linked people share one conversation under `per-person` scope. After an unlink, a conversation in which only one side
took part goes back to that side. One in which both took part ends and stays readable for both: going on in it would
show each side what the other says later. No transcript is divided or copied.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

from palaver.db.transaction import Lock, Statements, Value, transaction
from palaver.model.access import AccessRole
from palaver.model.key import DmScope, Scope, SessionKey, Speaker, derive_key
from palaver.model.session import EndReason, Session
from palaver.model.source import DM, identity_of
from palaver.model.turn import Received
from palaver.store.conversations import attach, undo_log
from palaver.store.conversations.sessions import check_not_busy, end, open_by_key, reopen, route
from palaver.store.conversations.visibility import hold, select_sessions
from palaver.store.queue import inbox
from palaver.store.queue.turn_control import abandon_parked, request_stop
from palaver.store.records import (
    INBOX_COLUMNS,
    micros,
    placeholders,
    readable,
    received_of,
    source_of,
)
from palaver.store.results import OperationKind

People = Mapping[frozenset[str], str]
"""The identities of each person after an unlink, and the id of that person."""
_PER_PERSON = Scope(dm=DmScope.PER_PERSON)
_PARKED_NOTE = "the people who shared this conversation are no longer linked; nothing was approved"


@transaction
def stop_turns(people: People, now: datetime, *, by: str) -> Statements[bool]:
    """Ask turns in conversations that change hands to stop. True if there are any: try again when they have stopped."""
    busy = False
    for session in (yield from _sessions_of(people)):
        if (yield from _changes_hands(session, people)):
            busy = (yield from request_stop(session.key, now, by=by)) or busy
    return busy


@transaction
def separate(old_person: str, people: People, now: datetime) -> Statements[list[Session]]:
    """Give everyone their own conversations again. Return those in which several of them took part."""
    common: list[Session] = []
    for session in (yield from _sessions_of(people)):
        if not (yield from _changes_hands(session, people)):
            continue
        yield from _hold(session, now)
        present = yield from _participants(session)
        sides = _sides(present, people)
        if session.key.shared or present - _everyone(people):
            yield from _remove_guests(session, present & _everyone(people), now)
        elif len(sides) == 1:
            yield from _return_to(sides[0], session, people, now)
        else:
            yield from _close(session, now)
            common.append(session)
    yield from _detach_places(people, now)
    yield from _move_waiting(old_person, people)
    return common


@transaction
def list_at_home(people: People) -> Statements[frozenset[str]]:
    """Return the identities of those who have a direct conversation of their own open."""
    at_home: set[str] = set()
    for session in (yield from _sessions_of(people)):
        if session.ended is None and session.key.kind == DM and not session.key.shared:
            sides = _sides((yield from _participants(session)), people)
            at_home.update(*(_person(side, people) for side in sides))
    return frozenset(at_home)


def _sessions_of(people: People) -> Statements[list[Session]]:
    names = sorted(_everyone(people))
    theirs = f"SELECT session_no FROM participants WHERE left_at IS NULL AND identity IN ({placeholders(names)})"
    return (yield from select_sessions(f"s.no IN ({theirs}) ORDER BY s.no", *names))


def _everyone(people: People) -> frozenset[str]:
    return frozenset[str]().union(*people)


def _participants(session: Session) -> Statements[frozenset[str]]:
    rows = yield "SELECT identity FROM participants WHERE session_no = ? AND left_at IS NULL", (session.number,)
    return frozenset(row[0] for row in rows)


def _sides(present: frozenset[str], people: People) -> list[frozenset[str]]:
    """Return, for each person who took part, the identities under which they did."""
    return [identities & present for identities in people if identities & present]


def _changes_hands(session: Session, people: People) -> Statements[bool]:
    """Return whether several of them took part, or the one who did cannot stay where the session is."""
    sides = _sides((yield from _participants(session)), people)
    if len(sides) > 1:
        return True
    if session.key.shared:
        return False
    return (yield from _home(session, sides[0], people)) != session.key


def _home(session: Session, side: frozenset[str], people: People) -> Statements[SessionKey]:
    """Return the key under which the only person who took part in a session goes on with it."""
    key, own_chat = session.key, derive_key(session.origin, Scope())
    if key.person:
        shared = SessionKey(key.profile, person=_person_key(side, people))
        return shared if shared.person else own_chat
    if key.platform:
        rows = yield "SELECT address FROM routes WHERE key = ?", (key.text,)
        is_theirs = all(identity_of(source_of(address)) in _person(side, people) for (address,) in rows)
        return key if is_theirs else own_chat
    if key.chat:  # closed by an earlier unlink
        return key
    return key if (yield from _spoke_as_owner(session, side)) else own_chat


def _person(side: frozenset[str], people: People) -> frozenset[str]:
    return next(identities for identities in people if side <= identities)


def _person_key(side: frozenset[str], people: People) -> str:
    """Return the person in the key that linked identities share; nothing for an identity that is alone."""
    identities = _person(side, people)
    return people[identities] if len(identities) > 1 else ""


def _spoke_as_owner(session: Session, side: frozenset[str]) -> Statements[bool]:
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM turns t JOIN inbox i ON i.turn_no = t.no"
        f" WHERE t.session_no = ? AND i.identity IN ({placeholders(side)}) AND length(i.body) > 0",
        (session.number, *sorted(side)),
    )
    return any(received.role is AccessRole.OWNER for received in readable(received_of, rows))


def _hold(session: Session, now: datetime) -> Statements[None]:
    session = yield from hold(session.number)
    yield from abandon_parked(session.key, now, note=_PARKED_NOTE, error="left without an answer")
    yield from check_not_busy(session)


def _return_to(side: frozenset[str], session: Session, people: People, now: datetime) -> Statements[None]:
    """Move a session home. It goes on there if that is where its owner was before the link."""
    home = yield from _home(session, side, people)
    yield Lock(home.text)
    yield from _vacate(session, home, now)
    rows = yield "SELECT session_no FROM routes WHERE key = ?", (home.text,)
    was_there = all(number == session.number for (number,) in rows)
    if session.ended is None and was_there and (yield from open_by_key(home)) is None:
        yield from reopen(session.number, home, now, spoken=None)
        yield from route(home, session.number, session.origin)


def _close(session: Session, now: datetime) -> Statements[None]:
    """End a session that several took part in: everyone reads it, nobody owns it, nobody goes on in it."""
    key = SessionKey(session.key.profile, chat=session.id)
    yield from _vacate(session, key, now)
    yield (
        "UPDATE sessions SET owner = ?, end_reason = ? WHERE no = ?",
        (key.text, EndReason.UNLINKED.value, session.number),
    )


def _vacate(session: Session, new: SessionKey, now: datetime) -> Statements[None]:
    """Take a session out of its conversation, which goes back to the session it had before."""
    old = session.key
    yield from end(session.number, EndReason.SWITCHED, now)
    yield "UPDATE sessions SET key = ? WHERE no = ?", (new.text, session.number)
    yield "DELETE FROM routes WHERE session_no = ? AND key = ?", (session.number, old.text)
    operation = yield from undo_log.latest(old, session.number, OperationKind.SWITCH)
    if session.ended is not None or operation is None or operation.session_number != session.number:
        return
    yield from undo_log.mark_undone(operation.number, now)
    for before in (yield from select_sessions("s.id = ?", operation.from_session)):
        if before.key == old and before.ended is not None:
            yield from reopen(before.number, old, now, spoken=None)
            yield from route(old, before.number, before.origin)


def _remove_guests(session: Session, ours: frozenset[str], now: datetime) -> Statements[None]:
    """Take out of a conversation of others those who never spoke in its own place: the link had let them in."""
    spoke = yield (
        "SELECT DISTINCT i.identity, i.key FROM turns t JOIN inbox i ON i.turn_no = t.no"
        " WHERE t.session_no = ? AND i.place IS NULL",
        (session.number,),
    )
    guests = ours - {identity for identity, key in spoke if SessionKey.parse(key).shared}
    rows: list[tuple[Value, ...]] = [(micros(now), session.number, identity) for identity in sorted(guests)]
    yield "UPDATE participants SET left_at = ? WHERE session_no = ? AND identity = ?", rows
    routes = yield "SELECT key, address FROM routes WHERE session_no = ?", (session.number,)
    for key, address in routes:
        if identity_of(source_of(address)) in guests and not SessionKey.parse(key).shared:
            yield "DELETE FROM routes WHERE key = ? AND session_no = ?", (key, session.number)
            if key == session.key.text:
                yield from _vacate(session, SessionKey(session.key.profile, chat=session.id), now)


def _detach_places(people: People, now: datetime) -> Statements[None]:
    """Detach places from conversations that are no longer their people's own, nor shared with others."""
    names = sorted(_everyone(people))
    rows = yield f"SELECT place, key, actor FROM attached_chats WHERE actor IN ({placeholders(names)})", tuple(names)
    for place, key, by in rows:
        person = _person(frozenset({by}), people)
        if not SessionKey.parse(place).platform or not (yield from _takes_part(SessionKey.parse(key), person)):
            yield from attach.detach(SessionKey.parse(place), now)


def _takes_part(key: SessionKey, identities: Collection[str]) -> Statements[bool]:
    rows = yield (
        "SELECT r.address FROM routes r JOIN participants p ON p.session_no = r.session_no WHERE r.key = ?"
        f" AND p.left_at IS NULL AND p.identity IN ({placeholders(identities)})",
        (key.text, *sorted(identities)),
    )
    return any(key.shared or identity_of(source_of(address)) in identities for (address,) in rows)


def _move_waiting(old_person: str, people: People) -> Statements[None]:
    """Move messages that wait in a common conversation to the sender's own."""
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM ready_queue q JOIN inbox i ON i.key = q.key LEFT JOIN turns t ON t.no = i.turn_no"
        " WHERE i.state = 'waiting' ORDER BY +i.no",
        (),
    )
    for received in readable(received_of, rows):
        key = received.key
        if not key.platform and not key.chat and key.person in {old_person, ""}:
            yield Lock(key.text)
            own = _own_key(received, people)
            if own != key:
                yield from inbox.move_message(received, own)


def _own_key(received: Received, people: People) -> SessionKey:
    identity = identity_of(received.inbound.source)
    is_owner = not received.key.person and received.role is AccessRole.OWNER
    if identity not in _everyone(people) or is_owner:
        return received.key
    person = _person_key(frozenset({identity}), people) if received.key.person else None
    return derive_key(received.inbound.source, _PER_PERSON, Speaker(person=person))
