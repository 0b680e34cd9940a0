"""Circles in the store: identities that are one person, and the people they are again when a link is taken back."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from palaver.db.database import PEOPLE
from palaver.db.transaction import Lock, Notify, Statements, Value, transaction
from palaver.model.links import Link, bridges, circles
from palaver.store.people.grants import ChangeKind, record
from palaver.store.people.people import identities_of, person_of
from palaver.store.people.unlink import part, stop_common_turns
from palaver.store.records import micros

__all__ = [
    "link",
    "merge",
    "unlink",
    "unlink_last",
]


@transaction
def link(one: str, other: str, now: datetime, *, by: str) -> Statements[str]:
    yield Lock("links")
    elder, younger = (yield from person_of(one, now)), (yield from person_of(other, now))
    if elder == younger:
        return elder
    everyone = (yield from identities_of(elder)) | (yield from identities_of(younger))
    yield from _join([(one, other)], now, by)
    yield from record(ChangeKind.LINKED, now, by, one, {"with": other})
    return (yield from _settle(everyone))


@transaction
def unlink(identity: str, now: datetime, *, by: str) -> Statements[list[frozenset[str]]]:
    yield Lock("links")
    person = yield from person_of(identity, now)
    if (yield from stop_common_turns((yield from identities_of(person)), now, by=by)):
        return []
    links = yield from _standing(person)
    gone = [each for each in links if each.touches(identity)]
    yield from _join(bridges(identity, links), now, by)
    return (yield from _take_back(person, gone, now, by))


@transaction
def unlink_last(identity: str, now: datetime, *, by: str) -> Statements[list[frozenset[str]]]:
    yield Lock("links")
    person = yield from person_of(identity, now)
    if (yield from stop_common_turns((yield from identities_of(person)), now, by=by)):
        return []
    links = yield from _standing(person)
    return (yield from _take_back(person, links[-1:], now, by))


def _take_back(person: str, gone: Sequence[Link], now: datetime, by: str) -> Statements[list[frozenset[str]]]:
    everyone = yield from identities_of(person)
    ends: list[tuple[Value, ...]] = [(micros(now), by, each.number) for each in gone]
    yield "UPDATE links SET until = ?, until_by = ? WHERE no = ?", ends
    people = circles(everyone, (yield from _standing(person)))
    if len(people) > 1:
        named: dict[frozenset[str], str] = {}
        for circle in people:
            named[circle] = yield from _settle(circle)
        yield from part(person, named, now)
        for each in gone:
            yield from record(ChangeKind.UNLINKED, now, by, each.one, {"from": each.other})
    return people


def _standing(person: str) -> Statements[list[Link]]:
    """The links within a person, in the order they were made."""
    rows = yield (
        "SELECT l.no, l.one, l.other FROM links l JOIN identities i ON i.identity = l.one"
        " WHERE i.person = ? AND l.until IS NULL ORDER BY l.no",
        (person,),
    )
    return [Link(*row) for row in rows]


def _join(pairs: Iterable[tuple[str, str]], now: datetime, by: str) -> Statements[None]:
    rows: list[tuple[Value, ...]] = [(one, other, micros(now), by) for one, other in pairs]
    yield "INSERT INTO links (one, other, since, by_whom) VALUES (?, ?, ?, ?)", rows


def _settle(circle: frozenset[str]) -> Statements[str]:
    """Whoever is linked is the eldest of those they were born as; so the same identities are always the same person."""
    names = sorted(circle)
    marks = ", ".join("?" * len(names))
    rows = yield (
        "SELECT p.id FROM identities i JOIN people p ON p.id = i.born"
        f" WHERE i.identity IN ({marks}) ORDER BY p.created, p.id LIMIT 1",
        tuple(names),
    )
    yield f"UPDATE identities SET person = ? WHERE identity IN ({marks})", (rows[0][0], *names)
    yield Notify(PEOPLE)
    return rows[0][0]


@transaction
def merge(was: str, is_now: str) -> Statements[bool]:
    """An identity turned out to be another form of one; False where it was not known."""
    yield Lock("links")
    yield "DELETE FROM offers WHERE identity = ? OR guest = ?", (was, was)
    rows = yield "SELECT identity, person FROM identities WHERE identity IN (?, ?)", (was, is_now)
    persons = dict(rows)
    if was not in persons:
        return False
    everyone: frozenset[str] = frozenset({is_now})
    for person in sorted(set(persons.values())):
        everyone |= (yield from identities_of(person)) - {was}
    yield "DELETE FROM links WHERE one IN (?, ?) AND other IN (?, ?)", (was, is_now) * 2
    yield "UPDATE links SET one = ? WHERE one = ?", (is_now, was)
    yield "UPDATE links SET other = ? WHERE other = ?", (is_now, was)
    if is_now in persons:
        yield "DELETE FROM identities WHERE identity = ?", (was,)
    else:
        yield "UPDATE identities SET identity = ? WHERE identity = ?", (is_now, was)
    links: list[Link] = []
    for person in sorted(set(persons.values())):
        links += yield from _standing(person)
    for circle in circles(everyone, links):
        yield from _settle(circle)
    return True
