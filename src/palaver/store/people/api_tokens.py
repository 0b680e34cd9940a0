"""Credentials of the web interface: login links, logins and API tokens, stored as digests."""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.value import value
from palaver.store.records import instant, instant_or_none, micros, readable


class Right(StrEnum):
    """What a credential allows."""

    READ = "read"
    CHAT = "chat"
    MANAGE = "manage"


ALL_RIGHTS = frozenset(Right)


class CredentialKind(StrEnum):
    LINK = "link"
    """The code of a login link, valid once."""
    LOGIN = "login"
    """A browser session."""
    TOKEN = "token"  # noqa: S105 - a kind, no secret
    """A program."""


@value
class Credential:
    number: int
    kind: CredentialKind
    name: str
    rights: frozenset[Right]
    created: datetime
    last_used: datetime
    identity: str | None = None
    """On whose behalf it acts; None for the owner of the gateway."""
    expires: datetime | None = None
    profile: str | None = None
    """The profile that answers what it sends; None if the rules choose it."""


CREDENTIAL_COLUMNS = "no, kind, name, rights, created, last_used, identity, expires, profile"
_VALID = "(expires IS NULL OR expires > ?)"


@transaction
def add(
    digest: str,
    kind: CredentialKind,
    now: datetime,
    *,
    name: str = "",
    rights: Collection[Right] = ALL_RIGHTS,
    identity: str | None = None,
    expires: datetime | None = None,
    profile: str | None = None,
) -> Statements[Credential]:
    moment = micros(now)
    yield "DELETE FROM api_tokens WHERE expires <= ?", (moment,)
    until = expires and micros(expires)
    rows = yield (
        "INSERT INTO api_tokens (digest, kind, name, rights, created, last_used, identity, expires, profile)"
        f" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING {CREDENTIAL_COLUMNS}",
        (digest, kind.value, name, " ".join(sorted(rights)), moment, moment, identity, until, profile),
    )
    return credential_of(rows[0])


@transaction
def find(digest: str, kind: CredentialKind, now: datetime) -> Statements[Credential | None]:
    rows = yield (
        f"SELECT {CREDENTIAL_COLUMNS} FROM api_tokens WHERE digest = ? AND kind = ? AND {_VALID}",
        (digest, kind.value, micros(now)),
    )
    return next(readable(credential_of, rows), None)


@transaction
def log_in(link: str, login: str, now: datetime, *, name: str, expires: datetime) -> Statements[Credential | None]:
    rows = yield (
        f"DELETE FROM api_tokens WHERE digest = ? AND kind = 'link' AND {_VALID} RETURNING {CREDENTIAL_COLUMNS}",
        (link, micros(now)),
    )
    if not rows:
        return None
    used = credential_of(rows[0])
    return (
        yield from add(
            login, CredentialKind.LOGIN, now, name=name, rights=used.rights, identity=used.identity, expires=expires
        )
    )


@transaction
def is_valid(number: int, now: datetime) -> Statements[bool]:
    return bool((yield f"SELECT 1 FROM api_tokens WHERE no = ? AND {_VALID}", (number, micros(now))))


@transaction
def touch(number: int, now: datetime) -> Statements[None]:
    yield "UPDATE api_tokens SET last_used = ? WHERE no = ?", (micros(now), number)


@transaction
def list_valid(kind: CredentialKind, now: datetime) -> Statements[list[Credential]]:
    rows = yield (
        f"SELECT {CREDENTIAL_COLUMNS} FROM api_tokens WHERE kind = ? AND {_VALID} ORDER BY no",
        (kind.value, micros(now)),
    )
    return list(readable(credential_of, rows))


@transaction
def revoke(number: int) -> Statements[Credential | None]:
    rows = yield f"DELETE FROM api_tokens WHERE no = ? RETURNING {CREDENTIAL_COLUMNS}", (number,)
    return credential_of(rows[0]) if rows else None


def credential_of(row: Row) -> Credential:
    number, kind, name, rights, created, last_used, identity, expires, profile = row
    return Credential(
        number=number,
        kind=CredentialKind(kind),
        name=name,
        rights=frozenset(map(Right, rights.split())),
        created=instant(created),
        last_used=instant(last_used),
        identity=identity,
        expires=instant_or_none(expires),
        profile=profile,
    )
