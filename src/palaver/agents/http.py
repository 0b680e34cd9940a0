"""Agents over HTTP: requests are posted to a URL, and the lines of the wire protocol stream back."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

import httpx2
from msgspec.structs import replace

from palaver.agents.external import AgentError
from palaver.agents.wire import (
    MAX_LINE_BYTES,
    AgentRequest,
    Answer,
    FromAgent,
    ProtocolError,
    Reply,
    encode_line,
    parse_line,
)
from palaver.protocols.agent import FailureKind
from palaver.protocols.client_errors import parse_retry_after
from palaver.protocols.rest import tls_context

_MAX_POSTS = 100
"""How many requests one turn can take: one more after each time the agent asks for something."""
_ACCEPT = "application/x-ndjson, text/event-stream, application/json"
_LINES = frozenset({"application/x-ndjson", "application/jsonl", "application/json-lines"})
_TRANSIENT = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_LOCAL_ERRORS = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL)


@dataclass(frozen=True, kw_only=True)
class HttpTransport:
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout: float = 120.0
    """How many seconds the server can stay silent."""

    @asynccontextmanager
    async def call(self, request: AgentRequest) -> AsyncGenerator["_HttpCall"]:
        async with httpx2.AsyncClient(headers=self.headers, timeout=self.timeout, verify=tls_context()) as client:
            yield _HttpCall(client, self.url, request)

    def retire(self) -> None:
        """Do nothing: connections end with their turns."""

    async def close(self) -> None:
        """Do nothing: connections end with their turns."""


class _HttpCall:
    """Answers what the agent asks for in the next request of the turn."""

    def __init__(self, client: httpx2.AsyncClient, url: str, request: AgentRequest) -> None:
        self._client = client
        self._url = url
        self._request = request
        self._replies: tuple[Reply, ...] = ()

    def reply(self, reply: Reply) -> None:
        self._replies += (reply,)

    async def lines(self) -> AsyncGenerator[FromAgent]:
        for _ in range(_MAX_POSTS):
            replies = len(self._replies)
            async with aclosing(self._post()) as lines:
                async for line in lines:
                    yield line
            if len(self._replies) == replies:
                raise AgentError(FailureKind.TRANSIENT, "the answer ended before it was complete")
        raise AgentError(FailureKind.FATAL, f"it asked for a reply {_MAX_POSTS} times in one turn")

    async def _post(self) -> AsyncGenerator[FromAgent]:
        request = self._request
        if isinstance(request, Answer):
            request = replace(request, replies=self._replies)
        headers = {"content-type": "application/json", "accept": _ACCEPT}
        body = encode_line(request)
        try:
            async with self._client.stream("POST", self._url, content=body, headers=headers) as response:
                _check_status(response)
                async for line in _lines(response):
                    yield parse_line(line)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            never_connected = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            kind = FailureKind.UNREACHABLE if never_connected else FailureKind.TRANSIENT
            kind = FailureKind.FATAL if isinstance(error, _LOCAL_ERRORS) else kind
            raise AgentError(kind, f"the server could not be reached: {type(error).__name__}") from error


def _check_status(response: httpx2.Response) -> None:
    """Accept only 200. Following a redirect would send the conversation, and secrets, to somebody else."""
    code = response.status_code
    if code == HTTPStatus.OK:
        return
    kind = FailureKind.FATAL
    if code in _TRANSIENT or code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        kind = FailureKind.TRANSIENT
    if code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        kind = FailureKind.OVERFLOW
    raise AgentError(
        kind, f"the server answered with status {code}", parse_retry_after(response.headers.get("retry-after", ""))
    )


def _lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _LINES:
        return _split_lines(response)
    if kind == "text/event-stream":
        return _event_data(response)
    if kind == "application/json":
        return _whole_body(response)
    raise ProtocolError("the answer is neither JSON lines, nor server-sent events, nor JSON")


async def _split_lines(response: httpx2.Response) -> AsyncGenerator[bytes]:
    rest = bytearray()
    async for piece in response.aiter_bytes():
        *whole, last = piece.split(b"\n")
        for part in whole:
            rest += part
            if line := bytes(rest).strip():
                yield line
            rest.clear()
        rest += last
        _check_length(rest)
    if rest.strip():
        yield bytes(rest)


async def _event_data(response: httpx2.Response) -> AsyncGenerator[bytes]:
    """Yield the `data:` of each event, which is a line of the protocol."""
    async with aclosing(_split_lines(response)) as lines:
        async for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip()


async def _whole_body(response: httpx2.Response) -> AsyncGenerator[bytes]:
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        _check_length(content)
    yield bytes(content)


def _check_length(content: bytearray) -> None:
    if len(content) > MAX_LINE_BYTES:
        raise ProtocolError(f"a line is longer than {MAX_LINE_BYTES} bytes")
