"""Urgent commands act at once, also during a turn, also when that runs on another worker."""

from contextlib import AsyncExitStack
from pathlib import Path

from palaver.model.key import SessionKey
from palaver.model.turn import TurnState
from palaver.testkit.platform import FakePlatform, LoopClock
from tests.engine.agents import Slow, heard
from tests.engine.gateway import running, until
from tests.store.conftest import fresh_store


async def test_status_and_help_are_answered_during_a_turn(store_url: str) -> None:
    agent = Slow()
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/status")
        await chat.hears("no open conversation here")
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "second")
        await chat.say(alice, "/status")
        status = await chat.hears("working since")
        assert "1 waiting" in status.text
        await chat.say(alice, "/help")
        await chat.hears("/stop:")
        assert len(agent.requests) == 1


async def test_stop_ends_the_answer_and_the_queue_goes_on(store_url: str) -> None:
    agent = Slow()
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "second")
        await chat.say(alice, "/stop")
        await chat.hears("Stopping.")
        await until(lambda: len(agent.requests) == 2)
        agent.go.set()
        await chat.hears("second")
        assert not any(message.text == "answer to: first" for message in chat.shown)
        assert any("the user stopped" in text for text in await here.texts())


async def test_stop_all_drops_what_waits_as_well(store_url: str) -> None:
    agent = Slow()
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        for text in ("second", "/title Third"):
            await chat.say(alice, text)
        await chat.say(alice, "/stop all")
        await chat.hears("Stopping. 2 messages were still waiting and will not be answered.")
        agent.go.set()
        await here.settled()
        await chat.say(alice, "later")
        await chat.hears("later")
        assert [request for request in agent.requests if "second" in heard(request)] == []
        rows = await here.rows("SELECT reason FROM inbox WHERE state = 'failed'")
        assert rows == [("stopped before it was answered",)] * 2
        await chat.say(alice, "/stop all")
        await chat.hears("nothing to stop")


async def test_stop_where_nothing_runs_says_so(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/stop")
        await chat.hears("nothing to stop")


async def test_what_is_not_urgent_waits_for_the_turn(tmp_path: Path) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "/new Holidays")
        await chat.hears("Still answering")
        assert len(chat.shown) == 1
        agent.go.set()
        await chat.hears("Its title is “Holidays”")
        assert [message.text[:10] for message in chat.shown] == ["Still answ", "answer to:", "Started a "]


async def test_a_command_that_is_misused_is_answered_with_what_is_allowed(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/help nothing")
        await chat.hears("Unknown command")


async def test_stop_reaches_a_turn_on_another_worker(postgres_server: str) -> None:
    url, world, agent = await fresh_store(postgres_server), FakePlatform(), Slow()
    async with AsyncExitStack() as stack:
        # The first worker serves the account and takes no turns; the second has no account.
        front = await stack.enter_async_context(running(url, world, alone=False, concurrent_turns=0))
        await stack.enter_async_context(running(url, worker="w2", alone=False, agent=agent, adapters=[]))
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "/status")
        await chat.hears("working since")
        await chat.say(alice, "/stop")
        await chat.hears("Stopping.")
        await until(lambda: agent.at_once == 0)
        await front.settled()
        assert [row[0] for row in await front.rows("SELECT state FROM turns")] == ["done"]


async def test_a_stop_that_nobody_lived_to_obey_is_obeyed_by_the_next_worker(tmp_path: Path) -> None:
    world, agent = FakePlatform(), Slow()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, agent=agent) as here:
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        here.serving.cancel()
        (key,) = [SessionKey.parse(row[0]) for row in await here.rows("SELECT key FROM turns")]
        asked = here.store.turn_control.request_stop(key, LoopClock().now(), by="alice")
        assert await here.store.transact(asked)
    async with running(tmp_path / "p.db", world, worker="w2", agent=agent) as here:
        await here.settled()
        rows = await here.rows("SELECT state FROM turns")
        assert [row[0] for row in rows] == [TurnState.DONE.value]
        assert any("the user stopped" in text for text in await here.texts())
