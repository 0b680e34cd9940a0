"""Links in the store: offered by a code that the other side enters, made by the yes of both, and taken back."""

from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Lock, Statements, transaction
from palaver.model.errors import BadArgument, LockedOut
from palaver.model.label import Label
from palaver.model.links import VALID_FOR
from palaver.model.pairing import LOCKED_FOR, locked_until
from palaver.model.session import Principal, identity_of
from palaver.model.source import Source
from palaver.store.people.identity_merge import link, unlink, unlink_last
from palaver.store.people.people import Offer, Party, find_person, person_of
from palaver.store.records import instant, json_text, micros, source_of, source_text

__all__ = [
    "agree",
    "enter",
    "link",
    "offer",
    "unlink",
    "unlink_last",
    "withdraw",
]

_NOBODY_ELSE = Lock("links")
"""Whom somebody is told they would be linked with does not change while it is looked at."""


@transaction
def offer(source: Source, name: Label | None, code_hash: str, now: datetime) -> Statements[None]:
    yield _NOBODY_ELSE
    identity = yield from _introduce(source, name, now)
    yield from _forget(identity)
    yield "DELETE FROM offers WHERE expires <= ?", (micros(now),)
    yield (
        "INSERT INTO offers (identity, address, code_hash, expires) VALUES (?, ?, ?, ?)",
        (identity, source_text(source), code_hash, micros(now + VALID_FOR)),
    )


@transaction
def enter(source: Source, name: Label | None, code_hash: str, now: datetime) -> Statements[Offer | None]:
    yield _NOBODY_ELSE
    identity = yield from _introduce(source, name, now)
    yield from _refuse_locked_out(identity, now)
    rows = yield "SELECT identity FROM offers WHERE code_hash = ? AND expires > ?", (code_hash, micros(now))
    if not rows:
        yield "INSERT INTO wrong_codes (identity, at) VALUES (?, ?)", (identity, micros(now))
        return None
    yield from _refuse_oneself(rows[0][0], identity, now)
    yield "DELETE FROM wrong_codes WHERE identity = ?", (identity,)
    yield from _forget(identity)
    yield (
        "UPDATE offers SET code_hash = NULL, guest = ?, guest_address = ?, expires = ? WHERE identity = ?",
        (identity, source_text(source), micros(now + VALID_FOR), rows[0][0]),
    )
    found, _ = yield from _stated(identity, now)
    return found


def _introduce(source: Source, name: Label | None, now: datetime) -> Statements[str]:
    """The identity that speaks, known by the name it has now."""
    identity = identity_of(source) or ""
    yield from person_of(identity, now)
    if name is not None:
        yield "UPDATE identities SET name = ? WHERE identity = ?", (name.plain(), identity)
    return identity


def _refuse_locked_out(identity: str, now: datetime) -> Statements[None]:
    yield "DELETE FROM wrong_codes WHERE at < ?", (micros(now - LOCKED_FOR - LOCKED_FOR),)
    rows = yield "SELECT at FROM wrong_codes WHERE identity = ? ORDER BY no DESC", (identity,)
    until = locked_until([instant(row[0]) for row in rows])
    if until and now < until:
        raise LockedOut(until)


def _refuse_oneself(one: str, other: str, now: datetime) -> Statements[None]:
    if (yield from person_of(one, now)) == (yield from person_of(other, now)):
        raise BadArgument(
            "This code is your own, entered as",
            found=other,
            allowed="an account of yours that is not linked yet",
            example="the same command, in a direct chat of your other account",
        )


def _forget(identity: str) -> Statements[None]:
    """Whoever offers or enters anew gives up what they were at before."""
    yield "DELETE FROM offers WHERE identity = ? OR guest = ?", (identity, identity)


@transaction
def agree(identity: str, now: datetime) -> Statements[Offer | None]:
    yield _NOBODY_ELSE
    found, agreed = yield from _stated(identity, now)
    if found is None or found.changed or agreed == identity:
        return found
    if agreed is None:
        yield "UPDATE offers SET agreed = ? WHERE identity = ? OR guest = ?", (identity, identity, identity)
        return found
    yield from link(found.theirs.identity, identity, now, by=identity)
    yield from _forget(identity)
    return replace(found, linked=True)


@transaction
def withdraw(identity: str, now: datetime) -> Statements[Offer | None]:
    yield _NOBODY_ELSE
    found, _ = yield from _stated(identity, now)
    yield from _forget(identity)
    return found


def _stated(identity: str, now: datetime) -> Statements[tuple[Offer | None, str | None]]:
    """What both sides were told, and who has said yes to it. Where it is not true any more, both are asked anew."""
    rows = yield (
        "SELECT identity, address, guest, guest_address, stated, agreed FROM offers"
        " WHERE (identity = ? OR guest = ?) AND guest IS NOT NULL AND expires > ?",
        (identity, identity, micros(now)),
    )
    if not rows:
        return None, None
    one, address, guest, guest_address, stated, agreed = rows[0]
    host = yield from _party(one, address)
    visitor = yield from _party(guest, guest_address)
    names = json_text([[each.identity for each in party.identities] for party in (host, visitor)])
    if stated != names:
        agreed = None
        yield "UPDATE offers SET stated = ?, agreed = NULL WHERE identity = ?", (names, one)
    mine, theirs = (host, visitor) if identity == one else (visitor, host)
    return Offer(mine=mine, theirs=theirs, changed=stated not in {None, names}), agreed


def _party(identity: str, address: str) -> Statements[Party]:
    person = yield from find_person(identity, Principal.operator())
    return Party(identity=identity, address=source_of(address), identities=person.identities)
