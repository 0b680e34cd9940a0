"""Agents over HTTP: the same lines as of a program, posted to an address and streamed back."""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import httpx2
from msgspec.structs import replace

from palaver.agents.external import Broken, Question
from palaver.agents.wire import LONGEST_LINE, Answer, FromAgent, Reply, Rubbish, encoded, parsed
from palaver.protocols.agent import FailureKind

__all__ = [
    "Endpoint",
]

_ROUNDS = 100
"""How often in one turn it may ask for something and be asked again."""
_TAKES = "application/x-ndjson, text/event-stream, application/json"
_LINES = frozenset({"application/x-ndjson", "application/jsonl", "application/json-lines"})
_PASSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_LONGEST_WAIT = 3600.0
_OURS = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout: float = 120.0
    """For how many seconds it may say nothing."""
    _trust: ssl.SSLContext = field(default_factory=httpx2.create_ssl_context, init=False, repr=False)

    @asynccontextmanager
    async def talk(self, question: Question) -> AsyncGenerator["_Posts"]:
        async with httpx2.AsyncClient(headers=self.headers, timeout=self.timeout, verify=self._trust) as client:
            yield _Posts(client, self.url, question)

    def retire(self) -> None:
        """Connections end with their turns."""

    async def close(self) -> None:
        self.retire()


class _Posts:
    """Whatever is asked for while an answer comes is answered in the next request of the turn."""

    def __init__(self, client: httpx2.AsyncClient, url: str, question: Question) -> None:
        self._client = client
        self._url = url
        self._question = question
        self._replies: tuple[Reply, ...] = ()

    def reply(self, reply: Reply) -> None:
        self._replies += (reply,)

    async def said(self) -> AsyncGenerator[FromAgent]:
        for _ in range(_ROUNDS):
            known = len(self._replies)
            async with aclosing(self._post()) as said:
                async for each in said:
                    yield each
            if len(self._replies) == known:
                raise Broken(FailureKind.TRANSIENT, "the answer ended before it was whole")
        raise Broken(FailureKind.FATAL, f"it asked back {_ROUNDS} times in one turn")

    async def _post(self) -> AsyncGenerator[FromAgent]:
        question = self._question
        if isinstance(question, Answer):
            question = replace(question, replies=self._replies)
        headers = {"content-type": "application/json", "accept": _TAKES}
        try:
            async with self._client.stream("POST", self._url, content=encoded(question), headers=headers) as response:
                _refuse(response)
                async for line in _lines(response):
                    yield parsed(line)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            kind = FailureKind.FATAL if isinstance(error, _OURS) else FailureKind.TRANSIENT
            raise Broken(kind, f"the address could not be asked: {type(error).__name__}") from error


def _refuse(response: httpx2.Response) -> None:
    """Only 200 is an answer. A redirect would send what was said, and secrets, to somebody else."""
    code = response.status_code
    if code == HTTPStatus.OK:
        return
    kind = FailureKind.FATAL
    if code in _PASSING or code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        kind = FailureKind.TRANSIENT
    if code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        kind = FailureKind.OVERFLOW
    raise Broken(kind, f"the address answers with status {code}", _after(response.headers.get("retry-after", "")))


def _after(text: str) -> float | None:
    """Seconds; also where it was written as a date."""
    try:
        seconds = float(text) if text.isdigit() else (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return None
    return min(max(seconds, 0.0), _LONGEST_WAIT)


def _lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _LINES:
        return _split(response)
    if kind == "text/event-stream":
        return _events(response)
    if kind == "application/json":
        return _whole(response)
    raise Rubbish("the answer is neither lines of JSON, nor events, nor JSON")


async def _split(response: httpx2.Response) -> AsyncGenerator[bytes]:
    rest = bytearray()
    async for piece in response.aiter_bytes():
        *whole, last = piece.split(b"\n")
        for part in whole:
            rest += part
            if line := bytes(rest).strip():
                yield line
            rest.clear()
        rest += last
        _bounded(rest)
    if rest.strip():
        yield bytes(rest)


async def _events(response: httpx2.Response) -> AsyncGenerator[bytes]:
    """Each `data:` is a line of ours; what else an event has is left out."""
    async with aclosing(_split(response)) as lines:
        async for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip()


async def _whole(response: httpx2.Response) -> AsyncGenerator[bytes]:
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        _bounded(content)
    yield bytes(content)


def _bounded(content: bytearray) -> None:
    if len(content) > LONGEST_LINE:
        raise Rubbish(f"a line is longer than {LONGEST_LINE} bytes")
