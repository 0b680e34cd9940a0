"""Keys of the window in the store: links, logins and tokens, as digests."""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.value import value
from palaver.store.records import instant, micros

__all__ = [
    "EVERY_RIGHT",
    "Key",
    "KeyKind",
    "Right",
    "add",
    "all",
    "exchange",
    "find",
    "revoke",
    "stands",
    "touch",
]


class Right(StrEnum):
    """What a key is good for: to look, to talk, to change what others see."""

    READ = "read"
    CHAT = "chat"
    MANAGE = "manage"


EVERY_RIGHT = frozenset(Right)


class KeyKind(StrEnum):
    LINK = "link"
    """The code of a login link: good once."""
    LOGIN = "login"
    """A browser that has logged in."""
    TOKEN = "token"  # noqa: S105 - a kind, no secret
    """A program."""


@value
class Key:
    number: int
    kind: KeyKind
    name: str
    rights: frozenset[Right]
    created: datetime
    last_used: datetime
    identity: str | None = None
    """On whose behalf it opens; None for the owner of the gateway."""
    expires: datetime | None = None


_COLUMNS = "no, kind, name, rights, created, last_used, identity, expires"
_STANDS = "(expires IS NULL OR expires > ?)"


@transaction
def add(
    digest: str,
    kind: KeyKind,
    now: datetime,
    *,
    name: str = "",
    rights: Collection[Right] = EVERY_RIGHT,
    identity: str | None = None,
    expires: datetime | None = None,
) -> Statements[Key]:
    moment = micros(now)
    yield "DELETE FROM web_keys WHERE expires <= ?", (moment,)
    values = (
        digest,
        kind.value,
        name,
        " ".join(sorted(rights)),
        moment,
        moment,
        identity,
        expires and micros(expires),
    )
    rows = yield (
        "INSERT INTO web_keys (digest, kind, name, rights, created, last_used, identity, expires)"
        f" VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING {_COLUMNS}",
        values,
    )
    return _key(rows[0])


@transaction
def find(digest: str, kind: KeyKind, now: datetime) -> Statements[Key | None]:
    rows = yield (
        f"SELECT {_COLUMNS} FROM web_keys WHERE digest = ? AND kind = ? AND {_STANDS}",
        (digest, kind.value, micros(now)),
    )
    return _key(rows[0]) if rows else None


@transaction
def exchange(link: str, login: str, now: datetime, *, name: str, expires: datetime) -> Statements[Key | None]:
    rows = yield (
        f"DELETE FROM web_keys WHERE digest = ? AND kind = 'link' AND {_STANDS} RETURNING {_COLUMNS}",
        (link, micros(now)),
    )
    if not rows:
        return None
    used = _key(rows[0])
    return (
        yield from add(
            login, KeyKind.LOGIN, now, name=name, rights=used.rights, identity=used.identity, expires=expires
        )
    )


@transaction
def stands(number: int, now: datetime) -> Statements[bool]:
    return bool((yield f"SELECT 1 FROM web_keys WHERE no = ? AND {_STANDS}", (number, micros(now))))


@transaction
def touch(number: int, now: datetime) -> Statements[None]:
    yield "UPDATE web_keys SET last_used = ? WHERE no = ?", (micros(now), number)


@transaction
def all(kind: KeyKind, now: datetime) -> Statements[list[Key]]:  # noqa: A001 - of a kind
    rows = yield f"SELECT {_COLUMNS} FROM web_keys WHERE kind = ? AND {_STANDS} ORDER BY no", (kind.value, micros(now))
    return [_key(row) for row in rows]


@transaction
def revoke(number: int) -> Statements[Key | None]:
    rows = yield f"DELETE FROM web_keys WHERE no = ? RETURNING {_COLUMNS}", (number,)
    return _key(rows[0]) if rows else None


def _key(row: Row) -> Key:
    number, kind, name, rights, created, last_used, identity, expires = row
    return Key(
        number=number,
        kind=KeyKind(kind),
        name=name,
        rights=frozenset(map(Right, rights.split())),
        created=instant(created),
        last_used=instant(last_used),
        identity=identity,
        expires=None if expires is None else instant(expires),
    )
