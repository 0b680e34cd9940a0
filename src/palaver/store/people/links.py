"""Links between identities: offered with a code, made when both sides agree, and ended again."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import PEOPLE, Lock, Notify, Statements, Value, transaction
from palaver.model.errors import BadArgument, LockedOut
from palaver.model.key import SessionKey
from palaver.model.label import Label
from palaver.model.people import LOCKOUT, OFFER_LIFETIME, Link, group_identities, locked_until, replacement_links
from palaver.model.session import Principal, Session
from palaver.model.source import DM, Source, identity_of, readable_identity
from palaver.model.value import value
from palaver.store.conversations.sessions import DELIBERATE_ENDS, switch
from palaver.store.conversations.titles import renumber_titles
from palaver.store.people.grants import ChangeKind, record
from palaver.store.people.linked_conversations import People, list_at_home, separate, stop_turns
from palaver.store.people.memory import return_separated
from palaver.store.people.people import Offer, Party, find_person, identities_of, person_of
from palaver.store.records import (
    SESSION_COLUMNS,
    instant,
    json_text,
    micros,
    placeholders,
    readable,
    session_of,
    source_of,
    source_text,
)

_LINKS = Lock("links")
"""Who is linked with whom does not change between the question that both sides see and their answers."""


# Offers


@transaction
def offer(source: Source, name: Label | None, code_hash: str, now: datetime) -> Statements[None]:
    yield _LINKS
    identity = yield from _meet(source, name, now)
    yield from _drop_offers(identity)
    yield "DELETE FROM link_offers WHERE expires <= ?", (micros(now),)
    yield (
        "INSERT INTO link_offers (identity, address, code_hash, expires) VALUES (?, ?, ?, ?)",
        (identity, source_text(source), code_hash, micros(now + OFFER_LIFETIME)),
    )


@transaction
def enter_code(source: Source, name: Label | None, code_hash: str, now: datetime) -> Statements[Offer | None]:
    """Return the offer with that code, for both sides to agree to; None for a wrong code."""
    yield _LINKS
    identity = yield from _meet(source, name, now)
    yield from _check_not_locked_out(identity, now)
    rows = yield "SELECT identity FROM link_offers WHERE code_hash = ? AND expires > ?", (code_hash, micros(now))
    if not rows:
        yield "INSERT INTO wrong_codes (identity, at) VALUES (?, ?)", (identity, micros(now))
        return None
    yield from _check_different_people(rows[0][0], identity, now)
    yield "DELETE FROM wrong_codes WHERE identity = ?", (identity,)
    yield from _drop_offers(identity)
    yield (
        "UPDATE link_offers SET code_hash = NULL, guest = ?, guest_address = ?, expires = ? WHERE identity = ?",
        (identity, source_text(source), micros(now + OFFER_LIFETIME), rows[0][0]),
    )
    found, _ = yield from _find_offer(identity, now)
    return found


def _meet(source: Source, name: Label | None, now: datetime) -> Statements[str]:
    """Return the identity that speaks, stored with the name it has now."""
    identity = identity_of(source) or ""
    yield from person_of(identity, now)
    if name is not None:
        yield "UPDATE identities SET name = ? WHERE identity = ?", (name.plain(), identity)
    return identity


def _check_not_locked_out(identity: str, now: datetime) -> Statements[None]:
    yield "DELETE FROM wrong_codes WHERE at < ?", (micros(now - LOCKOUT - LOCKOUT),)
    rows = yield "SELECT at FROM wrong_codes WHERE identity = ? ORDER BY no DESC", (identity,)
    until = locked_until([instant(row[0]) for row in rows])
    if until and now < until:
        raise LockedOut(until)


def _check_different_people(one: str, other: str, now: datetime) -> Statements[None]:
    if (yield from person_of(one, now)) == (yield from person_of(other, now)):
        raise BadArgument(
            "You entered your own code as",
            found=readable_identity(other),
            allowed="it from an account of yours that is not linked yet",
            example="by sending the same command in a direct chat from that account",
        )


def _drop_offers(identity: str) -> Statements[None]:
    """Drop what an identity offered or entered before: it has one offer at a time."""
    yield "DELETE FROM link_offers WHERE identity = ? OR guest = ?", (identity, identity)


@transaction
def agree(identity: str, now: datetime) -> Statements[Offer | None]:
    """Link when both sides have agreed; None if there is no offer."""
    yield _LINKS
    found, agreed = yield from _find_offer(identity, now)
    if found is None or found.changed or agreed == identity:
        return found
    if agreed is None:
        yield "UPDATE link_offers SET agreed_by = ? WHERE identity = ? OR guest = ?", (identity, identity, identity)
        return found
    yield from link(found.theirs.identity, identity, now, by=identity)
    yield from _drop_offers(identity)
    return replace(found, linked=True)


@transaction
def withdraw(identity: str, now: datetime) -> Statements[Offer | None]:
    yield _LINKS
    found, _ = yield from _find_offer(identity, now)
    yield from _drop_offers(identity)
    return found


def _find_offer(identity: str, now: datetime) -> Statements[tuple[Offer | None, str | None]]:
    """Return the offer and who agreed to it. If its accounts have changed, both sides have to agree again."""
    rows = yield (
        "SELECT identity, address, guest, guest_address, stated_accounts, agreed_by FROM link_offers"
        " WHERE (identity = ? OR guest = ?) AND guest IS NOT NULL AND expires > ?",
        (identity, identity, micros(now)),
    )
    if not rows:
        return None, None
    one, address, guest, guest_address, stated, agreed = rows[0]
    host = yield from _party(one, address)
    visitor = yield from _party(guest, guest_address)
    names = json_text([[account.identity for account in party.identities] for party in (host, visitor)])
    if stated != names:
        agreed = None
        yield "UPDATE link_offers SET stated_accounts = ?, agreed_by = NULL WHERE identity = ?", (names, one)
    mine, theirs = (host, visitor) if identity == one else (visitor, host)
    return Offer(mine=mine, theirs=theirs, changed=stated not in {None, names}), agreed


def _party(identity: str, address: str) -> Statements[Party]:
    person = yield from find_person(identity, Principal.operator())
    return Party(identity=identity, address=source_of(address), identities=person.identities)


# Linking and unlinking


@value
class Unlinked:
    people: tuple[frozenset[str], ...]
    """The identities of each person there is now."""
    common: tuple[Session, ...] = ()
    """Conversations in which several of them took part: they have ended and stay readable for all of those."""
    at_home: frozenset[str] = frozenset()
    """The identities of those who have a direct conversation of their own open."""
    is_busy: bool = False
    """Nothing was unlinked yet: a turn in a common conversation has to stop first."""


@transaction
def link(one: str, other: str, now: datetime, *, by: str) -> Statements[str]:
    """Make two identities, and everyone linked with them, one person; return that person."""
    yield _LINKS
    first, second = (yield from person_of(one, now)), (yield from person_of(other, now))
    if first == second:
        return first
    everyone = (yield from identities_of(first)) | (yield from identities_of(second))
    yield from _insert_links([(one, other)], now, by)
    yield from record(ChangeKind.LINKED, now, by, one, {"with": other})
    person = yield from _eldest(everyone)
    yield from _assign(everyone, person)
    yield from renumber_titles(one)
    return person


@transaction
def link_once(one: str, other: str, now: datetime, *, by: str) -> Statements[bool]:
    """Link two identities, unless they were linked before: an unlink stays. Return whether it linked them."""
    yield _LINKS
    rows = yield "SELECT 1 FROM links WHERE one = ? AND other = ?", (one, other)
    if rows or (yield from person_of(one, now)) == (yield from person_of(other, now)):
        return False
    yield from link(one, other, now, by=by)
    return True


@transaction
def continue_last(identity: str, profile: str, now: datetime) -> Statements[Session | None]:
    """Make the conversation that a person used last the one that all their direct chats share; None without one."""
    person = yield from person_of(identity, now)
    identities = yield from identities_of(person)
    key = SessionKey(profile, person=person)
    names = tuple(sorted(identities))
    theirs = f"SELECT session_no FROM participants WHERE identity IN ({placeholders(names)})"
    rows = yield (
        f"SELECT {SESSION_COLUMNS} FROM sessions s JOIN routes r ON r.key = s.key AND r.session_no = s.no WHERE s.no IN"
        f" ({theirs}) AND s.profile = ? AND s.owner IN ({placeholders(names)}) ORDER BY +s.last_active DESC, s.no DESC",
        (*names, profile, *names),
    )
    sessions = readable(session_of, rows)
    last = next((each for each in sessions if each.key.kind == DM and each.end_reason not in DELIBERATE_ENDS), None)
    if last is None or last.key == key:
        return last
    # Under its own address: nobody takes part in it merely by being linked.
    return (yield from switch(key, last.origin, last.id, Principal.operator(), now, by=last.owner))


@transaction
def unlink(identity: str, now: datetime, *, by: str) -> Statements[Unlinked]:
    """Take one identity out; the others stay together."""
    yield _LINKS
    person = yield from person_of(identity, now)
    links = yield from _links_within(person)
    ended = [each for each in links if identity in each[1:]]
    return (yield from _end_links(person, links, ended, replacement_links(identity, links), now, by))


@transaction
def unlink_last(identity: str, now: datetime, *, by: str) -> Statements[Unlinked]:
    yield _LINKS
    person = yield from person_of(identity, now)
    links = yield from _links_within(person)
    return (yield from _end_links(person, links, links[-1:], (), now, by))


def _end_links(
    person: str, links: Sequence[Link], ended: Sequence[Link], added: Iterable[tuple[str, str]], now: datetime, by: str
) -> Statements[Unlinked]:
    kept = [*(each for each in links if each not in ended), *(Link(0, *pair) for pair in added)]
    people: dict[frozenset[str], str] = {}
    for identities in group_identities((yield from identities_of(person)), kept):
        people[identities] = yield from _eldest(identities)
    if len(people) > 1 and (yield from stop_turns(people, now, by=by)):
        return Unlinked(people=tuple(people), is_busy=True)
    rows: list[tuple[Value, ...]] = [(micros(now), by, each.number) for each in ended]
    yield "UPDATE links SET until = ?, until_by = ? WHERE no = ?", rows
    yield from _insert_links((each[1:] for each in kept if not each.number), now, by)
    if len(people) == 1:
        return Unlinked(people=tuple(people))
    for each in ended:
        yield from record(ChangeKind.UNLINKED, now, by, each.one, {"from": each.other})
    return (yield from _separate(person, people, now))


def _separate(person: str, people: People, now: datetime) -> Statements[Unlinked]:
    for identities, name in people.items():
        yield from _assign(identities, name)
    yield from return_separated(list(people.values()))
    common = yield from separate(person, people, now)
    at_home = yield from list_at_home(people)
    return Unlinked(people=tuple(people), common=tuple(common), at_home=at_home)


def _links_within(person: str) -> Statements[list[Link]]:
    """Return the links between the identities of a person, oldest first."""
    rows = yield (
        "SELECT l.no, l.one, l.other FROM links l JOIN identities i ON i.identity = l.one"
        " WHERE i.person = ? AND l.until IS NULL ORDER BY l.no",
        (person,),
    )
    return [Link(*row) for row in rows]


def _insert_links(pairs: Iterable[tuple[str, str]], now: datetime, by: str) -> Statements[None]:
    rows: list[tuple[Value, ...]] = [(one, other, micros(now), by) for one, other in pairs]
    yield "INSERT INTO links (one, other, since, actor) VALUES (?, ?, ?, ?)", rows


def _eldest(identities: frozenset[str]) -> Statements[str]:
    """Return the eldest of the people that these identities were born as: the same identities are the same person."""
    rows = yield (
        "SELECT p.id FROM identities i JOIN people p ON p.id = i.original_person"
        f" WHERE i.identity IN ({placeholders(identities)}) ORDER BY p.created, p.id LIMIT 1",
        tuple(sorted(identities)),
    )
    return rows[0][0]


def _assign(identities: frozenset[str], person: str) -> Statements[None]:
    yield (
        f"UPDATE identities SET person = ? WHERE identity IN ({placeholders(identities)})",
        (person, *sorted(identities)),
    )
    yield Notify(PEOPLE)


@transaction
def merge(old: str, new: str) -> Statements[bool]:
    """Replace an identity by another form of it; False if it was not known."""
    yield _LINKS
    yield from _drop_offers(old)
    rows = yield "SELECT identity, person FROM identities WHERE identity IN (?, ?)", (old, new)
    persons = dict(rows)
    if old not in persons:
        return False
    everyone: frozenset[str] = frozenset({new})
    for person in sorted(set(persons.values())):
        everyone |= (yield from identities_of(person)) - {old}
    yield "DELETE FROM links WHERE one IN (?, ?) AND other IN (?, ?)", (old, new) * 2
    yield "UPDATE links SET one = ? WHERE one = ?", (new, old)
    yield "UPDATE links SET other = ? WHERE other = ?", (new, old)
    if new in persons:
        yield (
            "UPDATE grants SET person = (SELECT original_person FROM identities WHERE identity = ?)"
            " WHERE person = (SELECT original_person FROM identities WHERE identity = ?)",
            (new, old),
        )
        yield "DELETE FROM identities WHERE identity = ?", (old,)
    else:
        yield "UPDATE identities SET identity = ? WHERE identity = ?", (new, old)
    links: list[Link] = []
    for person in sorted(set(persons.values())):
        links += yield from _links_within(person)
    for identities in group_identities(everyone, links):
        yield from _assign(identities, (yield from _eldest(identities)))
    return True
