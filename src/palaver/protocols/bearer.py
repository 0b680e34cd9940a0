"""Check the bearer tokens (JWT) with which a platform signs its calls. It needs PyJWT, from an extra."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jwt

from palaver.protocols.adapter import PlatformDown, PlatformError

__all__ = ["BearerToken", "BearerTokens"]

Json = Mapping[str, Any]
_KEYS_SECONDS = 86_400.0
_AGAIN_SECONDS = 300.0
"""A token with an unknown key makes us look for new keys, but anybody can send one."""
_RETRY_SECONDS = 5.0
"""How long to wait after keys could not be fetched. Meanwhile those that we have stay valid."""
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
        """`fetch_keys` returns JSON Web Keys. If it fails, `read` raises a PlatformError unless it knows the key."""
        self._fetch, self._issuer, self._audience, self._clock = fetch_keys, issuer, audience, clock
        self._keys: dict[str, Json] = {}
        self._fetched: float | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._problem: PlatformError | None = None
        """Why the last fetch failed."""
        self._failed = 0.0

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
        if self._is_due(name):
            self._fetching = self._fetching or asyncio.create_task(self._refresh())
            # A known key does not wait: not for an unknown one, which anybody can name, and not for its successor.
            if name not in self._keys:
                await asyncio.shield(self._fetching)
        key = self._keys.get(name)
        if key is None and self._problem is not None:
            raise self._problem.with_traceback(None)
        return key

    def _is_due(self, name: str) -> bool:
        now = self._clock()
        if self._problem is not None and now - self._failed < _RETRY_SECONDS:
            return False
        seconds = _KEYS_SECONDS if name in self._keys else _AGAIN_SECONDS
        return self._fetched is None or now - self._fetched > seconds

    async def _refresh(self) -> None:
        try:
            self._keys = _by_name(await self._fetch())
            self._fetched, self._problem = self._clock(), None
        except PlatformError as error:
            self._failed, self._problem = self._clock(), error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            problem = PlatformDown(f"The platform's keys are unreadable: {type(error).__name__}.")
            self._failed, self._problem = self._clock(), problem
        finally:
            self._fetching = None


def _by_name(keys: Iterable[Json]) -> dict[str, Json]:
    found = {str(key["kid"]): key for key in keys if key.get("kid")}
    if not found:
        raise ValueError("no keys")
    return found
