"""The webhook adapter passes the suite, over real HTTP in both directions."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from itertools import count

import httpx2
import pytest

from palaver.model.errors import StoreUnavailable
from palaver.model.source import CHANNEL, Source
from palaver.platforms.webhook.adapter import WebhookAdapter
from palaver.platforms.webhook.options import WebhookOptions
from palaver.platforms.webhook.signature import Scheme, decode_secret, sign
from palaver.protocols.adapter import Adapter, Receiver
from palaver.protocols.capabilities import HttpRequest
from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.fake_server import FakeServer, Shown
from tests.platforms.webhook.loopback import SECRET, Asked, Endpoint, Said, serving

_ids = count(1)
_TRUST = ssl.create_default_context()


class Served(WebhookAdapter):
    """While it runs, calls are handed to it."""

    receiver: Receiver | None = None

    async def run(self, receiver: Receiver) -> None:
        self.receiver = receiver
        try:
            await super().run(receiver)
        finally:
            self.receiver = None


class Program:
    """One that calls until it is told yes, and one that is posted to."""

    chat_id = "ci"
    thread_id: str | None = None

    def __init__(self, receiver: Endpoint) -> None:
        self._receiver = receiver
        self._receives_at = ""
        self._called_at = ""
        self._adapter: Served | None = None
        self._unsaid: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()

    async def run(self) -> None:
        while True:
            message, body = await self._unsaid.get()
            while not await self._taken(message, body):  # noqa: ASYNC110 - as programs do
                await asyncio.sleep(0.005)

    async def _taken(self, message: str, body: bytes) -> bool:
        headers = sign(decode_secret(Scheme.STANDARD, SECRET), message, datetime.now(UTC), body)
        async with httpx2.AsyncClient(timeout=0.2, trust_env=False, verify=_TRUST) as client:
            try:
                return (await client.post(self._called_at, content=body, headers=headers)).status_code < 500
            except httpx2.TransportError:
                return False

    async def hear(self, asked: Asked) -> Said | None:
        adapter = self._adapter
        if adapter is None or adapter.receiver is None:
            return Said(503)
        try:
            reply = await adapter.handle_callback(
                HttpRequest(method=asked.method, headers=asked.headers, body=asked.body), adapter.receiver
            )
        except StoreUnavailable:
            return Said(503)
        return Said(reply.status, reply.body)

    def at(self, *, called: str, receives: str) -> None:
        self._called_at, self._receives_at = called, receives

    def adapter(self) -> Adapter:
        options = WebhookOptions.model_validate(
            {
                "secret": SECRET,
                "text": "{{ text }}",
                "fences": False,
                "session": "room",
                "name": "name",
                "url": self._receives_at,
                "called": True,
            }
        )
        self._adapter = Served("ci", options)
        return self._adapter

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        assert thread_id is None
        message = f"msg_{next(_ids)}"
        await self.say_under(message, text, name=name)
        return Source(
            platform="webhook",
            account="ci",
            chat_kind=CHANNEL,
            chat_id="room/ops",
            user_id="ci",
            message_id=message,
        )

    async def say_under(self, message_id: str, text: str, *, name: str = "alice") -> None:
        self._unsaid.put_nowait((message_id, json.dumps({"text": text, "name": name, "room": "ops"}).encode()))

    async def shown(self) -> list[Shown]:
        return [
            Shown(chat_id=payload["data"]["account"], text=payload["data"]["text"])
            for payload in self._receiver.payloads
        ]

    async def cut(self) -> None:
        """Anyone who calls makes a connection for each call."""

    async def limit_rate(self) -> None:
        self._receiver.plans.append(Said(429, headers={"retry-after": "1"}))

    async def lose_send(self, *, shown: bool) -> None:
        self._receiver.plans.append("taken" if shown else "lost")

    async def close_chat(self) -> None:
        self._receiver.plans.append(Said(410))


class TestWebhook(AdapterConformance):
    @pytest.fixture
    async def fake(self) -> AsyncGenerator[FakeServer]:
        receiver = Endpoint()
        fake = Program(receiver)
        async with AsyncExitStack() as stack:
            called = await stack.enter_async_context(serving(fake.hear))
            receives = await stack.enter_async_context(serving(receiver.answer))
            fake.at(called=called, receives=f"{receives}/hook")
            running = asyncio.create_task(fake.run())
            yield fake
            running.cancel()
            await asyncio.wait({running})
