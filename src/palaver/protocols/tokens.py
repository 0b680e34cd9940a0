"""Call an HTTP API whose access token expires, and whose answers have error codes. It needs httpx2, from an extra."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import httpx2

from palaver.model.value import value
from palaver.protocols.adapter import PlatformBusy, PlatformDown, PlatformError, PlatformRefused, Receiver, SendRefused
from palaver.protocols.rest import RestApi

__all__ = ["AccessToken", "ApiCodes", "TokenApi", "in_header", "in_query", "keep_checking"]

# ruff: noqa: ANN401 - options of httpx2, and JSON is anything

_MARGIN_SECONDS = 300.0
_CHECK_SECONDS = 300.0
_MAX_WORDS = 200
_CHUNK_BYTES = 65_536
_MAX_ERROR_BYTES = 4096
_SERVER_ERROR = 500
_TELLING = frozenset({401, 408, 429})
_BUSY_SECONDS = 5.0
Code = int | str
Options = Mapping[str, Any]


class AccessToken:
    """A token that expires: fetched when it is needed, and again shortly before its end."""

    def __init__(
        self, fetch: Callable[[], Awaitable[tuple[str, float]]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`fetch` returns a new token, and for how many seconds it is valid."""
        self._fetch, self._clock = fetch, clock
        self._token, self._until = "", 0.0
        self._lock = asyncio.Lock()

    async def get(self) -> str:
        async with self._lock:
            if not self._token or self._clock() >= self._until:
                self._token, seconds = await self._fetch()
                self._until = self._clock() + max(seconds - _MARGIN_SECONDS, seconds / 2)
            return self._token

    def drop(self, token: str) -> None:
        """Forget a token that the platform no longer accepts."""
        if token == self._token:
            self._token = ""


@value
class ApiCodes:
    """What the error codes of a platform mean. Any other code refuses a send."""

    code: str = "errcode"
    words: str = "errmsg"
    """The names of both in an answer."""
    within: str = ""
    """The object of the answer that they are in; empty for the answer itself."""
    expired: frozenset[Code] = frozenset()
    """The token is no longer valid: the request is repeated with a new one."""
    expires_with_401: bool = False
    """The status 401 says so, too."""
    busy: frozenset[int] = frozenset()
    """Statuses that ask to try again later, besides 429."""
    errors: Mapping[Code, Callable[[], PlatformError]] = field(default_factory=dict[Code, Callable[[], PlatformError]])
    """Makes the error: `partial(PlatformBusy, 5.0)`, `partial(TargetGone, "The chat is gone.")`."""
    fix: str = ""
    """What to do if a new token is not accepted either."""

    def problem(self, title: str, answer: object) -> PlatformError | None:
        """Return what an answer reports; None if it reports no error."""
        if not isinstance(answer, dict):
            return None
        found = cast("dict[str, Any]", answer)
        if self.within:
            return replace(self, within="").problem(title, found.get(self.within))
        code = found.get(self.code)
        if not code or not isinstance(code, Code):
            return None
        if code in self.expired:
            return _TokenExpired(self.fix or f"{title} does not accept the credentials.")
        if code in self.errors:
            return self.errors[code]()
        return SendRefused(f"{title} rejects it: {code} {str(found.get(self.words) or '')[:_MAX_WORDS]}".rstrip())

    def explain(self, title: str, response: httpx2.Response, gone: Collection[int] = ()) -> PlatformError | None:
        """Explain an error answer; None if its status says more than a code that we do not know."""
        problem, status = self.problem(title, _json(response.content)), response.status_code
        if status == HTTPStatus.UNAUTHORIZED and self.expires_with_401:
            return _TokenExpired(self.fix)
        if status in self.busy:
            return PlatformBusy(_BUSY_SECONDS)
        says_more = status >= _SERVER_ERROR or status in _TELLING or status in gone
        return None if type(problem) is SendRefused and says_more else problem


class _TokenExpired(PlatformRefused):
    pass


def in_header(name: str, prefix: str = "") -> Callable[[str], Options]:
    return lambda token: {"headers": {name: f"{prefix}{token}"}}


def in_query(name: str = "access_token") -> Callable[[str], Options]:
    return lambda token: {"params": {name: token}}


async def keep_checking(
    opened: AbstractAsyncContextManager[object], check: Callable[[], Awaitable[object]], receiver: Receiver
) -> None:
    """Serve an account that the platform calls: report the connection once `check` succeeds, and repeat it."""
    async with opened:
        await check()
        await receiver.connected()
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            await check()


class TokenApi:
    """Like `RestApi`, with a token in each request."""

    def __init__(
        self,
        title: str,
        url: str,
        *,
        fetch: Callable[[], Awaitable[tuple[Any, Any]]],
        place: Callable[[str], Options],
        codes: ApiCodes,
        gone: tuple[int, ...] = (),
    ) -> None:
        """`fetch` returns what the platform answers: a token, and for how many seconds it is valid; it can use `ask`.

        `place` puts the token into a request.
        """
        explain = partial(codes.explain, title, gone=gone)
        self._rest = RestApi(title, url, fix=codes.fix, gone=gone, explain=explain)
        self._title, self._codes, self._place, self._fetch = title, codes, place, fetch
        self.token = AccessToken(self.fetch_token)

    async def fetch_token(self) -> tuple[str, float]:
        """Fetch another token. A refused one is reported as something that a person must correct."""
        try:
            token, seconds = await self._fetch()
            return _text(token), float(seconds)
        except SendRefused as error:
            raise PlatformRefused(f"{self._codes.fix or 'The credentials are wrong.'} ({error})") from error
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise PlatformDown(f"{self._title} gives no access token.") from error

    def opened(self) -> AbstractAsyncContextManager[object]:
        return self._rest.opened()

    async def keep_checking(self, check: Callable[[], Awaitable[object]], receiver: Receiver) -> None:
        await keep_checking(self.opened(), check, receiver)

    async def ask(self, method: str, path: str, *, sending: bool = False, **options: Any) -> Any:
        """Call without a token."""
        answer = await self._rest.call(method, path, sending=sending, **options)
        if problem := self._codes.problem(self._title, answer):
            raise problem
        return answer

    async def call(self, method: str, path: str, *, sending: bool = False, **options: Any) -> Any:
        """Return the JSON of the answer. An expired token is replaced once: the platform did nothing with it."""
        token = await self.token.get()
        try:
            return await self.ask(method, path, sending=sending, **_joined(options, self._place(token)))
        except _TokenExpired:
            self.token.drop(token)
        token = await self.token.get()
        return await self.ask(method, path, sending=sending, **_joined(options, self._place(token)))

    async def download(self, path: str, **options: Any) -> AsyncIterator[bytes]:
        """Yield a file in chunks. An expired token is replaced once."""
        token = await self.token.get()
        try:
            async for chunk in self._download(path, token, options):
                yield chunk
        except _TokenExpired:
            self.token.drop(token)
        else:
            return
        async for chunk in self._download(path, await self.token.get(), options):
            yield chunk

    async def _download(self, path: str, token: str, options: Options) -> AsyncIterator[bytes]:
        """Some platforms answer 200 and JSON if there is none."""
        async with self._rest.stream("GET", path, **_joined(options, self._place(token))) as response:
            chunks = response.aiter_bytes(_CHUNK_BYTES)
            if "json" in response.headers.get("content-type", ""):
                first = await anext(chunks, b"")
                if len(first) <= _MAX_ERROR_BYTES and (problem := self._codes.problem(self._title, _json(first))):
                    raise problem
                yield first
            async for chunk in chunks:
                yield chunk


def _text(token: object) -> str:
    if not isinstance(token, str) or not token:
        raise TypeError("there is no token")
    return token


def _json(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _joined(options: Options, more: Options) -> dict[str, Any]:
    return {**options, **{name: {**(options.get(name) or {}), **values} for name, values in more.items()}}
