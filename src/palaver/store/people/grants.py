"""Grants in the store: who may do what, and a row for everything that changed it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from palaver.db.database import PEOPLE
from palaver.db.transaction import Lock, Notify, Row, Statements, transaction
from palaver.model.access import AccessRole, Basis, Effect, Grant, keeps_an_owner, replaced_grants
from palaver.model.errors import LastOwner
from palaver.model.ids import decode_id, encode_id
from palaver.model.label import Label
from palaver.model.source import Source
from palaver.model.value import value
from palaver.store.records import from_json, instant, json_text, micros

__all__ = [
    "Change",
    "ChangeKind",
    "Stranger",
    "Table",
    "add",
    "changes",
    "record",
    "remove",
    "table",
]


class ChangeKind(StrEnum):
    GRANTED = "granted"
    REVOKED = "revoked"
    ASKED = "asked"
    """A stranger was given a code."""
    APPROVED = "approved"
    DENIED = "denied"
    WRONG_CODE = "wrong-code"
    LINKED = "linked"
    UNLINKED = "unlinked"
    MOVED = "moved"
    """A chat has another id, and grants for it name that."""


@value
class Change:
    """Who changed what about access, and when."""

    number: int
    at: datetime
    by: str
    kind: ChangeKind
    identity: str | None = None
    details: Mapping[str, str] = field(default_factory=dict[str, str])


@value
class Table:
    """Every grant under its number, as of the last change."""

    version: int = -1
    grants: Mapping[int, Grant] = field(default_factory=dict[int, Grant])
    people: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the people that grants name, every identity."""


@value
class Stranger:
    """Somebody who was given a code, or was let in with it."""

    identity: str
    source: Source
    name: Label | None
    asked: datetime
    expires: datetime
    kept: int
    """How many messages wait with them."""


_COLUMNS = "effect, role, basis, platform, account, scope_id, chat_id, user_id, person"
_ONE_AT_A_TIME = Lock("grants")
"""So the numbers of changes grow in the order in which they are committed."""


@transaction
def table(known: Table) -> Statements[Table]:
    rows = yield "SELECT coalesce(max(no), 0) FROM access_log", ()
    version = rows[0][0]
    if version == known.version:
        return known
    grants = yield from _grants()
    people = {grant.person for grant in grants.values() if grant.person}
    return Table(version=version, grants=grants, people=(yield from _identities(sorted(people))))


def _identities(people: Sequence[str]) -> Statements[dict[str, str]]:
    marks = ", ".join("?" * len(people)) or "NULL"
    rows = yield f"SELECT identity, person FROM identities WHERE person IN ({marks})", tuple(people)
    return dict(rows)


def _grants() -> Statements[dict[int, Grant]]:
    rows = yield f"SELECT no, {_COLUMNS} FROM grants ORDER BY no", ()
    return {row[0]: _grant(row[1:]) for row in rows}


@transaction
def add(grant: Grant, now: datetime, *, by: str, force: bool = False) -> Statements[int]:
    yield _ONE_AT_A_TIME
    before = yield from _grants()
    old = replaced_grants(grant, before.values())
    after = {number: each for number, each in before.items() if each not in old}
    _refuse_without_owner(before.values(), (*after.values(), grant), force=force)
    for number in before.keys() - after.keys():
        yield "DELETE FROM grants WHERE no = ?", (number,)
    rows = yield (
        f"INSERT INTO grants ({_COLUMNS}, created, by_whom) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING no",
        (
            grant.effect.value,
            grant.role.text,
            grant.basis.value,
            grant.platform,
            *(text and encode_id(text) for text in (grant.account, grant.scope_id, grant.chat_id, grant.user_id)),
            grant.person,
            micros(now),
            by,
        ),
    )
    was = {"before": old[0].role.text} if old else {}
    yield from record(ChangeKind.GRANTED, now, by, _named(grant), {**grant.to_json(), **was})
    return rows[0][0]


@transaction
def remove(number: int, now: datetime, *, by: str, force: bool = False) -> Statements[Grant | None]:
    yield _ONE_AT_A_TIME
    before = yield from _grants()
    grant = before.get(number)
    if grant is None:
        return None
    _refuse_without_owner(before.values(), (each for at, each in before.items() if at != number), force=force)
    yield "DELETE FROM grants WHERE no = ?", (number,)
    yield from record(ChangeKind.REVOKED, now, by, _named(grant), grant.to_json())
    return grant


def _refuse_without_owner(before: Iterable[Grant], after: Iterable[Grant], *, force: bool) -> None:
    if not force and not keeps_an_owner(tuple(before), tuple(after)):
        raise LastOwner


def _named(grant: Grant) -> str | None:
    """The one identity that a grant is about."""
    return f"{grant.platform}:{encode_id(grant.user_id)}" if grant.platform and grant.user_id else None


@transaction
def record(
    kind: ChangeKind, now: datetime, by: str, identity: str | None, details: Mapping[str, str] | None = None
) -> Statements[None]:
    yield _ONE_AT_A_TIME
    yield (
        "INSERT INTO access_log (at, by_whom, kind, identity, details) VALUES (?, ?, ?, ?, ?)",
        (micros(now), by, kind.value, identity, json_text(details or {})),
    )
    yield Notify(PEOPLE)


@transaction
def changes(limit: int) -> Statements[list[Change]]:
    rows = yield (
        "SELECT no, at, by_whom, kind, identity, details FROM access_log ORDER BY no DESC LIMIT ?",
        (limit,),
    )
    return [
        Change(
            number=number,
            at=instant(at),
            by=by,
            kind=ChangeKind(kind),
            identity=identity,
            details=from_json(details),
        )
        for number, at, by, kind, identity, details in reversed(rows)
    ]


def _grant(row: Row) -> Grant:
    effect, role, basis, platform, *ids, person = row
    account, scope, chat, user = (text and decode_id(text) for text in ids)
    return Grant(
        effect=Effect(effect),
        role=AccessRole[role.upper()],
        basis=Basis(basis),
        platform=platform,
        account=account,
        scope_id=scope,
        chat_id=chat,
        user_id=user,
        person=person,
    )
