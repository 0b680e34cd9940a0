"""Doors: links, logins and tokens made, shown and taken back."""

import hashlib
import hmac
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta

from palaver.model.errors import BadArgument
from palaver.model.text import one_line
from palaver.model.value import value
from palaver.protocols.clock import Clock
from palaver.store.people.api_tokens import ALL_RIGHTS, Credential, CredentialKind, Right
from palaver.store.store import Store
from palaver.web.caller import Caller, digest_of

__all__ = [
    "IDLE_FOR",
    "LINK_FOR",
    "LOGIN_FOR",
    "TOKEN_MARK",
    "Authenticator",
    "csrf_of",
    "has_keys",
    "make_link",
    "make_token",
]

LINK_FOR = timedelta(hours=1)
LOGIN_FOR = timedelta(days=30)
IDLE_FOR = timedelta(days=7)
TOKEN_MARK = "pal_"  # noqa: S105 - tells people and scanners what it is
_BYTES = 32
_TOUCH_AFTER = timedelta(minutes=5)


async def make_link(store: Store, url: str, now: datetime, *, identity: str | None = None) -> str:
    """A link that logs one browser in, once. The code stands behind the #, which browsers keep to themselves."""
    _refuse_nobody(identity)
    code = secrets.token_urlsafe(_BYTES)
    await store.transact(
        store.api_tokens.add(digest_of(code), CredentialKind.LINK, now, identity=identity, expires=now + LINK_FOR)
    )
    return f"{url}/login#{code}"


async def has_keys(store: Store, now: datetime) -> bool:
    """Whether somebody has come in before, or can."""
    return any([await store.read(store.api_tokens.list_valid(kind, now)) for kind in CredentialKind])


async def make_token(
    store: Store,
    now: datetime,
    *,
    name: str,
    rights: Collection[Right] = ALL_RIGHTS,
    identity: str | None = None,
    expires: datetime | None = None,
) -> tuple[str, Credential]:
    """A token for a program, and the key it is; nobody can be shown the token again."""
    _refuse_nobody(identity)
    if not one_line(name, 1):
        raise BadArgument("A token needs a name, not", found=name, allowed="any text", example="backup")
    token = TOKEN_MARK + secrets.token_urlsafe(_BYTES)
    add = store.api_tokens.add(
        digest_of(token), CredentialKind.TOKEN, now, name=name, rights=rights, identity=identity, expires=expires
    )
    return token, await store.transact(add)


def _refuse_nobody(identity: str | None) -> None:
    """A key is the owner's where nobody is named, and never because a name was empty."""
    if identity is not None and not all(identity.partition(":")):
        raise BadArgument("A key cannot be for", found=identity, allowed="a platform and an id", example="telegram:7")


def csrf_of(secret: str) -> str:
    """Known to whoever holds the login and to the pages made for them, and to nobody else."""
    return hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()


@value
class Authenticator:
    store: Store
    clock: Clock

    async def log_in(self, code: str, name: str) -> tuple[str, Caller] | None:
        """The secret of a new login for a code that was not used yet. Whoever guesses makes nobody write."""
        secret, now = secrets.token_urlsafe(_BYTES), self.clock.now()
        if await self.store.read(self.store.api_tokens.find(digest_of(code), CredentialKind.LINK, now)) is None:
            return None
        exchange = self.store.api_tokens.log_in(
            digest_of(code), digest_of(secret), now, name=name, expires=now + LOGIN_FOR
        )
        key = await self.store.transact(exchange)
        return None if key is None else (secret, Caller(key=key, csrf=csrf_of(secret)))

    async def log_out(self, caller: Caller) -> None:
        await self.store.transact(self.store.api_tokens.revoke(caller.key.number))

    async def by_login(self, secret: str) -> Caller | None:
        key = await self._standing(secret, CredentialKind.LOGIN)
        return key and Caller(key=key, csrf=csrf_of(secret))

    async def by_token(self, token: str) -> Caller | None:
        key = await self._standing(token, CredentialKind.TOKEN)
        return key and Caller(key=key)

    async def still_stands(self, caller: Caller) -> bool:
        """Whether the key was not taken back since."""
        return await self.store.read(self.store.api_tokens.is_valid(caller.key.number, self.clock.now()))

    async def _standing(self, secret: str, kind: CredentialKind) -> Credential | None:
        now = self.clock.now()
        key = await self.store.read(self.store.api_tokens.find(digest_of(secret), kind, now))
        if key is None or (kind is CredentialKind.LOGIN and now - key.last_used > IDLE_FOR):
            return None
        if now - key.last_used > _TOUCH_AFTER:
            await self.store.transact(self.store.api_tokens.touch(key.number, now))
        return key
