"""Posting: signed JSON to an address. What the receiver says besides yes and no is not read."""

import asyncio
import logging
from datetime import datetime
from http import HTTPStatus

import httpx2

from palaver.platforms.webhook.signing import signed
from palaver.ports.adapter import PlatformBusy, PlatformDown, SendRefused, SendUnclear, TargetGone

__all__ = ["Postman"]

_TIMEOUT = httpx2.Timeout(15.0, connect=5.0)
_OUR_MISTAKE = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL)
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_LONGEST_WAIT = 3600.0

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

    async def serve(self) -> None:
        """Post what is asked for, until cancelled."""
        async with httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False, trust_env=False) as client:
            self._client = client
            try:
                await asyncio.Event().wait()
            finally:
                self._client = None

    async def post(self, body: bytes, message: str, now: datetime) -> str:
        if self._client is None:
            raise PlatformDown("not connected")
        self._refuse_where_gone()
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
            raise SendUnclear(f"the receiver said nothing: {type(error).__name__}") from error
        return message

    def _refuse_where_gone(self) -> None:
        if self._is_gone:
            raise SendRefused("the receiver has said 410 Gone: it is switched off until the gateway is started again")

    def _look(self, status: int, retry_after: str) -> None:
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return
        if status == HTTPStatus.GONE:
            self._refuse_where_gone()  # The owner is told once, however much was on its way.
            self._is_gone = True
            raise TargetGone("the receiver has said 410 Gone")
        if retry_after.isascii() and retry_after.isdecimal():
            raise PlatformBusy(min(float(retry_after[:8]), _LONGEST_WAIT))
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise PlatformBusy(1.0)
        raise PlatformDown(f"the receiver answered with {status}")
