"""The heartbeat speaks for the turns it asked about, and for no others."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from palaver.agents.echo import EchoAgent
from palaver.db.transaction import Transaction
from palaver.engine.turns.agent import RequestBuilder
from palaver.model.turn import Turn
from palaver.protocols.agent import Event, Final, Request
from palaver.protocols.hooks import EventKind
from palaver.store.queue import turns
from tests.engine.agents import Scripted
from tests.engine.gateway import MovableClock, running, until

T = TypeVar("T")


class Beat(Transaction[frozenset[int]]):
    """Transaction by which the heartbeat is known."""


async def test_a_turn_that_begins_during_the_heartbeat_is_not_taken_for_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend, asked, go_on = turns.extend_leases, asyncio.Event(), asyncio.Event()

    def beat(held: Sequence[Turn], now: datetime, lease: timedelta) -> Beat:
        return Beat(extend(held, now, lease).__iter__)

    async with running(tmp_path / "p.db", agent=EchoAgent(delay=0.3), lease=timedelta(seconds=0.6)) as here:
        transact = here.store.transact

        async def answer_late(work: Transaction[T]) -> T:
            result = await transact(work)
            if isinstance(work, Beat):
                asked.set()
                await go_on.wait()
            return result

        monkeypatch.setattr(turns, "extend_leases", beat)
        monkeypatch.setattr(here.store, "transact", answer_late)
        people = [here.world.person(name) for name in ("alice", "bob")]
        first, second = map(here.world.dm, people)
        await first.say(people[0], "one")
        await asyncio.wait_for(asked.wait(), 60)
        await second.say(people[1], "two")
        await until(lambda: sum(each.kind is EventKind.TURN_STARTED for each in here.happened) == 2)
        go_on.set()
        await second.hears("two")
        assert await here.rows("SELECT max(attempt) FROM turns") == [(1,)]


async def test_a_gateway_that_was_frozen_asks_nothing_for_a_turn_that_was_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, clock, build, frozen = tmp_path / "p.db", MovableClock(), RequestBuilder.build, list[Request]()

    def freeze_once(builder: RequestBuilder, *args: Any, **kwargs: Any) -> Request:
        request = build(builder, *args, **kwargs)
        if not frozen:
            frozen.append(request)
            with sqlite3.connect(path) as database:
                database.execute("UPDATE turns SET fence = fence + 1, worker = 'another'")
            clock.later(minutes=10)
        return request

    async def answers(_: Request) -> AsyncGenerator[Event]:
        yield Final(text="here I am")

    agent = Scripted(answers)
    monkeypatch.setattr(RequestBuilder, "build", freeze_once)
    async with running(path, agent=agent, clock=clock) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("here I am")
        assert frozen
        assert len(agent.requests) == 1, "only for the turn that it took over again"
