"""Driver: send through an adapter as the gateway does, with a fake server at the other end."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import TypeVar

import pytest

from palaver.protocols import Adapter, Outbound, PlatformDown, TargetAway
from palaver.testkit.fake_server import FakeServer, NotPossible
from palaver.testkit.recorder import TIMEOUT_SECONDS, Recorder, running

__all__ = [
    "keep_pace",
    "new_key",
    "retry_until_connected",
    "run_adapter",
    "send",
    "skip_unless_possible",
    "skip_without_history",
    "to_chat",
]

T = TypeVar("T")
_numbers = count(1)


def new_key() -> str:
    """Return an idempotency key that no message was sent under yet."""
    return f"check-{next(_numbers)}"


def to_chat(adapter: Adapter, fake: FakeServer, text: str, *, thread_id: str | None = None) -> Outbound:
    return Outbound(
        platform=adapter.platform.name,
        account=adapter.account,
        chat_id=fake.chat_id,
        thread_id=thread_id,
        text=text,
    )


@asynccontextmanager
async def run_adapter(fake: FakeServer) -> AsyncGenerator[tuple[Adapter, Recorder]]:
    """Run a new adapter, and record what it hands over."""
    adapter = fake.adapter()
    recorder = Recorder()
    async with running(adapter, recorder):
        yield adapter, recorder


async def send(
    adapter: Adapter, fake: FakeServer, text: str, *, thread_id: str | None = None, key: str | None = None
) -> str:
    """Send as the gateway does: wait for the connection and for absent people, and keep the pace."""
    key = key or new_key()
    message = to_chat(adapter, fake, text, thread_id=thread_id)
    return await retry_until_connected(lambda: keep_pace(adapter, adapter.send(message, idempotency_key=key)))


async def retry_until_connected(send: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            try:
                return await send()
            except (PlatformDown, TargetAway):
                await asyncio.sleep(0.01)


async def keep_pace(adapter: Adapter, sending: Awaitable[T]) -> T:
    try:
        return await sending
    finally:
        await asyncio.sleep(adapter.limits.interval)


async def skip_unless_possible(fault: Awaitable[None]) -> None:
    """Let the fake server cause a fault, or skip the check with the reason it gives."""
    try:
        await fault
    except NotPossible as reason:
        pytest.skip(str(reason))


def skip_without_history(fake: FakeServer) -> None:
    if not fake.adapter().platform.keeps_history:
        pytest.skip("the platform keeps no history")
