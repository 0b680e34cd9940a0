"""Grants, and the access log with a row for each change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from palaver.db.transaction import PEOPLE, Lock, Notify, Row, Statements, Transaction, transaction
from palaver.model.access import (
    AccessRole,
    Basis,
    ChatKind,
    Effect,
    Grant,
    GrantIndex,
    canonical_grants,
    keeps_an_owner,
    replaced_grants,
)
from palaver.model.errors import LastOwner
from palaver.model.label import Label
from palaver.model.source import Source, decode_id, encode_id
from palaver.model.value import value
from palaver.store.records import from_json, instant, json_text, micros, placeholders, readable

T = TypeVar("T")


class ChangeKind(StrEnum):
    GRANTED = "granted"
    REVOKED = "revoked"
    ASKED = "asked"
    """A stranger got a pairing code."""
    APPROVED = "approved"
    DENIED = "denied"
    WRONG_CODE = "wrong-code"
    LINKED = "linked"
    UNLINKED = "unlinked"
    READ_ALL = "read-all"
    """The owner listed everybody's conversations, or went on from one of them."""
    KEY_ENDED = "key-ended"
    """A login or token ended with the access of its person."""
    MOVED = "moved"
    """A chat has a new id, and its grants name that."""


@value
class Change:
    """A row of the access log."""

    number: int
    at: datetime
    by: str
    kind: ChangeKind
    identity: str | None = None
    details: Mapping[str, str] = field(default_factory=dict[str, str])


@value
class GrantTable:
    """All grants by number, as of the last change."""

    version: int = -1
    grants: Mapping[int, Grant] = field(default_factory=dict[int, Grant])
    people: Mapping[str, str] = field(default_factory=dict[str, str])
    """Identity to person, for the people that grants name."""
    configured: Sequence[Grant] = ()
    """The grants beside the stored ones."""
    _current: Mapping[str, str] = field(default_factory=dict[str, str])

    def current(self, grant: Grant) -> Grant:
        """Return a grant that names a person with the id that they have now: linked people have that of the eldest."""
        now = self._current.get(grant.person or "", grant.person)
        return grant if now == grant.person else replace(grant, person=now)


@value(kw_only=False)
class _CachedIndex:
    configured: Sequence[Grant]
    table: GrantTable
    aliases: Mapping[str, str]
    index: GrantIndex

    def is_current(self, configured: Sequence[Grant], table: GrantTable, aliases: Mapping[str, str]) -> bool:
        is_same_table = table is self.table and (configured is self.configured or configured == self.configured)
        return is_same_table and (aliases is self.aliases or aliases == self.aliases)


@value(kw_only=False)
class GrantCache:
    """Grants by platform, indexed anew only when grants or aliases change."""

    _platforms: dict[str, _CachedIndex] = field(default_factory=dict[str, _CachedIndex])

    def index(
        self, platform: str, configured: Sequence[Grant], table: GrantTable, aliases: Mapping[str, str]
    ) -> GrantIndex:
        """Return the index of the configured and the stored grants that can apply on a platform."""
        cached = self._platforms.get(platform)
        if cached is None or not cached.is_current(configured, table, aliases):
            granted = (*map(table.current, configured), *table.grants.values())
            here = [grant for grant in granted if grant.platform in {None, platform}]
            index = GrantIndex(canonical_grants(here, platform, aliases))
            self._platforms[platform] = cached = _CachedIndex(configured, table, aliases, index)
        return cached.index


@value
class Stranger:
    """A person who got a pairing code, or was approved with it."""

    identity: str
    source: Source
    name: Label | None
    asked: datetime
    expires: datetime
    kept: int
    """How many of their messages wait."""


GRANT_COLUMNS = "effect, role, basis, platform, kind, account, scope_id, chat_id, user_id, person"
GRANTS_LOCK = Lock("grants")
"""Held so that changes are numbered in the order they are committed."""


@transaction
def run_if_current(
    known: GrantTable, locks: Sequence[Lock], step: Transaction[T] | None
) -> Statements[T | GrantTable | None]:
    """Do a step that was decided by these grants. If they have changed, do nothing and return the current ones.

    What changes the decision takes one of the locks too, so afterwards the change is visible here.
    """
    for lock in locks:  # noqa: UP028 - a list takes no rows
        yield lock
    table = yield from load_table(known)
    if table is not known:
        return table
    return None if step is None else (yield from step)


@transaction
def load_table(known: GrantTable) -> Statements[GrantTable]:
    rows = yield "SELECT coalesce(max(no), 0) FROM access_log", ()
    version = rows[0][0]
    if version == known.version:
        return known
    grants = yield from _grants()
    named = {grant.person for grant in (*known.configured, *grants.values()) if grant.person}
    current = yield from _current_people(sorted(named))
    people = yield from _identities(sorted(frozenset(current.values())))
    table = replace(known, version=version, people=people, _current=current)
    return replace(table, grants={number: table.current(grant) for number, grant in grants.items()})


def _current_people(named: Sequence[str]) -> Statements[dict[str, str]]:
    if not named:
        return {}
    marks = placeholders(named)
    rows = yield f"SELECT original_person, person FROM identities WHERE original_person IN ({marks})", tuple(named)
    return dict(rows)


def _identities(people: Sequence[str]) -> Statements[dict[str, str]]:
    marks = placeholders(people)
    rows = yield f"SELECT identity, person FROM identities WHERE person IN ({marks})", tuple(people)
    return dict(rows)


def _grants() -> Statements[dict[int, Grant]]:
    rows = yield f"SELECT no, actor, {GRANT_COLUMNS} FROM grants ORDER BY no", ()
    return dict(readable(_numbered, rows))


def _numbered(row: Row) -> tuple[int, Grant]:
    """A grant whose effect cannot be read blocks: it may have been meant to."""
    number, actor, effect, *rest = row
    return number, grant_of((number, actor, effect if effect in set(Effect) else Effect.BLOCK.value, *rest))


@transaction
def add(grant: Grant, now: datetime, *, by: str, force: bool = False) -> Statements[int]:
    yield GRANTS_LOCK
    before = yield from _grants()
    old = replaced_grants(grant, before.values())
    after = {number: each for number, each in before.items() if each not in old}
    _check_owner_remains(before.values(), (*after.values(), grant), force=force)
    for number in before.keys() - after.keys():
        yield "DELETE FROM grants WHERE no = ?", (number,)
    rows = yield (
        f"INSERT INTO grants ({GRANT_COLUMNS}, created, actor)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING no",
        (
            grant.effect.value,
            grant.role.text,
            grant.basis.value,
            grant.platform,
            grant.kind and grant.kind.value,
            *(text and encode_id(text) for text in (grant.account, grant.scope_id, grant.chat_id, grant.user_id)),
            grant.person,
            micros(now),
            by,
        ),
    )
    old_role = {"before": old[0].role.text} if old else {}
    yield from record(ChangeKind.GRANTED, now, by, _identity_of(grant), {**grant.to_json(), **old_role})
    return rows[0][0]


@transaction
def remove(number: int, now: datetime, *, by: str, force: bool = False) -> Statements[Grant | None]:
    yield GRANTS_LOCK
    before = yield from _grants()
    grant = before.get(number)
    if grant is None:
        return None
    _check_owner_remains(before.values(), (each for at, each in before.items() if at != number), force=force)
    yield "DELETE FROM grants WHERE no = ?", (number,)
    yield from record(ChangeKind.REVOKED, now, by, _identity_of(grant), grant.to_json())
    return grant


def _check_owner_remains(before: Iterable[Grant], after: Iterable[Grant], *, force: bool) -> None:
    if not force and not keeps_an_owner(tuple(before), tuple(after)):
        raise LastOwner


def _identity_of(grant: Grant) -> str | None:
    return f"{grant.platform}:{encode_id(grant.user_id)}" if grant.platform and grant.user_id else None


@transaction
def record(
    kind: ChangeKind, now: datetime, by: str, identity: str | None, details: Mapping[str, str] | None = None
) -> Statements[None]:
    yield GRANTS_LOCK
    yield (
        "INSERT INTO access_log (at, actor, kind, identity, details) VALUES (?, ?, ?, ?, ?)",
        (micros(now), by, kind.value, identity, json_text(details or {})),
    )
    yield Notify(PEOPLE)


@transaction
def list_changes(limit: int) -> Statements[list[Change]]:
    rows = yield "SELECT no, at, actor, kind, identity, details FROM access_log ORDER BY no DESC LIMIT ?", (limit,)
    return list(readable(change_of, reversed(rows)))


def change_of(row: Row) -> Change:
    number, at, by, kind, identity, details = row
    return Change(
        number=number, at=instant(at), by=by, kind=ChangeKind(kind), identity=identity, details=from_json(details)
    )


def grant_of(row: Row) -> Grant:
    number, actor, effect, role, basis, platform, kind, *ids, person = row
    account, scope, chat, user = (text and decode_id(text) for text in ids)
    return Grant(
        effect=Effect(effect),
        role=AccessRole[role.upper()],
        basis=Basis(basis),
        platform=platform,
        kind=kind and ChatKind(kind),
        account=account,
        scope_id=scope,
        chat_id=chat,
        user_id=user,
        person=person,
        origin=("grant", number),
        actor=actor,
    )
