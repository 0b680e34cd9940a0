"""Parting in the store: what people had in common while they were linked is each one's own again.

A conversation in which both sides spoke is kept as it was, for the operator alone; each side goes on in a copy of what
it said and was answered. Whoever came to a conversation of others only through the link leaves it.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from palaver.db.transaction import Lock, Statements, Value, transaction
from palaver.model.access import AccessRole
from palaver.model.key import SessionKey, Speaker, derive_key
from palaver.model.scope import DmScope, Scope
from palaver.model.session import Principal, Session, identity_of, source_behind
from palaver.model.source import Source
from palaver.model.turn import Received
from palaver.store.conversations import attach, undo_log
from palaver.store.conversations.attachment_refs import copy_files
from palaver.store.conversations.sessions import new_id, refuse_busy, rename, route
from palaver.store.conversations.transcript import SEQS, journal
from palaver.store.conversations.visibility import get
from palaver.store.queue import inbox
from palaver.store.queue.steering import drop_parked, request_stop
from palaver.store.records import INBOX_COLUMNS, micros, received_of, source_of, source_text

__all__ = [
    "apart",
    "copy_part",
    "part",
    "spoke",
    "stop_common_turns",
]

# An entry belongs to whoever its turn answers; without a turn, to whoever began the session. What was undone stays
# undone, what a summary stands for comes back; the summary, which may tell of others, stays behind, and the title goes
# with whoever began it.
_THEIRS = (
    "e.id >= ? AND e.id < ? AND e.role <> 'summary' AND (e.hidden_by IS NULL OR EXISTS (SELECT 1 FROM operations o"
    " WHERE o.no = e.hidden_by AND o.kind = 'compaction'))"
    " AND coalesce((SELECT t.identity FROM turns t WHERE t.no = e.turn_no), ?) IN "
)
_TURNS = "SELECT turn_no FROM entries WHERE id >= ? AND id < ? AND turn_no IS NOT NULL"


def apart(profile: str, session: str) -> SessionKey:
    """A place of its own for a session, where nobody can speak: no source leads there."""
    return SessionKey(profile, chat=session)


def _theirs(session: Session, people: Collection[str]) -> tuple[str, tuple[Value, ...]]:
    names, first = sorted(people), session.number * SEQS
    marks = ", ".join("?" * len(names))
    return f"{_THEIRS} ({marks})", (first, first + SEQS, identity_of(session.origin) or "", *names)


@transaction
def spoke(session: Session, people: Collection[str]) -> Statements[bool]:
    """Whether anything in a session is theirs."""
    where, values = _theirs(session, people)
    return bool((yield f"SELECT 1 FROM entries e WHERE {where} LIMIT 1", values))


@transaction
def copy_part(session: Session, people: Collection[str], now: datetime) -> Statements[Session]:
    """What is theirs in a session, in a session that only they may read. Its turns go along."""
    number = yield from _new_session(session, people, now)
    yield (
        "INSERT INTO participants (identity, session_no) SELECT identity, ? FROM participants"
        f" WHERE session_no = ? AND left_at IS NULL AND identity IN ({', '.join('?' * len(people))})",
        (number, session.number, *sorted(people)),
    )
    where, values = _theirs(session, people)
    yield (
        "INSERT INTO entries (id, role, turn_no, observed, body)"
        f" SELECT e.id + ?, e.role, e.turn_no, e.observed, e.body FROM entries e WHERE {where}",
        ((number - session.number) * SEQS, *values),
    )
    yield from copy_files(session.number * SEQS, number * SEQS, SEQS)
    yield from journal("append", number, 1, session.counters.entries)
    yield from _take_turns(session, number)
    copied = yield from get(number)
    if session.title is None or session.owner not in people:
        return copied
    return (yield from rename(copied.id, session.title, Principal.operator()))


def _new_session(session: Session, people: Collection[str], now: datetime) -> Statements[int]:
    id_ = new_id(now)
    origin = (
        session.origin if identity_of(session.origin) in people else source_behind(min(people), session.key.profile)
    )
    rows = yield (
        "INSERT INTO sessions (id, key, profile, platform, owner, origin, parent, started, ended, end_reason,"
        " last_human, last_active, next_seq, override) SELECT ?, ?, profile, ?, ?, ?, id, started, ?, ?,"
        " last_human, last_active, next_seq, override FROM sessions WHERE no = ? RETURNING no",
        (
            id_,
            apart(session.key.profile, id_).text,
            origin.platform,
            identity_of(origin),
            source_text(origin),
            session.ended and micros(session.ended),
            session.end_reason,
            session.number,
        ),
    )
    return rows[0][0]


def _take_turns(session: Session, number: int) -> Statements[None]:
    """What became of them is told where they are, and what they cost counts there."""
    copied = number * SEQS, (number + 1) * SEQS
    yield (
        f"UPDATE turns SET session_no = ? WHERE session_no = ? AND no IN ({_TURNS})",
        (number, session.number, *copied),
    )
    sums = ", ".join(
        f"{column} = (SELECT coalesce({total}, 0) FROM turns t WHERE t.session_no = ? AND t.no IN ({_TURNS}))"
        for column, total in _SUMS.items()
    )
    yield f"UPDATE sessions SET {sums} WHERE no = ?", (*(number, *copied) * len(_SUMS), number)


_SUMS = {
    "turns": "count(*)",
    "input_tokens": "sum(t.input_tokens)",
    "output_tokens": "sum(t.output_tokens)",
    "cost_micros": "sum(t.cost_micros)",
}


People = Mapping[frozenset[str], str]
"""Those who were one person until now, and who each of them is from now on."""
_NOTE = "the people who shared this conversation are not linked any more; nothing was allowed"


class _Home(NamedTuple):
    """A place that leads to a conversation."""

    key: SessionKey
    address: Source


@transaction
def stop_common_turns(identities: Collection[str], now: datetime, *, by: str) -> Statements[bool]:
    """Whether turns are at work on what these people have in common; they are asked to stop."""
    busy = False
    for number in (yield from _common(identities)):
        session = yield from get(number)
        busy = (yield from request_stop(session.key, now, by=by)) or busy
    return busy


@transaction
def part(person: str, people: People, now: datetime) -> Statements[None]:
    for number in (yield from _common(_everyone(people))):
        yield from _part(number, people, now)
    yield from _lead_home(people, now)
    yield from _readdress(person, people)


def _everyone(people: People) -> frozenset[str]:
    return frozenset[str]().union(*people)


def _circle(people: People, identity: str | None) -> frozenset[str]:
    return next((circle for circle in people if identity in circle), frozenset[str]())


def _common(identities: Collection[str]) -> Statements[list[int]]:
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


def _part(number: int, people: People, now: datetime) -> Statements[None]:
    session = yield from _held(number, now)
    rows = yield "SELECT identity FROM participants WHERE session_no = ? AND left_at IS NULL", (number,)
    there = frozenset(row[0] for row in rows)
    sides = [circle for circle in people if circle & there]
    if len(sides) == 1 and (yield from _is_at_home(session, sides[0], people)):
        return
    if _is_of_people(session.key):
        yield from undo_log.give_up(session.key, now)
    if session.key.shared or there - _everyone(people):
        yield from _see_guests_off(session, there & _everyone(people), now)
    else:
        yield from _divide(session, sides, people, now)


def _is_of_people(key: SessionKey) -> bool:
    """Of a person, or of the owner, wherever they are; a session apart has its own id for a chat."""
    return not key.platform and not key.chat


def _is_at_home(session: Session, side: frozenset[str], people: People) -> Statements[bool]:
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


def _held(number: int, now: datetime) -> Statements[Session]:
    held = ""
    while (session := (yield from get(number))).key.text != held:
        held = session.key.text
        yield Lock(held)
    yield from drop_parked(session.key, now, note=_NOTE, error="left without an answer")
    yield from refuse_busy(session)
    return session


# A conversation of theirs alone


def _divide(session: Session, sides: Collection[frozenset[str]], people: People, now: datetime) -> Statements[None]:
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


def _homes(session: Session, people: People) -> Statements[dict[frozenset[str], _Home]]:
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


def _leads_elsewhere(key: SessionKey, session: Session) -> Statements[bool]:
    return bool((yield "SELECT 1 FROM routes WHERE key = ? AND session_no <> ?", (key.text, session.number)))


def _settle(session: Session, home: _Home | None, now: datetime) -> Statements[None]:
    """Where it goes on; if that is nowhere it is over, in a place of its own."""
    key = home.key if home else apart(session.key.profile, session.id)
    yield "DELETE FROM routes WHERE session_no = ? AND key <> ?", (session.number, key.text)
    ended: tuple[Value, ...] = (session.ended and micros(session.ended), session.end_reason)
    if home is None and session.ended is None:
        ended = (micros(now), "switched")
    yield "UPDATE sessions SET key = ?, ended = ?, end_reason = ? WHERE no = ?", (key.text, *ended, session.number)
    if home:
        yield from route(key, session.number, home.address)


def _leave(session: Session, identities: Iterable[str], now: datetime) -> Statements[None]:
    rows: list[tuple[Value, ...]] = [(micros(now), session.number, identity) for identity in sorted(identities)]
    yield "UPDATE participants SET left_at = ? WHERE session_no = ? AND identity = ?", rows


# A conversation with others in it


def _see_guests_off(session: Session, ours: Collection[str], now: datetime) -> Statements[None]:
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


def _lead_home(people: People, now: datetime) -> Statements[None]:
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
            yield from attach.detach(place, now)


def _may_stay(key: SessionKey, identities: Collection[str]) -> Statements[bool]:
    rows = yield (
        "SELECT r.address FROM routes r JOIN participants p ON p.session_no = r.session_no WHERE r.key = ?"
        f" AND p.left_at IS NULL AND p.identity IN ({', '.join('?' * len(identities))})",
        (key.text, *sorted(identities)),
    )
    return any(key.shared or identity_of(source_of(address)) in identities for (address,) in rows)


def _readdress(person: str, people: People) -> Statements[None]:
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
