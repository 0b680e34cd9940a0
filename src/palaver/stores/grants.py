"""Grants in the store: who may do what, and a row for everything that changed it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from palaver.domain.access import AccessRole, Basis, Effect, Grant, keeps_an_owner, superseded
from palaver.domain.errors import LastOwner
from palaver.domain.ids import decode_id, encode_id
from palaver.ports.access import Change, ChangeKind, Table
from palaver.ports.store import PEOPLE
from palaver.ports.work import Lock, Notify, Row, Steps, work
from palaver.stores.records import from_json, instant, json_text, micros

__all__ = ["add", "changes", "record", "remove", "table"]

_COLUMNS = "effect, role, basis, platform, account, scope_id, chat_id, user_id, person"
_ONE_AT_A_TIME = Lock("grants")
"""So the numbers of changes grow in the order in which they are committed."""


@work
def table(known: Table) -> Steps[Table]:
    rows = yield "SELECT coalesce(max(no), 0) FROM access_log", ()
    version = rows[0][0]
    if version == known.version:
        return known
    grants = yield from _grants()
    people = {grant.person for grant in grants.values() if grant.person}
    return Table(version=version, grants=grants, people=(yield from _identities(sorted(people))))


def _identities(people: Sequence[str]) -> Steps[dict[str, str]]:
    marks = ", ".join("?" * len(people)) or "NULL"
    rows = yield f"SELECT identity, person FROM identities WHERE person IN ({marks})", tuple(people)
    return dict(rows)


def _grants() -> Steps[dict[int, Grant]]:
    rows = yield f"SELECT no, {_COLUMNS} FROM grants ORDER BY no", ()
    return {row[0]: _grant(row[1:]) for row in rows}


@work
def add(grant: Grant, now: datetime, *, by: str, force: bool = False) -> Steps[int]:
    yield _ONE_AT_A_TIME
    before = yield from _grants()
    old = superseded(grant, before.values())
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


@work
def remove(number: int, now: datetime, *, by: str, force: bool = False) -> Steps[Grant | None]:
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


@work
def record(
    kind: ChangeKind, now: datetime, by: str, identity: str | None, details: Mapping[str, str] | None = None
) -> Steps[None]:
    yield _ONE_AT_A_TIME
    yield (
        "INSERT INTO access_log (at, by_whom, kind, identity, details) VALUES (?, ?, ?, ?, ?)",
        (micros(now), by, kind.value, identity, json_text(details or {})),
    )
    yield Notify(PEOPLE)


@work
def changes(limit: int) -> Steps[list[Change]]:
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
