"""Post signed JSON to a URL. Only the status of the response is read."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from http import HTTPStatus

import httpx2

from palaver.platforms.webhook.signature import sign
from palaver.protocols import (
    PlatformBusy,
    PlatformDown,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
    parse_retry_after,
)

_TIMEOUT = httpx2.Timeout(15.0, connect=5.0)
_INVALID_REQUEST = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL)
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_GONE = "The endpoint answered 410 Gone. Events are dropped until it accepts a message again."

# A URL can contain a secret.
for _library in ("httpx2", "httpcore2"):
    logging.getLogger(_library).setLevel(logging.WARNING)


class Poster:
    """Posts to one URL while `serve` runs, over connections that stay open."""

    def __init__(self, url: str, key: bytes | None) -> None:
        self._url = url
        self._key = key
        self._client: httpx2.AsyncClient | None = None
        self._is_gone = False
        self._gone_changed = asyncio.Event()

    async def serve(self, connected: Callable[[], Awaitable[None]]) -> None:
        """Accept posts until cancelled. Raises PlatformRefused when the endpoint says that it is gone.

        After that, `connected` is called only once the endpoint has accepted something again.
        """
        async with httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False, trust_env=False) as client:
            self._client = client
            try:
                while True:
                    self._gone_changed.clear()
                    if not self._is_gone:
                        await connected()
                    await self._gone_changed.wait()
                    if self._is_gone:
                        raise PlatformRefused(_GONE)
            finally:
                self._client = None

    async def post(self, body: bytes, message_id: str, now: datetime) -> str:
        if self._client is None:
            self._raise_if_gone()
            raise PlatformDown("The account is not being served.")
        headers = {"content-type": "application/json", "user-agent": "palaver", "webhook-id": message_id}
        if self._key is not None:
            headers |= sign(self._key, message_id, now, body)
        try:
            # Stream, so that the body of the response is not read.
            async with self._client.stream("POST", self._url, content=body, headers=headers) as response:
                self._check_status(response.status_code, response.headers.get("retry-after", ""))
        except _INVALID_REQUEST as error:
            raise SendRefused(f"The request is invalid: {type(error).__name__}") from error
        except _NOT_SENT as error:
            raise PlatformDown(f"The endpoint cannot be reached: {type(error).__name__}") from error
        except httpx2.TransportError as error:
            self._raise_if_gone()
            raise SendUnclear(f"The endpoint did not answer: {type(error).__name__}") from error
        return message_id

    def _raise_if_gone(self) -> None:
        if self._is_gone:
            raise SendRefused(_GONE)

    def _check_status(self, status: int, retry_after: str) -> None:
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            if self._is_gone:
                self._is_gone = False
                self._gone_changed.set()
            return
        if status == HTTPStatus.GONE:
            self._gone_changed.set()
            self._raise_if_gone()  # Notify the owner once, even if several posts were in flight.
            self._is_gone = True
            raise TargetGone(_GONE)
        if (after := parse_retry_after(retry_after)) is not None:
            raise PlatformBusy(after)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise PlatformBusy(1.0)
        raise PlatformDown(f"The endpoint answered {status}.")
