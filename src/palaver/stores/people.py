"""People in the store: who is who, and under which names."""

from collections.abc import Mapping
from datetime import datetime

from palaver.domain.ids import decode_id, encode_id
from palaver.domain.session import Principal
from palaver.ports.store import PEOPLE
from palaver.ports.work import Lock, Notify, Steps, work
from palaver.stores.records import micros
from palaver.stores.sessions import new_id

__all__ = [
    "add_alias",
    "aliases",
    "all_aliases",
    "identities_of",
    "link",
    "person_of",
    "principal_of",
    "unlink",
]

_CHANGED = Notify(PEOPLE)


@work
def person_of(identity: str, now: datetime, *, name: str | None = None) -> Steps[str]:
    """The person behind an identity; a new one at first contact."""
    yield Lock(identity)
    rows = yield "SELECT person FROM identities WHERE identity = ?", (identity,)
    if rows:
        return rows[0][0]
    return (yield from _new_person(identity, now, name))


def _new_person(identity: str, now: datetime, name: str | None) -> Steps[str]:
    person = new_id(now)
    yield "INSERT INTO people (id, name, created) VALUES (?, ?, ?)", (person, name, micros(now))
    yield (
        "INSERT INTO identities (identity, person, name, created) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (identity) DO UPDATE SET person = excluded.person",
        (identity, person, name, micros(now)),
    )
    return person


@work
def identities_of(person: str) -> Steps[frozenset[str]]:
    rows = yield "SELECT identity FROM identities WHERE person = ?", (person,)
    return frozenset(row[0] for row in rows)


@work
def principal_of(identity: str) -> Steps[Principal]:
    """A person may read what any of their identities took part in."""
    rows = yield (
        "SELECT other.identity FROM identities mine JOIN identities other ON other.person = mine.person"
        " WHERE mine.identity = ?",
        (identity,),
    )
    return Principal(identities=frozenset({identity, *(row[0] for row in rows)}))


@work
def link(identity: str, other: str, now: datetime) -> Steps[str]:
    """Make two identities one person: the second joins the first."""
    for name in sorted({identity, other}):
        yield Lock(name)
    person = yield from person_of(identity, now)
    yield from person_of(other, now)
    yield "UPDATE identities SET person = ? WHERE identity = ?", (person, other)
    return person


@work
def unlink(identity: str, now: datetime) -> Steps[str]:
    """Make an identity a person of its own again."""
    yield Lock(identity)
    person = yield from person_of(identity, now)
    alone = yield from identities_of(person)
    return person if len(alone) == 1 else (yield from _new_person(identity, now, None))


@work
def add_alias(platform: str, alias: str, canonical: str) -> Steps[None]:
    """Another form of one id, as the platform told us."""
    yield (
        "INSERT INTO aliases (platform, alias, canonical) VALUES (?, ?, ?)"
        " ON CONFLICT (platform, alias) DO UPDATE SET canonical = excluded.canonical",
        (platform, encode_id(alias), encode_id(canonical)),
    )
    yield _CHANGED


@work
def aliases(platform: str) -> Steps[Mapping[str, str]]:
    rows = yield "SELECT alias, canonical FROM aliases WHERE platform = ?", (platform,)
    return {decode_id(row[0]): decode_id(row[1]) for row in rows}


@work
def all_aliases() -> Steps[Mapping[str, Mapping[str, str]]]:
    """Of every platform."""
    rows = yield "SELECT platform, alias, canonical FROM aliases", ()
    found: dict[str, dict[str, str]] = {}
    for platform, alias, canonical in rows:
        found.setdefault(platform, {})[decode_id(alias)] = decode_id(canonical)
    return found
