"""Parting in the store: what people had in common while they were linked is each one's own again.

A conversation in which both sides spoke is kept as it was, for the operator alone; each side goes on in a copy of what
it said and was answered. Whoever came to a conversation of others only through the link leaves it.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from palaver.domain.access import AccessRole
from palaver.domain.key import SessionKey, Speaker, derive_key
from palaver.domain.scope import DmScope, Scope
from palaver.domain.session import Session, identity_of
from palaver.domain.source import Source
from palaver.domain.turn import Received
from palaver.ports.work import Lock, Steps, Value, work
from palaver.stores import attaching, inbox, operations
from palaver.stores.copying import apart, copy_part, spoke
from palaver.stores.records import INBOX_COLUMNS, micros, received_of, source_of
from palaver.stores.sessions import refuse_busy, route
from palaver.stores.steering import drop_parked, request_stop
from palaver.stores.visibility import get

__all__ = ["part", "stop_common_turns"]

People = Mapping[frozenset[str], str]
"""Those who were one person until now, and who each of them is from now on."""
_NOTE = "the people who shared this conversation are not linked any more; nothing was allowed"


class _Home(NamedTuple):
    """A place that leads to a conversation."""

    key: SessionKey
    address: Source


@work
def stop_common_turns(identities: Collection[str], now: datetime, *, by: str) -> Steps[bool]:
    """Whether turns are at work on what these people have in common; they are asked to stop."""
    busy = False
    for number in (yield from _common(identities)):
        session = yield from get(number)
        busy = (yield from request_stop(session.key, now, by=by)) or busy
    return busy


@work
def part(person: str, people: People, now: datetime) -> Steps[None]:
    for number in (yield from _common(_everyone(people))):
        yield from _part(number, people, now)
    yield from _lead_home(people, now)
    yield from _readdress(person, people)


def _everyone(people: People) -> frozenset[str]:
    return frozenset[str]().union(*people)


def _circle(people: People, identity: str | None) -> frozenset[str]:
    return next((circle for circle in people if identity in circle), frozenset[str]())


def _common(identities: Collection[str]) -> Steps[list[int]]:
    """Sessions that several of these may read, and those that are where people are who are linked."""
    names = sorted(identities)
    rows = yield (
        "SELECT s.no FROM participants p JOIN sessions s ON s.no = p.session_no"
        f" WHERE p.identity IN ({', '.join('?' * len(names))}) AND p.left_at IS NULL"
        " GROUP BY s.no HAVING count(*) > 1 OR max(s.key) LIKE 'agent:%::dm::person:%' OR max(s.key) LIKE 'agent:%::dm'"
        " ORDER BY s.no",
        tuple(names),
    )
    return [row[0] for row in rows]


def _part(number: int, people: People, now: datetime) -> Steps[None]:
    session = yield from _held(number, now)
    rows = yield "SELECT identity FROM participants WHERE session_no = ? AND left_at IS NULL", (number,)
    there = frozenset(row[0] for row in rows)
    sides = [circle for circle in people if circle & there]
    if len(sides) == 1 and (yield from _is_at_home(session, sides[0], people)):
        return
    if _is_of_people(session.key):
        yield from operations.give_up(session.key, now)
    if session.key.shared or there - _everyone(people):
        yield from _see_guests_off(session, there & _everyone(people), now)
    else:
        yield from _divide(session, sides, people, now)


def _is_of_people(key: SessionKey) -> bool:
    """Of a person, or of the owner, wherever they are; a session apart has its own id for a chat."""
    return not key.platform and not key.chat


def _is_at_home(session: Session, side: frozenset[str], people: People) -> Steps[bool]:
    """Whether those who alone are in it may go on where it is."""
    if session.key.person:
        return session.key.person == _common_name(side, people)
    if not _is_of_people(session.key):
        return True
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM turns t JOIN inbox i ON i.turn_no = t.no"
        " WHERE t.session_no = ? AND length(i.body) > 0",
        (session.number,),
    )
    heard = [received for received in map(received_of, rows) if identity_of(received.inbound.source) in side]
    return any(received.role is AccessRole.OWNER for received in heard)


def _common_name(circle: frozenset[str], people: People) -> str:
    """Under which the direct chats of linked identities are one conversation."""
    return people[circle] if len(circle) > 1 else ""


def _held(number: int, now: datetime) -> Steps[Session]:
    held = ""
    while (session := (yield from get(number))).key.text != held:
        held = session.key.text
        yield Lock(held)
    yield from drop_parked(session.key, now, note=_NOTE, error="left without an answer")
    yield from refuse_busy(session)
    return session


# A conversation of theirs alone


def _divide(session: Session, sides: Collection[frozenset[str]], people: People, now: datetime) -> Steps[None]:
    homes = yield from _homes(session, people)
    spoken: list[frozenset[str]] = []
    for side in sides:
        spoken += [side] if (yield from spoke(session, side)) else []
    if len(spoken) != 1:
        yield from _settle(session, None, now)
        # Titles are told apart by owner: its title is free again for those who cannot see it any more.
        yield "UPDATE sessions SET owner = key WHERE no = ?", (session.number,)
        for side in spoken:
            yield from _settle((yield from copy_part(session, side, now)), homes.get(side), now)
        yield from _leave(session, _everyone(people), now)
    else:  # then it is theirs who spoke, as it is
        yield from _leave(session, _everyone(people) - spoken[0], now)
        yield from _settle(session, homes.get(spoken[0]), now)
        if session.owner not in spoken[0]:
            yield "UPDATE sessions SET owner = ?, title = NULL WHERE no = ?", (min(spoken[0]), session.number)


def _homes(session: Session, people: People) -> Steps[dict[frozenset[str], _Home]]:
    """Where each side goes on with it: in its own place that led there, or in what its people still share."""
    rows = yield "SELECT key, address FROM routes WHERE session_no = ? ORDER BY key", (session.number,)
    places = [_Home(SessionKey.parse(key), source_of(address)) for key, address in rows]
    homes: dict[frozenset[str], _Home] = {}
    for circle in people:
        shared = SessionKey(session.key.profile, person=_common_name(circle, people))
        if session.key.person and shared.person and not (yield from _leads_elsewhere(shared, session)):
            homes[circle] = _Home(shared, session.origin)
        for place in places:
            if place.key.platform and identity_of(place.address) in circle:
                homes.setdefault(circle, place)
    return homes


def _leads_elsewhere(key: SessionKey, session: Session) -> Steps[bool]:
    return bool((yield "SELECT 1 FROM routes WHERE key = ? AND session_no <> ?", (key.text, session.number)))


def _settle(session: Session, home: _Home | None, now: datetime) -> Steps[None]:
    """Where it goes on; if that is nowhere it is over, in a place of its own."""
    key = home.key if home else apart(session.key.profile, session.id)
    yield "DELETE FROM routes WHERE session_no = ? AND key <> ?", (session.number, key.text)
    ended: tuple[Value, ...] = (session.ended and micros(session.ended), session.end_reason)
    if home is None and session.ended is None:
        ended = (micros(now), "switched")
    yield "UPDATE sessions SET key = ?, ended = ?, end_reason = ? WHERE no = ?", (key.text, *ended, session.number)
    if home:
        yield from route(key, session.number, home.address)


def _leave(session: Session, identities: Iterable[str], now: datetime) -> Steps[None]:
    rows: list[tuple[Value, ...]] = [(micros(now), session.number, identity) for identity in sorted(identities)]
    yield "UPDATE participants SET left_at = ? WHERE session_no = ? AND identity = ?", rows


# A conversation with others in it


def _see_guests_off(session: Session, ours: Collection[str], now: datetime) -> Steps[None]:
    """Guests came through the link: of their own they never spoke where everybody does."""
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM turns t JOIN inbox i ON i.turn_no = t.no"
        " WHERE t.session_no = ? AND i.place IS NULL AND length(i.body) > 0",
        (session.number,),
    )
    heard = map(received_of, rows)
    members = {identity_of(received.inbound.source) for received in heard if received.key.shared}
    guests = set(ours) - members
    yield from _leave(session, guests, now)
    rows = yield "SELECT key, address FROM routes WHERE session_no = ?", (session.number,)
    led = {SessionKey.parse(key): identity_of(source_of(address)) for key, address in rows}
    theirs = {key.text for key, who in led.items() if who in guests and not key.shared}
    if _is_of_people(session.key) or session.key.text in theirs:
        yield from _settle(session, None, now)
    for key in sorted(theirs):
        yield "DELETE FROM routes WHERE key = ? AND session_no = ?", (key, session.number)


# What still leads to the conversations of others


def _lead_home(people: People, now: datetime) -> Steps[None]:
    """A place stays attached only to what is its people's own, or what they share with others."""
    names = sorted(_everyone(people))
    rows = yield (
        "SELECT a.place, a.key, o.by_whom FROM attached a JOIN operations o ON o.no = a.operation"
        f" WHERE o.by_whom IN ({', '.join('?' * len(names))})",
        tuple(names),
    )
    for text, key, by in rows:
        place = SessionKey.parse(text)
        if not place.platform or not (yield from _may_stay(SessionKey.parse(key), _circle(people, by))):
            yield from attaching.detach(place, now)


def _may_stay(key: SessionKey, identities: Collection[str]) -> Steps[bool]:
    rows = yield (
        "SELECT r.address FROM routes r JOIN participants p ON p.session_no = r.session_no WHERE r.key = ?"
        f" AND p.left_at IS NULL AND p.identity IN ({', '.join('?' * len(identities))})",
        (key.text, *sorted(identities)),
    )
    return any(key.shared or identity_of(source_of(address)) in identities for (address,) in rows)


def _readdress(person: str, people: People) -> Steps[None]:
    """What waits in the conversation of a person, or of the owner, is for the conversations of those they are now."""
    rows = yield "SELECT key FROM lines ORDER BY key", ()
    for key in map(SessionKey.parse, (row[0] for row in rows)):
        if key.platform or key.chat or key.person not in {person, ""}:
            continue
        yield Lock(key.text)
        waiting = yield (
            f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no"
            " WHERE i.key = ? AND i.state = 'waiting' ORDER BY i.no",
            (key.text,),
        )
        for received in map(received_of, waiting):
            place = _place(received, people)
            if place != key:
                yield from inbox.move(received, place)


def _place(received: Received, people: People) -> SessionKey:
    circle = _circle(people, identity_of(received.inbound.source))
    if not circle or (not received.key.person and received.role is AccessRole.OWNER):
        return received.key
    speaker = Speaker(person=_common_name(circle, people) if received.key.person else None)
    return derive_key(received.inbound.source, Scope(dm=DmScope.PER_PERSON), speaker)
