"""A turn that is being taken over is not taken over again by the same gateway, however slow it is."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from palaver.db.transaction import Transaction
from palaver.model.turn import Received, Turn
from palaver.protocols.hooks import EventKind
from palaver.store.queue import turns
from palaver.testkit.platform import FakePlatform
from tests.engine.gateway import running, until

T = TypeVar("T")
LEASE = timedelta(seconds=0.3)


async def test_a_takeover_that_takes_longer_than_the_lease_is_one_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, messages = FakePlatform(), turns.list_messages
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, worker="w1") as here:
        await chat.say(alice, "!slow 1 hello")
        await until(lambda: any(each.kind is EventKind.TURN_STARTED for each in here.happened))

    taken_over: list[Turn] = []

    def look(turn: Turn) -> Transaction[list[Received]]:
        taken_over.append(turn)
        return messages(turn)

    monkeypatch.setattr(turns, "list_messages", look)
    async with running(tmp_path / "p.db", world, worker="w2", lease=LEASE) as here:
        read = here.store.read

        async def read_slowly(work: Transaction[T]) -> T:
            before = len(taken_over)
            result = await read(work)
            if len(taken_over) > before:
                await asyncio.sleep(4 * LEASE.total_seconds())
            return result

        monkeypatch.setattr(here.store, "read", read_slowly)
        await chat.hears("hello")
        assert len(taken_over) == 1
        assert await here.rows("SELECT attempt, state FROM turns") == [(2, "done")]
