"""Trying an adapter out: sending through it as the gateway would, with a rig at the other end."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar

import pytest

from palaver.model.turn import Outbound
from palaver.protocols.adapter import Adapter, PlatformDown, TargetAway
from palaver.testkit.notebook import PATIENCE
from palaver.testkit.rig import CannotHappen, Rig

__all__ = [
    "happening",
    "keys",
    "paced",
    "patiently",
    "send",
    "to_chat",
]

T = TypeVar("T")
keys = count(1)
"""What no message was sent under yet."""


def to_chat(adapter: Adapter, rig: Rig, text: str, *, thread_id: str | None = None) -> Outbound:
    return Outbound(
        platform=adapter.platform.name,
        account=adapter.account,
        chat_id=rig.chat_id,
        thread_id=thread_id,
        text=text,
    )


async def send(adapter: Adapter, rig: Rig, text: str, *, thread_id: str | None = None, key: str | None = None) -> str:
    """Send as the gateway would: wait for the connection and for whoever is away, keep the pace."""
    key = key or f"check-{next(keys)}"
    message = to_chat(adapter, rig, text, thread_id=thread_id)
    return await patiently(lambda: paced(adapter, adapter.send(message, idempotency_key=key)))


async def patiently(sending: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await sending()
            except (PlatformDown, TargetAway):
                await asyncio.sleep(0.01)


async def paced(adapter: Adapter, sending: Awaitable[T]) -> T:
    try:
        return await sending
    finally:
        await asyncio.sleep(adapter.limits.interval)


async def happening(trouble: Awaitable[None]) -> None:
    """Let the rig make trouble, or skip the check with the reason it gives."""
    try:
        await trouble
    except CannotHappen as reason:
        pytest.skip(str(reason))
