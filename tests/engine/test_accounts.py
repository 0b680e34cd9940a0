"""Each account is served by one gateway at a time, and taken over when that dies."""

import asyncio
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.agents.echo import EchoAgent
from palaver.db.postgres import PostgresDatabase
from palaver.engine import retry
from palaver.engine.accounts import ReconnectBackoff
from palaver.engine.settings import Agents
from palaver.model.errors import NotServed, StaleFence, StoreError
from palaver.model.source import Source
from palaver.protocols.adapter import PlatformBusy, PlatformDown, PlatformRefused, Receiver
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Slow
from tests.engine.gateway import Bench, MovableClock, NoPauses, running, until
from tests.engine.mouth import Mouth
from tests.engine.trouble import trouble
from tests.store.conftest import fresh_store

SHORT, LONG = timedelta(seconds=0.3), timedelta(minutes=10)
"""A worker looks three times in each. A long one runs out when a clock is moved, however busy the machine is."""
SECRET = "r4nd0m-p4ssw0rd-of-ours"  # noqa: S105


def serves(here: Bench) -> bool:
    return any(health.served_since for health in here.engine.health.values())


async def test_an_account_is_served_by_one_and_taken_over_when_that_one_dies(postgres_server: str) -> None:
    url, world, clock = await fresh_store(postgres_server), FakePlatform(), MovableClock()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(running(url, world, alone=False, lease=LONG))
        await until(lambda: serves(first))
        looks_often = running(url, world, worker="w2", alone=False, lease=SHORT, clock=clock)
        second = await stack.enter_async_context(looks_often)
        await chat.say(alice, "one")
        await chat.hears("You said: one")
        await asyncio.sleep(0.5)
        assert (serves(first), serves(second)) == (True, False)
        first.serving.cancel()
        clock.later(hours=1)
        await chat.say(alice, "two")
        await chat.hears("You said: two")
        assert serves(second)


async def test_a_turn_of_a_dead_worker_is_taken_over_by_a_living_one(postgres_server: str) -> None:
    url, world, agent, clock = await fresh_store(postgres_server), FakePlatform(), Slow(), MovableClock()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(url, world, alone=False, concurrent_turns=0, clock=clock))
        dies = await stack.enter_async_context(
            running(url, worker="w2", alone=False, lease=LONG, agent=agent, adapters=[])
        )
        await chat.say(alice, "hello")
        await until(lambda: bool(agent.requests))
        dies.serving.cancel()
        await asyncio.wait({dies.serving})
        agent.go.set()
        clock.later(hours=1)
        takes_over = running(url, worker="w3", alone=False, lease=LONG, agent=agent, adapters=[], clock=clock)
        await stack.enter_async_context(takes_over)
        await chat.hears("hello")
        assert [request.attempt for request in agent.requests] == [1, 2]


async def test_a_slow_worker_whose_turn_was_taken_writes_nothing_more(postgres_server: str) -> None:
    url, world, slow, quick = await fresh_store(postgres_server), FakePlatform(), Slow(), Slow()
    quick.go.set()
    alice = world.person("alice")
    chat = world.dm(alice)
    late, clock = MovableClock(), MovableClock()
    async with AsyncExitStack() as stack:
        front = await stack.enter_async_context(running(url, world, alone=False, concurrent_turns=0, clock=clock))
        await stack.enter_async_context(
            running(url, worker="w2", alone=False, agent=slow, adapters=[], clock=late, lease=timedelta(minutes=1))
        )
        await chat.say(alice, "hello")
        await until(lambda: bool(slow.requests))
        clock.later(minutes=2)  # the one who takes over sees a lease that has run out
        await stack.enter_async_context(running(url, worker="w3", alone=False, agent=quick, adapters=[], clock=clock))
        await chat.hears("answer to: hello")
        slow.go.set()
        await until(lambda: not slow.at_once)
        await front.settled()
        assert [message.text for message in chat.shown] == ["answer to: hello"]
        rows = await front.rows("SELECT state, attempt, worker FROM turns")
        assert [tuple(row) for row in rows] == [("done", 2, "w3")]


async def test_released_accounts_are_taken_at_once(postgres_server: str) -> None:
    url, world = await fresh_store(postgres_server), FakePlatform()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(running(url, world, alone=False, lease=timedelta(hours=1)))
        await until(lambda: serves(first))
        await first.engine.drain()
        first.serving.cancel()
        second = await stack.enter_async_context(running(url, world, worker="w2", alone=False))
        await until(lambda: serves(second))


async def test_a_gateway_that_waits_for_an_account_is_told_when_it_is_released(postgres_server: str) -> None:
    url, world = await fresh_store(postgres_server), FakePlatform()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(running(url, world, alone=False, lease=timedelta(hours=1)))
        await until(lambda: serves(first))
        second = await stack.enter_async_context(
            running(url, world, worker="w2", alone=False, lease=timedelta(hours=1))
        )
        await asyncio.sleep(0.2)
        assert not serves(second)
        await first.engine.drain()
        first.serving.cancel()
        await asyncio.wait({first.serving})
        assert not serves(second)
        await first.engine.notify_released()
        await until(lambda: serves(second))


async def test_maintenance_is_taken_over_at_once_from_a_gateway_that_stops(postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    rarely = timedelta(hours=1)
    find_worker = "SELECT worker FROM accounts WHERE platform = 'gateway'"
    async with running(url, alone=False, sweep_every=rarely, lease=rarely) as first:

        async def is_swept_by(worker: str) -> bool:
            return [row[0] for row in await first.rows(find_worker)] == [worker]

        await until(lambda: is_swept_by("w1"))
        await first.engine.drain()
        async with running(url, worker="w2", alone=False, sweep_every=rarely, lease=rarely):
            await until(lambda: is_swept_by("w2"))


async def test_how_far_a_platform_was_read_outlives_the_worker_and_only_its_owner_moves_it(
    postgres_server: str,
) -> None:
    url, world, clock = await fresh_store(postgres_server), FakePlatform(), MovableClock()
    old, new = Mouth(world, clock), Mouth(world, clock)
    async with running(url, world, adapters=[old], alone=False, lease=SHORT, clock=clock) as here:
        receiver = await old.receiver()
        assert await receiver.load_position() is None
        await receiver.save_position("41")
        here.serving.cancel()
        async with running(url, world, worker="w2", adapters=[new], alone=False, lease=SHORT, clock=clock):
            later = await new.receiver()
            assert await later.load_position() == "41"
            await later.save_position("42")
            with pytest.raises(StaleFence):
                await receiver.save_position("43")
            assert await later.load_position() == "42"


async def test_what_comes_by_a_call_is_taken_by_any_worker_but_how_far_was_read_is_kept_by_one(
    postgres_server: str,
) -> None:
    url, world, clock = await fresh_store(postgres_server), FakePlatform(), MovableClock()
    chat = world.dm(world.person("alice"))
    holder = Mouth(world, clock)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(url, world, adapters=[holder], alone=False, clock=clock))
        await (await holder.receiver()).save_position("41")
        called = Mouth(world, clock)
        second = await stack.enter_async_context(
            running(url, world, worker="w2", adapters=[called], alone=False, clock=clock)
        )
        receiver = second.engine.receiver("fake", "bot")
        await receiver.connected()
        called.speak_through(receiver)
        await called.say(chat, "hello")
        await chat.hears("You said: hello")
        assert not serves(second)
        with pytest.raises(NotServed, match="fake:bot"):
            await receiver.save_position("42")
        assert await receiver.load_position() == "41"


async def test_a_connection_that_is_lost_is_made_again_and_nothing_is_missed(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", chance=NoPauses()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one")
        await chat.hears("You said: one")
        here.world.cut()
        await chat.say(alice, "two")
        await chat.hears("You said: two")
        (health,) = here.engine.health.values()
        assert health.last_error


async def test_an_account_whose_loss_the_store_refuses_to_note_is_served_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "RESTART_PAUSE_SECONDS", 0.01)
    async with running(tmp_path / "p.db", chance=NoPauses()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one")
        await chat.hears("You said: one")
        has_met = trouble(monkeypatch, here.store, "transact", "failed_at = ?", StoreError("the database refused"))
        here.world.cut()
        await until(has_met)
        await chat.say(alice, "two")
        await chat.hears("You said: two")


async def test_a_platform_that_is_down_does_not_stop_the_others(tmp_path: Path) -> None:
    world, clock = FakePlatform(), MovableClock()

    class Down(Mouth):
        async def run(self, receiver: object) -> None:  # noqa: ARG002
            raise PlatformDown("no answer")

    up, down = Mouth(world, clock), Down(world, clock, account="other")
    async with running(tmp_path / "p.db", world, adapters=[up, down], clock=clock) as here:
        chat = world.dm(world.person("alice"))
        await up.say(chat, "hello")
        await chat.hears("You said: hello")
        await until(lambda: here.engine.health["fake:other"].last_error == "no answer")


class Clinging(FakeAdapter):
    is_running = False

    async def run(self, receiver: Receiver) -> None:
        await receiver.connected()
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                self.is_running = True
                await asyncio.sleep(60)


async def test_an_adapter_that_does_not_stop_holds_up_no_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("palaver.engine.accounts.CLOSE_TIMEOUT_SECONDS", 0.05)
    adapter = Clinging(FakePlatform())
    async with asyncio.timeout(60), running(tmp_path / "p.db", adapters=[adapter]) as here:
        await until(lambda: adapter.is_running)
        here.serving.cancel()
        await asyncio.wait({here.serving})
    assert "account.close_error" in {getattr(record, "action", "") for record in caplog.records}


async def test_a_platform_that_asks_to_wait_is_quoted(tmp_path: Path) -> None:
    world, clock = FakePlatform(), MovableClock()

    class Busy(Mouth):
        async def run(self, receiver: object) -> None:  # noqa: ARG002
            raise PlatformBusy(90)

    async with running(tmp_path / "p.db", world, adapters=[Busy(world, clock)], clock=clock) as here:
        said = "The platform asks us to wait 90 s."
        await until(lambda: said in [health.last_error for health in here.engine.health.values()])


class Falters(Mouth):
    """Is not connected the first time."""

    tries = 0

    async def run(self, receiver: Receiver) -> None:
        self.tries += 1
        if self.tries == 1:
            raise PlatformDown(f"no answer from https://bot:{SECRET}@example.org")
        await super().run(receiver)


async def test_how_an_account_is_doing_stands_in_the_store(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    world, clock = FakePlatform(), MovableClock()
    adapter = Falters(world, clock)
    async with running(store_url, world, adapters=[adapter], clock=clock, chance=NoPauses()) as here:
        await adapter.receiver()
        (health,) = await here.store.read(here.store.accounts.list_health(clock.now()))
        assert (health.platform, health.account, health.worker) == ("fake", "bot", "w1")
        assert (health.state, (health.last_error or "")[:9]) == ("connecting", "no answer")
        assert SECRET not in (health.last_error or "") + caplog.text
        await adapter.say(world.dm(world.person("alice")), "hello")
        (health,) = await here.store.read(here.store.accounts.list_health(clock.now()))
        assert (health.state, (health.last_error or "")[:9]) == ("connected", "no answer")


def test_pauses_grow_until_a_connection_has_worked() -> None:
    pauses, blink, hour = ReconnectBackoff(), timedelta(seconds=0.1), timedelta(hours=1)
    assert [pauses.after(stood) for stood in (None, None, blink, None)] == [1.0, 2.0, 4.0, 8.0]
    assert [pauses.after(stood) for stood in (hour, blink, timedelta(seconds=1.1))] == [0.5, 1.0, 0.5]
    assert [pauses.after(None) for _ in range(99)][-1] == 60.0


def test_one_that_is_refused_is_tried_again_seldom() -> None:
    pauses = ReconnectBackoff()
    assert [pauses.after_refusal() for _ in range(6)] == [300.0, 600.0, 1200.0, 2400.0, 3600.0, 3600.0]
    assert pauses.after(None) == 1.0


async def test_an_account_that_is_refused_says_what_to_do_and_is_tried_again_when_the_configuration_is_read(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    world, clock = FakePlatform(), MovableClock()
    tries = 0

    class Refused(Mouth):
        async def run(self, receiver: Receiver) -> None:  # noqa: ARG002
            nonlocal tries
            tries += 1
            raise PlatformRefused(f"make a new token, https://bot:{SECRET}@example.org does not take this one")

    up, refused = Mouth(world, clock), Refused(world, clock, account="other")
    async with running(store_url, world, adapters=[up, refused], clock=clock) as here:
        chat = world.dm(world.person("alice"))
        await up.say(chat, "hello")
        await chat.hears("You said: hello")
        await until(lambda: here.engine.health["fake:other"].last_error is not None)
        _, health = await here.store.read(here.store.accounts.list_health(clock.now()))
        assert (health.state, (health.last_error or "")[:16]) == ("refused", "make a new token")
        assert tries == 1
        here.engine.reload(here.engine.settings, Agents(EchoAgent()))
        await until(lambda: tries == 2)
    told = [record for record in caplog.records if getattr(record, "action", "") == "account.rejected"]
    assert "make a new token" in told[0].getMessage()
    assert SECRET not in (health.last_error or "") + caplog.text


async def test_a_lost_wake_up_is_made_good_by_looking_again(
    postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway can be killed after its commit and before it wakes the others."""

    async def lose(database: PostgresDatabase, connection: object) -> None: ...

    monkeypatch.setattr(PostgresDatabase, "_send_unsent", lose)
    url, world, slow = await fresh_store(postgres_server), FakePlatform(), Slow()
    alice = world.person("alice")
    chat = world.dm(alice)
    here = running(url, world, alone=False, lease=SHORT, poll=SHORT, concurrent_turns=0)
    there = running(url, worker="w2", alone=False, lease=SHORT, poll=SHORT, agent=slow, adapters=[])
    async with here as first, there as second:
        await chat.say(alice, "hello")
        await until(lambda: bool(slow.requests))
        await chat.say(alice, "/stop")
        await until(lambda: not slow.at_once)
        old, new = (Source(platform="fake", chat_id=name, user_id=name) for name in ("old", "new"))
        assert await second.engine.place_of(old) != await second.engine.place_of(new)
        await first.engine.receiver("fake", None).link_alias("old", "new")

        async def is_followed() -> bool:
            return await second.engine.place_of(old) == await second.engine.place_of(new)

        await until(is_followed)
