"""Posting: signed JSON to an address. What the receiver says besides yes and no is not read."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from http import HTTPStatus

import httpx2

from palaver.platforms.webhook.signature import signed
from palaver.protocols.adapter import PlatformBusy, PlatformDown, PlatformRefused, SendRefused, SendUnclear, TargetGone

__all__ = ["Postman"]

_TIMEOUT = httpx2.Timeout(15.0, connect=5.0)
_OUR_MISTAKE = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL)
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_LONGEST_WAIT = 3600.0
_GONE = "the receiver has said 410 Gone: it is switched off, and what happens meanwhile is not told"

# An address may have a secret in it.
for _carrier in ("httpx2", "httpcore2"):
    logging.getLogger(_carrier).setLevel(logging.WARNING)


class Postman:
    """Use it as a context manager; one connection or a few are kept open meanwhile."""

    def __init__(self, url: str, key: bytes | None) -> None:
        self._url = url
        self._key = key
        self._client: httpx2.AsyncClient | None = None
        self._is_gone = False
        self._learned = asyncio.Event()
        """Set when the receiver is gone, or there again."""

    async def serve(self, connected: Callable[[], Awaitable[None]]) -> None:
        """Post what is asked for, until cancelled. Raises PlatformRefused when the receiver says that it is gone.

        Served again after that, it is `connected` when the receiver has taken something.
        """
        async with httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False, trust_env=False) as client:
            self._client = client
            try:
                while True:
                    self._learned.clear()
                    if not self._is_gone:
                        await connected()
                    await self._learned.wait()
                    if self._is_gone:
                        raise PlatformRefused(_GONE)
            finally:
                self._client = None

    async def post(self, body: bytes, message: str, now: datetime) -> str:
        if self._client is None:
            self._refuse_where_gone()
            raise PlatformDown("not connected")
        headers = {"content-type": "application/json", "user-agent": "palaver", "webhook-id": message}
        if self._key is not None:
            headers |= signed(self._key, message, now, body)
        try:
            # The body of the answer stays where it is.
            async with self._client.stream("POST", self._url, content=body, headers=headers) as response:
                self._look(response.status_code, response.headers.get("retry-after", ""))
        except _OUR_MISTAKE as error:
            raise SendRefused(f"it cannot be posted: {type(error).__name__}") from error
        except _NOT_SENT as error:
            raise PlatformDown(f"the receiver is not there: {type(error).__name__}") from error
        except httpx2.TransportError as error:
            self._refuse_where_gone()
            raise SendUnclear(f"the receiver said nothing: {type(error).__name__}") from error
        return message

    def _refuse_where_gone(self) -> None:
        if self._is_gone:
            raise SendRefused(_GONE)

    def _look(self, status: int, retry_after: str) -> None:
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            if self._is_gone:
                self._is_gone = False
                self._learned.set()
            return
        if status == HTTPStatus.GONE:
            self._learned.set()
            self._refuse_where_gone()  # The owner is told once, however much was on its way.
            self._is_gone = True
            raise TargetGone(_GONE)
        if retry_after.isascii() and retry_after.isdecimal():
            raise PlatformBusy(min(float(retry_after[:8]), _LONGEST_WAIT))
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise PlatformBusy(1.0)
        raise PlatformDown(f"the receiver answered with {status}")
