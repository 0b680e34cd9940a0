"""A conversation's life in memory is nothing when idle."""

# pyright: reportPrivateUsage=false
import asyncio
import gc
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.agents.echo import EchoAgent
from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Transaction
from palaver.engine.turns.running import RunningTurn
from palaver.protocols.adapter import Limits
from palaver.protocols.hooks import GatewayEvent
from palaver.store.status import problems
from tests.engine.gateway import Bench, running, until


def kept(here: Bench) -> dict[str, int]:
    """Everything the engine keeps for conversations."""
    engine = here.engine
    return {
        "lanes": len(engine._dispatcher._tasks),
        "later": len(engine._dispatcher._not_before),
        "running": len(engine._runner._running),
        "sending": len(engine._deliveries._sending),
        "tries": len(engine._deliveries._retry_times),
        "free at": len(engine._live.budget._free_at),
        "drafts": len(engine._live.budget._drafting),
        "telling": len(engine._ctx.hooks._tasks),
    }


async def test_levels_that_nobody_reads_are_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, find, beats = list[int](), problems.failing_profiles, list[int]()

    def beat() -> Transaction[Collection[str]]:
        beats.append(1)
        return find()

    monkeypatch.setattr(problems, "failing_profiles", beat)  # asked for at the end of each heartbeat
    monkeypatch.setattr("palaver.store.queue.inbox.count_waiting", lambda: asked.append(1))
    async with running(tmp_path / "p.db", lease=timedelta(milliseconds=60)):
        await until(lambda: len(beats) > 0)
    assert asked == []


def listeners(here: Bench) -> int:
    database = here.store.database
    assert isinstance(database, SqliteDatabase)
    return sum(map(len, database._listeners.values()))


def turns_in_memory() -> int:
    return sum(isinstance(each, RunningTurn) for each in gc.get_objects())


async def test_after_the_work_nothing_is_left_in_memory(tmp_path: Path) -> None:
    limits = Limits(interval=0.01, draft_interval=0.0)
    async with running(tmp_path / "p.db", agent=EchoAgent(streams=True), limits=limits) as here:
        people = [here.world.person(f"p{number}") for number in range(10)]
        chats = [here.world.dm(person) for person in people]
        await until(lambda: not here.world.unacknowledged() and bool(here.engine.health))
        tasks = 0
        for _ in range(20):  # a loop that is between two waits has fewer tasks than at rest
            await asyncio.sleep(0.01)
            tasks = max(tasks, len(asyncio.all_tasks()))
        listening = listeners(here)
        for text in ("hello", "!tool look", "!fail", "/status", "/stop", "/new", "bye"):
            for person, chat in zip(people, chats, strict=True):
                await chat.say(person, text)
        await here.settled()
        for chat in chats:
            await chat.hears("You said: bye")
        await until(lambda: not any(kept(here).values()))
        gc.collect()
        await asyncio.sleep(0.02)
        assert listeners(here) == listening
        await until(lambda: len(asyncio.all_tasks()) <= tasks)


async def test_a_turn_goes_from_memory_without_being_looked_for(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        person = here.world.person("Ann")
        chat = here.world.dm(person)
        gc.collect()
        before = turns_in_memory()
        gc.disable()
        try:
            await chat.say(person, "hello")
            await chat.hears("You said: hello")
            await until(lambda: not any(kept(here).values()))
            assert turns_in_memory() == before
        finally:
            gc.enable()


async def test_a_gateway_that_is_dropped_leaves_no_tasks(tmp_path: Path) -> None:
    tasks = len(asyncio.all_tasks())

    async def hangs(_happening: GatewayEvent) -> None:
        await asyncio.Event().wait()

    async with running(tmp_path / "p.db", hooks=(hangs,)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "!hang")
        await until(lambda: bool(here.happened))
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
