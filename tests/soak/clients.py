"""Clients of the web window: programs that want answers, and others that only hold on to connections."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.soak.measure import Latency

__all__ = ["ApiTalk", "SlowClients"]

_Message = dict[str, Any]

_PAUSE_SECONDS = 0.5
_WAIT_SECONDS = 10
_REQUEST_SECONDS = 30.0
_OPEN = {"waiting", "in-turn"}
_FINE, _LATER = {200, 202}, {408, 429, 500, 502, 503, 504}
HELD_SECONDS = 20.0
"""So long a slow client holds its connection, unless the gateway closes it first."""


@dataclass(kw_only=True)
class ApiTalk:
    """Programs that say something and ask until they have the answer, each message under a key of its own."""

    url: Callable[[], str]
    """Where a gateway listens at the moment."""
    token: str
    chance: random.Random
    pause: tuple[float, float] = (1.0, 4.0)
    """Seconds between an answer and the next message, at least and at most."""
    accepted: dict[str, str] = field(default_factory=dict[str, str])
    """The id of each word that was accepted."""
    answered: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    latencies: list[Latency] = field(default_factory=list[Latency])
    refused: Counter[str] = field(default_factory=Counter[str])
    """Why requests failed; each of them was tried again."""

    async def talk(self, number: int, over: asyncio.Event) -> None:
        """One program: a conversation of its own, one message after the other."""
        async with self._client() as client:
            spoken = 0
            while not over.is_set():
                spoken += 1
                await self._exchange(client, f"talk{number}", f"k{number}-{spoken}")
                await asyncio.sleep(self.chance.uniform(*self.pause))

    async def _exchange(self, client: httpx.AsyncClient, conversation: str, word: str) -> None:
        began = time.time()
        body = {"text": f"tell me {word}", "conversation": conversation, "wait": _WAIT_SECONDS}
        while True:
            sent = self.accepted.get(word)
            found = await (self._get(client, sent) if sent else self._post(client, word, body))
            if found is not None:
                self.accepted[word] = found["id"]
                if found["state"] not in _OPEN:
                    break
            await asyncio.sleep(_PAUSE_SECONDS)
        self.answered[word] = found["answer"]
        self.latencies.append(Latency(began, time.time() - began))

    async def ask_again(self) -> dict[str, str | None]:
        """What the gateway says now about everything that was accepted: the answers are still there."""
        found: dict[str, str | None] = {}
        async with self._client() as client:
            for word, name in self.accepted.items():
                while (message := await self._get(client, name)) is None:  # noqa: ASYNC110 - it is elsewhere
                    await asyncio.sleep(_PAUSE_SECONDS)
                found[word] = message["answer"]
        return found

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(headers={"Authorization": f"Bearer {self.token}"}, timeout=_REQUEST_SECONDS)

    async def _post(self, client: httpx.AsyncClient, word: str, body: Mapping[str, object]) -> _Message | None:
        headers = {"Idempotency-Key": word}
        request = client.build_request("POST", f"{self.url()}/api/v1/messages", json=body, headers=headers)
        return await self._call(client, request)

    async def _get(self, client: httpx.AsyncClient, name: str) -> _Message | None:
        query = {"wait": str(_WAIT_SECONDS)}
        return await self._call(
            client, client.build_request("GET", f"{self.url()}/api/v1/messages/{name}", params=query)
        )

    async def _call(self, client: httpx.AsyncClient, request: httpx.Request) -> _Message | None:
        """The message, or nothing if the gateway is away or refuses for now."""
        try:
            response = await client.send(request)
        except httpx.HTTPError as error:
            self.refused[type(error).__name__] += 1
            return None
        if response.status_code in _FINE:
            return response.json()
        if response.status_code not in _LATER:
            raise AssertionError(f"{request.method} {request.url}: {response.status_code} {response.text}")
        self.refused[str(response.status_code)] += 1
        return None


@dataclass(kw_only=True)
class SlowClients:
    """They send half of something, or nothing, and hold on."""

    address: Callable[[], tuple[str, int]]
    token: str
    chance: random.Random
    kept_out: Counter[str] = field(default_factory=Counter[str])
    """How each of them ended."""

    async def hold(self, over: asyncio.Event) -> None:
        kinds = (self._idle, self._half_a_head, self._half_a_body, self._half_a_body_of_nobody, self._slow_reader)
        while not over.is_set():
            kind = self.chance.choice(kinds)
            try:
                async with asyncio.timeout(HELD_SECONDS):
                    await self._held(kind())
                    self.kept_out[f"{kind.__name__.strip('_')}: closed"] += 1
            except TimeoutError:
                self.kept_out[f"{kind.__name__.strip('_')}: held on"] += 1
            except OSError:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _held(self, request: bytes) -> None:
        """Send that, then a byte now and then, until the other side closes."""
        reader, writer = await asyncio.open_connection(*self.address())
        reading = asyncio.ensure_future(reader.read())
        try:
            writer.write(request)
            while not reading.done():
                await asyncio.wait({reading}, timeout=2)
                if request.startswith(b"POST"):
                    writer.write(b"x")
        finally:
            reading.cancel()
            writer.close()
            await asyncio.gather(reading, writer.wait_closed(), return_exceptions=True)

    def _idle(self) -> bytes:
        return b""

    def _half_a_head(self) -> bytes:
        return b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "

    def _half_a_body(self) -> bytes:
        return self._body(f"Authorization: Bearer {self.token}\r\n")

    def _half_a_body_of_nobody(self) -> bytes:
        return self._body("")

    def _body(self, head: str) -> bytes:
        host, port = self.address()
        start = f"POST /api/v1/messages HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        return f'{start}{head}Content-Length: 900000\r\n\r\n{{"text": "'.encode() + b"x" * 100_000

    def _slow_reader(self) -> bytes:
        host, port = self.address()
        head = f"Host: {host}:{port}\r\nAuthorization: Bearer {self.token}\r\n"
        return f"GET /api/v1/events HTTP/1.1\r\n{head}\r\n".encode()
