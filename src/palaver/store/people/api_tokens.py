"""Credentials: login links, logins and API tokens of the web interface, keys of the relay. Stored as digests."""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum

from palaver.db.transaction import PEOPLE, Notify, Row, Statements, transaction
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
    RELAY_CODE = "relay-code"
    """Enrols a gateway with this connector, once. The profile is its tenant."""
    RELAY = "relay"
    """A gateway that this connector serves. The profile is its tenant."""


OF_THE_WEB = (CredentialKind.LINK, CredentialKind.LOGIN, CredentialKind.TOKEN)


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
    yield Notify(PEOPLE)  # open streams end
    return credential_of(rows[0]) if rows else None


@transaction
def enrol(code: str, key: str, now: datetime) -> Statements[str | None]:
    """Exchange a code for a key, and return the tenant; None if the code is wrong, expired or used."""
    rows = yield (
        f"DELETE FROM api_tokens WHERE digest = ? AND kind = 'relay-code' AND {_VALID} RETURNING profile",
        (code, micros(now)),
    )
    for (tenant,) in rows:
        yield from replace_relay_keys(tenant, key)
        yield from add_relay_key(tenant, key, now)
        return tenant
    return None


@transaction
def add_relay_key(tenant: str, digest: str, now: datetime) -> Statements[None]:
    """Add a key. A tenant has at most two: the one it uses and the one that it changes to."""
    yield "DELETE FROM api_tokens WHERE digest = ? AND kind = 'relay'", (digest,)
    yield from add(digest, CredentialKind.RELAY, now, name=tenant, rights=(), profile=tenant)
    yield (
        "DELETE FROM api_tokens WHERE kind = 'relay' AND profile = ? AND no NOT IN"
        " (SELECT no FROM api_tokens WHERE kind = 'relay' AND profile = ? ORDER BY no DESC LIMIT 2)",
        (tenant, tenant),
    )


@transaction
def relay_keys(tenant: str) -> Statements[list[str]]:
    """Return the digests of a tenant's keys: two while it changes them."""
    rows = yield "SELECT digest FROM api_tokens WHERE kind = 'relay' AND profile = ? ORDER BY no DESC", (tenant,)
    return [row[0] for row in rows]


@transaction
def replace_relay_keys(tenant: str, digest: str) -> Statements[None]:
    """Revoke all other keys of a tenant."""
    yield "DELETE FROM api_tokens WHERE kind = 'relay' AND profile = ? AND digest <> ?", (tenant, digest)


@transaction
def revoke_relay(tenant: str) -> Statements[int]:
    """Revoke the keys and codes of a tenant. Return how many there were."""
    rows = yield "DELETE FROM api_tokens WHERE kind IN ('relay', 'relay-code') AND profile = ? RETURNING no", (tenant,)
    return len(rows)


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
