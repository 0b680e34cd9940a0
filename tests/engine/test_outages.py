"""What the store refused, or did without saying so, is neither lost nor done twice nor taken for somebody else's."""

import asyncio
import logging
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.model.errors import StoreError, StoreUnavailable
from palaver.model.key import Scope, derive_key
from palaver.model.source import Source
from palaver.protocols.hooks import EventKind
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Slow
from tests.engine.gateway import Bench, MovableClock, running, until
from tests.engine.trouble import trouble

SETTLED, SENT = "UPDATE turns SET state = ?, ended", "UPDATE outbox SET state = ?, receipt"
OUTAGE, FULL = StoreUnavailable("it is not known whether it happened"), StoreError("disk full")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.engine.delivery.worker.SETTLE_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("palaver.engine.turns.running.SIGNAL_RETRY_SECONDS", 0.01)


def _kinds(here: Bench) -> list[EventKind]:
    return [happening.kind for happening in here.happened]


@pytest.mark.parametrize("statement", [SETTLED, SENT])
async def test_what_was_written_though_nobody_heard_so_is_not_taken_for_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    async with running(tmp_path / "p.db") as here:
        happened = trouble(monkeypatch, here.store, "transact", statement, OUTAGE, done=True)
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await until(lambda: {EventKind.TURN_FINISHED, EventKind.MESSAGE_DELIVERED} <= set(_kinds(here)))
        await here.settled()
        assert happened()
        assert [message.text for message in chat.shown] == ["You said: hello"]
        assert (await here.texts())[-2:] == ["hello", "You said: hello"]
        assert await here.rows("SELECT state, attempt FROM turns") == [("done", 1)]
    assert "took over" not in caplog.text


@pytest.mark.parametrize("statement", ["INSERT INTO turns", "UPDATE outbox SET state = 'claimed'"])
async def test_what_was_claimed_though_nobody_heard_so_does_not_wait_for_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    rarely = timedelta(hours=10)
    async with running(tmp_path / "p.db", lease=rarely, send_limit=rarely) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one")
        await chat.hears("You said: one")
        await here.settled()
        happened = trouble(monkeypatch, here.store, "transact", statement, OUTAGE, done=True)
        await chat.say(alice, "two")
        await chat.hears("You said: two")
        assert happened()
        assert [message.text for message in chat.shown] == ["You said: one", "You said: two"]


async def test_a_turn_that_was_parked_though_nobody_heard_so_is_not_taken_for_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path / "p.db") as here:
        happened = trouble(monkeypatch, here.store, "transact", "pending_call = ?", OUTAGE, done=True)
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "!approve")
        await until(lambda: len(chat.shown) == 1)
        await here.settled()
        assert happened()
        assert await here.rows("SELECT state, attempt FROM turns") == [("parked", 1)]
    assert "took over" not in caplog.text


async def test_a_send_that_the_store_refused_to_settle_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = timedelta(seconds=0.3)
    async with running(tmp_path / "p.db", lease=short, send_limit=short) as here:
        happened = trouble(monkeypatch, here.store, "transact", SENT, FULL)
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("hello")
        await here.settled()
        assert happened()
        assert [message.text for message in chat.shown] == ["You said: hello"]
        assert await here.rows("SELECT state, attempts FROM outbox") == [("delivered", 1)]


@pytest.mark.parametrize(
    ("said", "statement", "answer"),
    [
        ("hello", "INSERT INTO turns", "You said: hello"),
        ("/new", "UPDATE inbox SET state", "Started a new conversation"),
    ],
)
async def test_what_an_outage_kept_from_beginning_begins_when_the_store_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, statement: str, answer: str
) -> None:
    async with running(tmp_path / "p.db", lease=timedelta(hours=1)) as here:
        happened = trouble(monkeypatch, here.store, "transact", statement, OUTAGE)
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, said)
        await chat.hears(answer)
        assert happened()


async def test_what_the_store_refused_to_begin_is_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = MovableClock()
    async with running(tmp_path / "p.db", clock=clock, lease=timedelta(hours=1)) as here:
        trouble(monkeypatch, here.store, "transact", "INSERT INTO turns", FULL)
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await until(lambda: "work on a conversation failed" in caplog.text)
        other = here.world.dm(bob)
        await other.say(bob, "hi")
        await other.hears("You said: hi")
        assert not chat.shown
        clock.later(hours=2)
        await other.say(bob, "on")
        await chat.hears("You said: hello")


async def test_a_send_that_breaks_is_not_broken_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(tmp_path / "p.db") as here:
        monkeypatch.setattr("palaver.engine.delivery.worker.DeliveryWorker._begin", None)
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await until(lambda: "a send failed" in caplog.text)


async def test_who_says_stop_is_heard_also_after_the_store_refused_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Slow()
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await until(lambda: bool(agent.requests))
        happened = trouble(monkeypatch, here.store, "read", "SELECT stopped_by, key FROM turns", FULL)
        await chat.say(alice, "/stop")
        await here.settled()
        assert happened()


@pytest.mark.parametrize(
    ("how", "statement"), [("read", "FROM inbox i JOIN turns"), ("transact", "FROM entries WHERE id >=")]
)
async def test_an_outage_during_a_takeover_spends_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, statement: str
) -> None:
    world, agent = FakePlatform(), Slow()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, agent=agent):
        await chat.say(alice, "hello")
        await until(lambda: bool(agent.requests))
    agent.go.set()
    async with running(tmp_path / "p.db", world, agent=agent, worker="w2") as here:
        happened = trouble(monkeypatch, here.store, "read" if how == "read" else "transact", statement, OUTAGE)
        await chat.hears("answer to")
        assert happened()
        assert [request.attempt for request in agent.requests] == [1, 2]


@transaction
def _forget() -> Statements[None]:
    yield "UPDATE inbox SET turn_no = NULL, state = 'done'", ()


async def test_a_turn_whose_messages_are_gone_ends(tmp_path: Path) -> None:
    world, agent = FakePlatform(), Slow()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, agent=agent) as here:
        await chat.say(alice, "hello")
        await until(lambda: bool(agent.requests))
        await here.store.transact(_forget())
    async with running(tmp_path / "p.db", world, agent=agent, worker="w2") as here:
        await here.settled()
        assert await here.rows("SELECT state, attempt FROM turns") == [("failed", 2)]


async def test_a_turn_that_is_taken_over_comes_after_what_is_done_in_its_conversation(tmp_path: Path) -> None:
    done: list[str] = []
    async with running(tmp_path / "p.db") as here:
        dispatcher = here.engine._dispatcher  # pyright: ignore[reportPrivateUsage]
        key = derive_key(Source(platform="fake", account="bot", chat_id="7", user_id="7"), Scope())

        async def first() -> None:
            await asyncio.sleep(0.05)
            done.append("first")

        async def second() -> None:
            done.append("second")

        dispatcher.start(key, first)
        dispatcher.start(key, second)
        await dispatcher.drain()
        assert done == ["first", "second"]
        assert not dispatcher.running
