"""Call the HTTP API of a platform that has no client library. It needs httpx2, from an extra."""

import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx2

from palaver.protocols.adapter import PlatformError, SendUnclear
from palaver.protocols.capabilities import announce_httpx
from palaver.protocols.client_errors import ClientErrors, answer_error, parse_retry_after

__all__ = ["RestApi", "read_receipt", "tls_context"]

# ruff: noqa: ANN401 - httpx2 has many options, and JSON is anything

_TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
_CHUNK_BYTES = 65_536
_UNSENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)

# A URL can contain a secret.
for _library in ("httpx2", "httpcore2"):
    logging.getLogger(_library).setLevel(logging.WARNING)


@cache
def tls_context() -> ssl.SSLContext:
    """Cached: loading the certificates takes longer than a request."""
    return httpx2.create_ssl_context()


class RestApi:
    """Requests raise the errors of an adapter. `options` of a request are those of httpx2: json, params, files …"""

    def __init__(
        self,
        title: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        fix: str = "",
        gone: Collection[int] = (),
        explain: Callable[[httpx2.Response], PlatformError | None] = lambda _: None,
        hint: str = "",
    ) -> None:
        """`fix` and `gone` are of `answer_error`, `hint` of `ClientErrors`. `explain` says what the status does not."""
        self.errors = ClientErrors(
            title=title, raised=(httpx2.HTTPError,), unsent=_UNSENT, explain=self._explain, hint=hint
        )
        self._title, self._fix, self._gone, self._read_answer = title, fix, gone, explain
        self._settings: dict[str, Any] = {"base_url": url, "headers": headers, "params": params, "timeout": _TIMEOUT}
        self._client: httpx2.AsyncClient | None = None
        self._users = 0

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[httpx2.AsyncClient]:
        """Keep connections open, for example while `run` runs. A request outside it opens one of its own."""
        client = self._client = self._client or httpx2.AsyncClient(verify=tls_context(), **self._settings)
        self._users += 1
        try:
            yield client
        finally:
            self._users -= 1
            if not self._users:
                self._client = None
                await client.aclose()

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, sending: bool = False, **options: Any
    ) -> AsyncGenerator[httpx2.Response]:
        """Yield a response before its body has come."""
        async with self.opened() as client:
            with self.errors.sends() if sending else self.errors.requests():
                async with client.stream(method, path, extensions={"trace": announce_httpx}, **options) as response:
                    if not response.is_success:
                        await response.aread()
                        response.raise_for_status()
                    yield response

    async def call(self, method: str, path: str, *, sending: bool = False, **options: Any) -> Any:
        """Return the JSON of the answer; None if it is empty. With `sending`, a lost answer is a `SendUnclear`."""
        async with self.stream(method, path, sending=sending, **options) as response:
            content = await response.aread()
            try:
                return response.json() if content else None
            except ValueError as error:
                raise httpx2.DecodingError("not JSON", request=response.request) from error

    async def download(self, path: str, **options: Any) -> AsyncIterator[bytes]:
        """Yield a file in chunks, as `fetch` does."""
        async with self.stream("GET", path, **options) as response:
            async for chunk in response.aiter_bytes(_CHUNK_BYTES):
                yield chunk

    def _explain(self, error: Exception, *, sending: bool) -> PlatformError | None:
        if not isinstance(error, httpx2.HTTPStatusError):
            return None
        response = error.response
        return self._read_answer(response) or answer_error(
            self._title,
            response.status_code,
            sending=sending,
            after=parse_retry_after(response.headers.get("retry-after", "")),
            fix=self._fix,
            gone=self._gone,
        )


def read_receipt(title: str, answer: Any, *path: str | int) -> str:
    """Return the id of a sent message from the answer to it: `read_receipt("LINE", answer, "messages", 0, "id")`."""
    try:
        for step in path:
            answer = answer[step]
        return str(answer)
    except (LookupError, TypeError) as error:
        raise SendUnclear(f"{title} did not say which message was sent.") from error
