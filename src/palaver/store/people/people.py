"""People and their identities, created at first contact."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Lock, Row, Statements, transaction
from palaver.model.errors import NotFound
from palaver.model.label import Label
from palaver.model.session import Principal
from palaver.model.source import DM, Source, identity_of
from palaver.model.turn import Received
from palaver.model.value import value
from palaver.store.conversations.sessions import new_id
from palaver.store.records import SELECT_RECEIVED, instant, micros, readable, received_of, source_in


@value
class Identity:
    """One account of a person on a platform."""

    identity: str
    name: Label | None
    since: datetime


@value
class Person:
    id: str
    name: Label | None
    since: datetime
    identities: tuple[Identity, ...] = ()


@value
class Party:
    """One side of an offer to link: the account, its chat, and all identities linked with it."""

    identity: str
    address: Source
    identities: tuple[Identity, ...]


@value
class Offer:
    """Two people who would become one, seen from one side."""

    mine: Party
    theirs: Party
    linked: bool = False
    """Both have agreed, and the link is made."""
    changed: bool = False
    """The accounts of one side have changed: both have to agree again."""


@transaction
def meet_sender(received: Received) -> Statements[None]:
    """Make the sender of a message a person at first contact."""
    identity, name = identity_of(received.inbound.source), received.inbound.labels.user
    if identity:
        yield from person_of(identity, received.received, name=name and name.stored())


@transaction
def person_of(identity: str, now: datetime, *, name: str | None = None) -> Statements[str]:
    """Return the person behind an identity, a new one at first contact."""
    rows = yield "SELECT person FROM identities WHERE identity = ?", (identity,)
    if not rows:
        yield Lock(f"identity {identity}")
        rows = yield "SELECT person FROM identities WHERE identity = ?", (identity,)
    return rows[0][0] if rows else (yield from _new_person(identity, now, name))


def _new_person(identity: str, now: datetime, name: str | None) -> Statements[str]:
    person, moment = new_id(now), micros(now)
    called = name and Label(name).plain()
    yield "INSERT INTO people (id, name, created) VALUES (?, ?, ?)", (person, called, moment)
    yield (
        "INSERT INTO identities (identity, person, original_person, name, created) VALUES (?, ?, ?, ?, ?)",
        (identity, person, person, called, moment),
    )
    return person


@transaction
def identities_of(person: str) -> Statements[frozenset[str]]:
    rows = yield "SELECT identity FROM identities WHERE person = ?", (person,)
    return frozenset(row[0] for row in rows)


@transaction
def principal_of(identity: str) -> Statements[Principal]:
    """Return the principal of a person, who can read what any of their identities took part in."""
    rows = yield (
        "SELECT other.identity FROM identities mine JOIN identities other ON other.person = mine.person"
        " WHERE mine.identity = ?",
        (identity,),
    )
    return Principal(identities=frozenset({identity, *(row[0] for row in rows)}), speaks_as=identity)


@transaction
def principal_for(source: Source) -> Statements[Principal]:
    """Return the principal of the person who speaks. Call it in the transaction that uses it."""
    alone = Principal.speaking(source)
    if alone.speaks_as is None:
        return alone
    return replace((yield from principal_of(alone.speaks_as)), profile=alone.profile)


@transaction
def linked_people() -> Statements[Mapping[str, str]]:
    """Return the person behind each identity that is linked with another."""
    rows = yield (
        "SELECT identity, person FROM identities WHERE identity IN (SELECT one FROM links WHERE until IS NULL"
        " UNION SELECT other FROM links WHERE until IS NULL)",
        (),
    )
    return dict(rows)


_COLUMNS = "p.id, p.name, p.created, i.identity, i.name, i.created"


@transaction
def list_people(principal: Principal, *, after: str = "", limit: int = 100) -> Statements[list[Person]]:
    """List people in order of first contact, starting after the id `after`; for principals who see all."""
    rows = yield (
        f"SELECT {_COLUMNS} FROM people p JOIN identities i ON i.person = p.id WHERE p.id IN (SELECT p.id FROM people p"
        " WHERE p.id > ? AND ? = 1 AND EXISTS (SELECT 1 FROM identities i WHERE i.person = p.id) ORDER BY p.id LIMIT ?)"
        " ORDER BY p.id, i.created, i.identity",
        (after, int(principal.sees_all), limit),
    )
    return _people(rows)


@transaction
def find_person(name: str, principal: Principal) -> Statements[Person]:
    """Find a person by id or identity; for the person, and for principals who see all."""
    rows = yield (
        f"SELECT {_COLUMNS} FROM people p JOIN identities i ON i.person = p.id WHERE p.id = ?"
        " OR p.id = (SELECT person FROM identities WHERE identity = ?) ORDER BY p.id, i.created, i.identity",
        (name, name),
    )
    for person in _people(rows):
        if principal.sees_all or any(each.identity in principal.identities for each in person.identities):
            return person
    raise NotFound("person", name)


def _people(rows: Sequence[Row]) -> list[Person]:
    found: dict[str, Person] = {}
    for id_, name, created, identity, called, since in rows:
        person = found.get(id_) or Person(id=id_, name=_label(name), since=instant(created))
        known = Identity(identity=identity, name=_label(called), since=instant(since))
        found[id_] = replace(person, identities=(*person.identities, known))
    return list(found.values())


def _label(name: str | None) -> Label | None:
    return Label(name) if name else None


_RECENT = 50


@transaction
def direct_addresses(identities: Iterable[str]) -> Statements[dict[str, Source]]:
    """Return the direct chat that each of these identities wrote in last, as far as one is known."""
    found: dict[str, Source] = {}
    for identity in sorted(identities):
        messages = yield (
            f"{SELECT_RECEIVED} WHERE i.identity = ? AND length(i.body) > 0"
            " AND coalesce(i.place, i.key) || ':' LIKE '%:dm:%' ORDER BY i.no DESC LIMIT ?",
            (identity, _RECENT),
        )
        # Retention deletes messages before sessions.
        sessions = yield (
            "SELECT s.no, s.origin FROM participants p JOIN sessions s ON s.no = p.session_no WHERE p.identity = ?"
            " ORDER BY s.no DESC LIMIT ?",
            (identity, _RECENT),
        )
        written = (received.inbound.source for received in readable(received_of, messages))
        sources = (*written, *readable(source_in, sessions))
        theirs = (source for source in sources if source.chat_kind == DM and identity_of(source) == identity)
        direct = next(theirs, None)
        if direct:
            found[identity] = direct
    return found
