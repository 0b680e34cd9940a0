"""Login links, browser logins and API tokens: create, check and revoke them."""

import hashlib
import hmac
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from palaver.db.transaction import Statements, transaction
from palaver.model.errors import BadArgument, NoAccess
from palaver.model.text import one_line
from palaver.model.value import value
from palaver.protocols.clock import Clock
from palaver.protocols.installation import MissingPackages
from palaver.store.people import access_rules, key_rights
from palaver.store.people.api_tokens import ALL_RIGHTS, OF_THE_WEB, Credential, CredentialKind, Right
from palaver.store.people.key_rights import LoadRules
from palaver.store.store import Store
from palaver.web.caller import Caller, can_ask_for_access

if TYPE_CHECKING:
    from segno import QRCode  # the web extra

LINK_LIFETIME = timedelta(hours=1)
LOGIN_LIFETIME = timedelta(days=30)
LOGIN_IDLE_TIMEOUT = timedelta(days=7)
TOKEN_PREFIX = "pal_"  # noqa: S105 - lets people and secret scanners recognise a token
_SECRET_BYTES = 32
_TOUCH_INTERVAL = timedelta(minutes=5)
"""How old `last_used` can be before it is written again."""


def hash_secret(secret: str) -> str:
    """Return the digest that is stored. Our secrets are long and random, so a fast hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def csrf_token(secret: str) -> str:
    return hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()


def qr_code(link: str) -> "QRCode":
    """Return a code that a phone's camera opens. Raises MissingPackages without the web extra."""
    try:
        import segno  # noqa: PLC0415 - an extra, needed only here
    except ImportError:
        raise MissingPackages("A QR code needs", "web", missing="segno") from None
    return segno.make_qr(link, error="l")


async def issue_link(store: Store, url: str, now: datetime, *, identity: str | None = None) -> str:
    """Return a link that logs one browser in, once. Browsers never send the part after the # to a server."""
    _check_identity(identity)
    code = secrets.token_urlsafe(_SECRET_BYTES)
    add = store.api_tokens.add(
        hash_secret(code), CredentialKind.LINK, now, identity=identity, expires=now + LINK_LIFETIME
    )
    await store.transact(add)
    return f"{url}/login#{code}"


async def has_any_key(store: Store, now: datetime) -> bool:
    return any([await store.read(store.api_tokens.list_valid(kind, now)) for kind in OF_THE_WEB])


async def issue_token(
    store: Store,
    now: datetime,
    *,
    name: str,
    rights: Collection[Right] = ALL_RIGHTS,
    identity: str | None = None,
    expires: datetime | None = None,
    profile: str | None = None,
) -> tuple[str, Credential]:
    """Return a new API token and its key. The token itself is not stored and cannot be shown again."""
    _check_identity(identity)
    if not one_line(name, 1):
        raise BadArgument("The token has no name.", found=name, allowed="a name", fix="Give it one", example="backup")
    token = TOKEN_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    add = store.api_tokens.add(
        hash_secret(token),
        CredentialKind.TOKEN,
        now,
        name=name,
        rights=rights,
        identity=identity,
        expires=expires,
        profile=profile,
    )
    return token, await store.transact(add)


def _check_identity(identity: str | None) -> None:
    """Refuse an empty name: None means the owner, and nothing else can."""
    if identity is not None and not all(identity.partition(":")):
        raise BadArgument(
            "A login or token cannot be for", found=identity, allowed="a platform and a user id", example="telegram:7"
        )


@value
class Authenticator:
    store: Store
    clock: Clock
    rules: LoadRules = partial(access_rules.load, ())
    """Loads the grants of now."""

    async def log_in(self, code: str, name: str) -> tuple[str, Caller] | None:
        """Exchange an unused link code for a new login; return its secret. A wrong code causes no write."""
        secret, now = secrets.token_urlsafe(_SECRET_BYTES), self.clock.now()
        if await self.store.read(self._find(code, CredentialKind.LINK, now)) is None:
            return None
        exchange = self.store.api_tokens.log_in(
            hash_secret(code), hash_secret(secret), now, name=name, expires=now + LOGIN_LIFETIME
        )
        key = await self.store.transact(exchange)
        return None if key is None else (secret, self._caller(key, secret))

    async def log_out(self, caller: Caller) -> None:
        await self.store.transact(self.store.api_tokens.revoke(caller.key.number))

    async def by_login(self, secret: str) -> Caller | None:
        key = await self._find_key(secret, CredentialKind.LOGIN)
        return key and self._caller(key, secret)

    async def by_token(self, token: str) -> Caller | None:
        key = await self._find_key(token, CredentialKind.TOKEN)
        return key and self._caller(key)

    async def is_valid(self, caller: Caller) -> bool:
        """Return whether the caller's key has not been revoked since, and their person still has access."""

        @transaction
        def check() -> Statements[bool]:
            yield from self._check_access(caller.key)
            return (yield from self.store.api_tokens.is_valid(caller.key.number, self.clock.now()))

        try:
            return await self.store.read(check())
        except NoAccess:
            return False

    @transaction
    def _find(self, secret: str, kind: CredentialKind, now: datetime) -> Statements[Credential | None]:
        key = yield from self.store.api_tokens.find(hash_secret(secret), kind, now)
        yield from self._check_access(key)
        return key

    def _caller(self, key: Credential, secret: str = "") -> Caller:
        return Caller(key=key, csrf=csrf_token(secret) if secret else None, rules=self.rules)

    def _check_access(self, key: Credential | None) -> Statements[None]:
        if key is not None and key.identity is not None:
            can_ask = can_ask_for_access(key.identity)
            yield from key_rights.check_access(key.identity, (yield from self.rules()), can_ask=can_ask)

    async def _find_key(self, secret: str, kind: CredentialKind) -> Credential | None:
        """Return the key. Raise NoAccess if the person whom it names has no access now."""
        now = self.clock.now()
        key = await self.store.read(self._find(secret, kind, now))
        if key is None or (kind is CredentialKind.LOGIN and now - key.last_used > LOGIN_IDLE_TIMEOUT):
            return None
        if now - key.last_used > _TOUCH_INTERVAL:
            await self.store.transact(self.store.api_tokens.touch(key.number, now))
        return key
