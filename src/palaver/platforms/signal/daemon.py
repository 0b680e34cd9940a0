"""Talk to a signal-cli daemon: JSON-RPC for requests, server-sent events for messages, and what its errors mean."""

import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from itertools import count
from typing import Any, cast

import httpx2

from palaver.protocols import (
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from palaver.protocols.rest import RestApi

log = logging.getLogger(__name__)

_HINT = "Start it: signal-cli daemon --http 127.0.0.1:8080 --receive-mode on-connection"
_REQUEST_TIMEOUT = httpx2.Timeout(120.0, connect=10.0)
"""A message to a large group goes to each member's devices."""
_EVENTS_TIMEOUT = httpx2.Timeout(60.0, connect=10.0)
"""signal-cli sends a comment every 15 seconds, and older versions nothing before the first."""
_UNTRUSTED = -4
_RATE_LIMIT = -5
_IO_ERROR = -3
_NO_METHOD = -32601
_BAD_PARAMETERS = -32602
_INTERNAL = -32603
_GONE = re.compile(r"Group not found|User is not (?:a member in|allowed to send message to) group|is not registered")
_RATE_LIMIT_SECONDS = 60.0
"""How long to wait if Signal does not say."""
_MAX_WORDS = 200
_MISDIRECTED = 421
_NONE: Mapping[str, object] = {}


class MethodMissing(SendRefused):
    """signal-cli has no such method, or not in this mode."""


class Daemon:
    """One account of a daemon, which can have several."""

    def __init__(self, url: str, number: str) -> None:
        self.number = number
        self._numbers = count(1)
        self._has_one = False
        """It was started for this account alone; then some methods do not take an account."""
        self._api = RestApi("signal-cli", url, explain=self._explain_status, hint=_HINT)
        self.opened = self._api.opened

    async def check(self) -> None:
        """Raise if it does not have the account. A daemon for one account does not name it before the first message."""
        try:
            accounts = await self.call("listAccounts")
        except MethodMissing:
            self._has_one = True
            await self.call("version")
        else:
            self._has_one = False
            if self.number not in [each.get("number") for each in accounts]:
                raise self.unknown_account()

    @property
    def _account(self) -> Mapping[str, object]:
        return {} if self._has_one else {"account": self.number}

    async def call(self, method: str, params: Mapping[str, object] = _NONE, *, sending: bool = False) -> Any:  # noqa: ANN401 - JSON
        """Return the result. Errors of signal-cli are those of an adapter."""
        request = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method}
        answer: object = await self._api.call(
            "POST",
            "/api/v1/rpc",
            sending=sending,
            # As ASCII: a lone surrogate has no UTF-8.
            content=json.dumps({**request, "params": {**self._account, **params}}).encode(),
            headers={"content-type": "application/json"},
            timeout=_REQUEST_TIMEOUT,
        )
        if not isinstance(answer, dict):
            raise (SendUnclear if sending else PlatformDown)("signal-cli gave no answer.")
        found = cast("dict[str, Any]", answer)
        if found.get("error"):
            raise self._explain(found["error"], sending=sending)
        return found.get("result")

    @asynccontextmanager
    async def events(self) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Connect, and yield what comes: one JSON text each."""
        where = {"account": self.number}
        options = {"accept": "text/event-stream"}
        stream = self._api.stream("GET", "/api/v1/events", params=where, headers=options, timeout=_EVENTS_TIMEOUT)
        async with stream as response:
            yield read_events(response.aiter_bytes())

    def unknown_account(self) -> PlatformRefused:
        return PlatformRefused(
            f"signal-cli has no account {self.number}. Link it (signal-cli link -n palaver) or register it "
            f"(signal-cli -a {self.number} register), then restart the daemon."
        )

    def _explain_status(self, response: httpx2.Response) -> PlatformError | None:
        if response.status_code == HTTPStatus.BAD_REQUEST and response.request.method == "GET":
            return self.unknown_account()
        if response.status_code == HTTPStatus.NOT_FOUND:
            return PlatformRefused(
                "There is no signal-cli at the url: start it as daemon --http, in version 0.13 or later."
            )
        if response.status_code == _MISDIRECTED:
            return PlatformRefused("signal-cli rejects the host in the url: use the one that it has after --http.")
        return None

    def _explain(self, error: Mapping[str, Any], *, sending: bool) -> PlatformError:
        """Translate a JSON-RPC error. A failed send names the failure of each recipient."""
        code = error.get("code")
        results = _results(error)
        kinds = {result.get("type") for result in results}
        if code == _BAD_PARAMETERS and "account" in str(error.get("message")):
            return self.unknown_account()
        if code == _RATE_LIMIT or "RATE_LIMIT_FAILURE" in kinds or any(result.get("token") for result in results):
            return self._rate_limit(results)
        if code == _UNTRUSTED or kinds == {"IDENTITY_FAILURE"}:
            return SendRefused(
                f"The safety number of the recipient has changed. Trust it: signal-cli -a {self.number} trust -a NUMBER"
            )
        return _rejection(code, str(error.get("message") or "")[:_MAX_WORDS], kinds, sending=sending)

    def _rate_limit(self, results: Sequence[Mapping[str, Any]]) -> PlatformBusy:
        waits = [wait for result in results if isinstance(wait := result.get("retryAfterSeconds"), int | float)]
        if token := next((token for result in results if (token := result.get("token"))), None):
            extra = {"action": "signal.captcha_needed"}
            log.warning(
                "Signal wants to see that you are no robot. Open https://signalcaptchas.org/challenge/generate.html, "
                "solve it, copy the link behind Open Signal, and run: "
                "signal-cli -a %s submitRateLimitChallenge --challenge %.200s --captcha LINK",
                self.number,
                token,
                extra=extra,
            )
        return PlatformBusy(max(float(max(waits, default=0)), 0.0) or _RATE_LIMIT_SECONDS)


def _rejection(code: object, words: str, kinds: Collection[object], *, sending: bool) -> PlatformError:
    if code == _NO_METHOD:
        return MethodMissing("signal-cli has no such method.")
    if _GONE.search(words) or kinds == {"UNREGISTERED_FAILURE"}:
        return TargetGone(f"signal-cli rejects it: {words}")
    is_internal = code in {_IO_ERROR, _INTERNAL} and "AttachmentInvalid" not in words
    if is_internal or "NETWORK_FAILURE" in kinds:
        return (SendUnclear if sending else PlatformDown)(f"signal-cli failed: {words}")
    return SendRefused(f"signal-cli rejects it: {words}")


def _results(error: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    try:
        found: Sequence[object] = error["data"]["response"]["results"]
    except (KeyError, TypeError):
        return []
    return [cast("Mapping[str, Any]", each) for each in found if isinstance(each, Mapping)]


async def read_events(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of each server-sent event. Only LF and CR LF end a line: text can have other separators."""
    rest = b""
    data = list[bytes]()
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in (line.removesuffix(b"\r") for line in lines):
            if line.startswith(b"data:"):
                data.append(line.removeprefix(b"data:").removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data.clear()
