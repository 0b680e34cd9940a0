"""Check the bearer tokens (JWT) with which a platform signs its calls. It needs PyJWT, from an extra."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jwt

__all__ = ["BearerToken", "BearerTokens"]

Json = Mapping[str, Any]
_KEYS_SECONDS = 86_400.0
_AGAIN_SECONDS = 300.0
"""A token with an unknown key makes us look for new keys, but anybody can send one."""
_LEEWAY_SECONDS = 300
_MAX_CHARACTERS = 16_384
_PREFIX = "bearer "


class BearerToken(NamedTuple):
    claims: Json
    key: Json
    """The public key, as the platform describes it."""


class BearerTokens:
    """Accepts tokens of one issuer for one audience. The platform's public keys are fetched once a day."""

    def __init__(
        self,
        fetch_keys: Callable[[], Awaitable[Iterable[Json]]],
        *,
        issuer: str,
        audience: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`fetch_keys` returns JSON Web Keys. What it raises, `read` raises."""
        self._fetch, self._issuer, self._audience, self._clock = fetch_keys, issuer, audience, clock
        self._keys: dict[str, Json] = {}
        self._fetched: float | None = None
        self._lock = asyncio.Lock()

    async def read(self, authorization: str) -> BearerToken | None:
        """Return the token of an Authorization header; None unless it is valid now."""
        if authorization[: len(_PREFIX)].lower() != _PREFIX or len(authorization) > _MAX_CHARACTERS:
            return None
        token = authorization[len(_PREFIX) :].strip()
        try:
            key = await self._key(str(jwt.get_unverified_header(token).get("kid")))
            return BearerToken(self._claims(token, key), key) if key else None
        except (jwt.PyJWTError, ValueError, TypeError):
            return None

    def _claims(self, token: str, key: Json) -> Json:
        return jwt.decode(
            token,
            jwt.PyJWK.from_dict(dict(key), algorithm="RS256").key,
            algorithms=["RS256"],
            audience=self._audience,
            issuer=self._issuer,
            leeway=_LEEWAY_SECONDS,
            options={"require": ["exp", "iss", "aud"]},
        )

    async def _key(self, name: str) -> Json | None:
        # A known key does not wait while an unknown one, which anybody can name, is looked for.
        if self._is_due(name):
            async with self._lock:
                if self._is_due(name):
                    found = await self._fetch()
                    self._keys = {str(key["kid"]): key for key in found if key.get("kid")}
                    self._fetched = self._clock()
        return self._keys.get(name)

    def _is_due(self, name: str) -> bool:
        seconds = _KEYS_SECONDS if name in self._keys else _AGAIN_SECONDS
        return self._fetched is None or self._clock() - self._fetched > seconds
