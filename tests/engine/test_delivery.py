"""Everything owed is sent, tried again with growing pauses, marked where it may be a duplicate, and settled."""

import asyncio
from collections.abc import Collection
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from palaver.engine import texts
from palaver.model.access import AccessRole, Grant
from palaver.model.turn import Outbound
from palaver.protocols.adapter import Limits
from palaver.protocols.hooks import EventKind
from palaver.store.queue import outbox
from palaver.store.records import chat_columns
from palaver.store.status.health import check_all
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.faults import Faults, SendFault
from palaver.testkit.platform import FakePlatform
from tests.engine.gateway import Bench, MovableClock, NoPauses, running, until
from tests.store.world import cause

OFTEN = timedelta(seconds=0.02)


async def states(here: Bench) -> list[tuple[str, str | None]]:
    return [(row[0], row[1]) for row in await here.rows("SELECT state, error FROM outbox ORDER BY created, id")]


async def owe(here: Bench, chat: str, text: str, name: str, clock: MovableClock) -> None:
    notice = Outbound(platform="fake", account="bot", chat_id=chat, text=text)
    await here.store.transact(here.store.outbox.enqueue(notice, cause(name), clock.now()))


async def test_an_answer_is_delivered_with_its_receipt(store_url: str) -> None:
    async with running(store_url) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        shown = await chat.hears("You said: hello")
        await here.settled()
        rows = await here.rows("SELECT state, receipt, attempts FROM outbox")
        assert [tuple(row) for row in rows] == [("delivered", shown.id, 1)]
        await until(lambda: EventKind.MESSAGE_DELIVERED in [happening.kind for happening in here.happened])


async def test_a_busy_platform_is_given_the_time_it_asks_for(tmp_path: Path) -> None:
    world = FakePlatform(faults=Faults(busy_for=0.3))
    async with running(tmp_path / "p.db", world) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        world.injector.script.append(SendFault.BUSY)
        began = asyncio.get_running_loop().time()
        await chat.say(alice, "hello")
        await chat.hears("You said: hello")
        assert asyncio.get_running_loop().time() - began >= 0.3
        assert [tuple(row) for row in await here.rows("SELECT attempts FROM outbox")] == [(2,)]


async def test_pauses_between_tries_grow(tmp_path: Path) -> None:
    world, clock = FakePlatform(), MovableClock()
    world.down = True
    pauses: list[float] = []
    async with running(tmp_path / "p.db", world, clock=clock, poll=OFTEN) as here:
        chat = world.dm(world.person("alice"))
        await owe(here, chat.id, "hello", "n", clock)
        for attempt in range(1, 7):
            await until(lambda attempt=attempt: _tried(here, attempt))
            ((due,),) = await here.rows("SELECT due FROM outbox")
            pauses.append(due / 1_000_000 - clock.now().timestamp())
            clock.later(seconds=pauses[-1])
    assert all(later > earlier for earlier, later in pairwise(pauses[1:]))
    assert pauses[-1] > 8


async def _tried(here: Bench, attempts: int) -> bool:
    """Whether it was tried so often, or more often where the test itself was slower."""
    ((tried, state),) = await here.rows("SELECT attempts, state FROM outbox")
    return tried >= attempts and state == "due"


async def test_what_is_refused_is_dead_and_holds_nothing_up(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        here.world.injector.script += [SendFault.REFUSED] * 2  # the second time without the reply
        await chat.say(alice, "first")
        await here.settled()
        await chat.say(alice, "second")
        await chat.hears("You said: second")
        await here.settled()
        assert await states(here) == [("dead", "The platform rejects the message."), ("delivered", None)]


async def test_a_reply_that_is_refused_is_sent_without_the_reference(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        here.world.injector.script.append(SendFault.REFUSED)
        await chat.say(alice, "first")
        await chat.say(alice, "second")
        await here.settled()
        assert [(each.text, each.reply_to) for each in chat.shown] == [
            ("You said: first", None),
            ("You said: second", chat.said[1].id),
        ]


async def test_a_refused_answer_is_told_to_the_owner_and_listed(tmp_path: Path) -> None:
    grants = (Grant(role=AccessRole.MEMBER), Grant(platform="fake", user_id="p1", role=AccessRole.OWNER))
    async with running(tmp_path / "p.db", grants=grants) as here:
        owner, alice = here.world.person("owner"), here.world.person("alice")
        mine, chat = here.world.dm(owner), here.world.dm(alice)
        await mine.say(owner, "/whoami")  # commands alone open no conversation
        await here.settled()
        for _ in range(2):
            here.world.injector.script += [SendFault.REFUSED] * 2  # the second time without the reply
            await chat.say(alice, "hello")
            await here.settled()
        told = [each.text for each in mine.shown if "did not take" in each.text]
        assert len(told) == 1, "once an hour"
        assert "The platform did not take my message out:1.0." in told[0]
        checks = {each.name: each async for each in check_all(here.store, MovableClock().now())}
        found = checks["refused sends"]
        assert found.is_warning
        assert found.found.startswith("2 messages were not delivered in the last week: out:")


async def test_a_notice_that_is_refused_makes_no_further_one(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", grants=(Grant(role=AccessRole.OWNER),)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        here.world.injector.script += [SendFault.REFUSED] * 100
        await chat.say(alice, "hello")
        await here.settled()
        assert await here.rows("SELECT count(*) FROM outbox") == [(2,)]
        assert chat.shown == []


async def test_patience_ends(tmp_path: Path) -> None:
    world, clock = FakePlatform(), MovableClock()
    world.down = True
    async with running(tmp_path / "p.db", world, clock=clock, poll=OFTEN) as here:
        chat = world.dm(world.person("alice"))
        await owe(here, chat.id, "hello", "n", clock)
        await until(lambda: _tried(here, 1))
        clock.later(hours=25)
        await here.settled()
        ((state, error),) = await states(here)
        assert state == "dead"
        assert (error or "").startswith("given up")


async def test_a_restart_does_not_end_a_pause_that_the_platform_asked_for(store_url: str) -> None:
    world, clock = FakePlatform(faults=Faults(busy_for=3600)), MovableClock()
    chat = world.dm(world.person("alice"))
    world.injector.script.append(SendFault.BUSY)
    async with running(store_url, world, clock=clock, poll=OFTEN) as here:
        await owe(here, chat.id, "hello", "n", clock)
        await until(lambda: _tried(here, 1))
    async with running(store_url, world, clock=clock, poll=OFTEN, worker="w2") as here:
        bob = world.person("bob")
        other = world.dm(bob)
        await other.say(bob, "hi")
        await other.hears("You said: hi")
        ((due,),) = await here.rows("SELECT due FROM outbox WHERE state = 'due'")
        assert due / 1_000_000 - clock.now().timestamp() >= 3600
        assert chat.shown == []
        clock.later(hours=2)
        await chat.hears("hello")


async def test_a_new_connection_ends_the_pauses_of_an_outage(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.engine.delivery.worker.DOWN_PAUSE_SECONDS", 600.0)
    world, clock = FakePlatform(), MovableClock()
    world.down = True
    async with running(store_url, world, clock=clock) as here:
        chat = world.dm(world.person("alice"))
        await owe(here, chat.id, "hello", "n", clock)
        await until(lambda: _tried(here, 1))
        world.down = False
        await chat.hears("hello")


async def test_patience_does_not_run_while_no_gateway_does(tmp_path: Path) -> None:
    """Also where the account is served a moment before it is connected."""
    world, clock = FakePlatform(), MovableClock()
    world.down = True
    chat = world.dm(world.person("alice"))
    async with running(tmp_path / "p.db", world, clock=clock, poll=OFTEN) as here:
        await owe(here, chat.id, "hello", "n", clock)
        await until(lambda: _tried(here, 1))
    clock.later(hours=25)
    async with running(tmp_path / "p.db", world, clock=clock, poll=OFTEN, worker="w2") as here:
        await until(lambda: _tried(here, 2))
        clock.later(minutes=10)
        world.down = False
        await chat.hears("hello")


async def test_someone_who_is_away_gets_it_when_they_are_back_however_late(tmp_path: Path) -> None:
    world, clock = FakePlatform(faults=Faults(busy_for=0.02)), MovableClock()
    async with running(tmp_path / "p.db", world, clock=clock, poll=OFTEN) as here:
        chat = world.dm(world.person("alice"))
        chat.away = True
        await owe(here, chat.id, "hello", "n", clock)
        await until(lambda: _tried(here, 1))
        clock.later(days=3)
        ((tried,),) = await here.rows("SELECT attempts FROM outbox")
        await until(lambda: _tried(here, tried + 2))  # the first of them can have begun before the clock moved
        chat.away = False
        await chat.hears("hello")


async def test_a_send_that_may_have_arrived_comes_once_more_with_a_mark(store_url: str) -> None:
    async with running(store_url, chance=NoPauses()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        here.world.injector.script.append(SendFault.LOST_AFTER)
        await chat.say(alice, "hello")
        await chat.hears(texts.MAY_BE_DUPLICATE)
        assert [message.text for message in chat.shown] == [
            "You said: hello",
            f"You said: hello\n{texts.MAY_BE_DUPLICATE}",
        ]


async def test_the_mark_has_room_also_on_the_longest_message(tmp_path: Path) -> None:
    world = FakePlatform(max_text=100)
    async with running(tmp_path / "p.db", world, limits=Limits(text=100), chance=NoPauses()) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        world.injector.script.append(SendFault.LOST_BEFORE)
        await chat.say(alice, "x" * 90)
        await here.settled()
        assert {state for state, _ in await states(here)} == {"delivered"}
        assert sum(texts.MAY_BE_DUPLICATE in message.text for message in chat.shown) == 1


async def test_unclear_twice_is_left_to_a_person(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", chance=NoPauses()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        here.world.injector.script.extend([SendFault.LOST_BEFORE, SendFault.LOST_BEFORE])
        await chat.say(alice, "hello")
        await here.settled()
        assert [state for state, _ in await states(here)] == ["unclear"]


async def test_where_the_platform_repeats_safely_there_is_no_mark_and_no_duplicate(tmp_path: Path) -> None:
    world = FakePlatform(repeats_safely=True)
    async with running(tmp_path / "p.db", world, limits=Limits(repeats_safely=True), chance=NoPauses()) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        world.injector.script.extend([SendFault.LOST_AFTER, SendFault.LOST_BEFORE, SendFault.LOST_AFTER])
        await chat.say(alice, "hello")
        await here.settled()
        assert [message.text for message in chat.shown] == ["You said: hello"]
        assert [state for state, _ in await states(here)] == ["delivered"]


async def test_what_stays_unclear_is_not_tried_without_pause(tmp_path: Path) -> None:
    world, clock = FakePlatform(repeats_safely=True, faults=Faults(lost_before=1.0)), MovableClock()
    async with running(tmp_path / "p.db", world, clock=clock, limits=Limits(repeats_safely=True)) as here:
        chat = world.dm(world.person("alice"))
        await owe(here, chat.id, "hello", "n", clock)
        await asyncio.sleep(0.3)
        ((attempts,),) = await here.rows("SELECT attempts FROM outbox")
        assert attempts == 1


async def test_a_send_that_takes_too_long_is_unclear(tmp_path: Path) -> None:
    world = FakePlatform()

    class Hanging(FakeAdapter):
        async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
            if texts.MAY_BE_DUPLICATE not in outbound.text:
                await asyncio.Event().wait()
            return await super().send(outbound, idempotency_key=idempotency_key)

    async with running(
        tmp_path / "p.db",
        world,
        adapters=[Hanging(world)],
        send_limit=timedelta(seconds=0.05),
        chance=NoPauses(),
    ):
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears(texts.MAY_BE_DUPLICATE)


async def test_an_account_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    world, clock, hung = FakePlatform(), MovableClock(), list[str]()

    class Hanging(FakeAdapter):
        async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
            hung.append(outbound.chat_id)
            await asyncio.Event().wait()
            return idempotency_key

    sick = Hanging(world, account="sick")
    async with running(
        tmp_path / "p.db", world, adapters=[sick, FakeAdapter(world)], concurrent_sends=2, clock=clock
    ) as here:
        chat = world.dm(world.person("alice"))
        for number in range(5):
            notice = Outbound(platform="fake", account="sick", chat_id=f"x{number}", text="hi")
            await here.store.transact(here.store.outbox.enqueue(notice, cause(f"sick {number}"), clock.now()))
        await until(lambda: len(hung) == 2)
        for number in range(5):
            await owe(here, chat.id, f"well {number}", f"well {number}", clock)
        await chat.hears("well 4")
        assert len(hung) == 2


async def test_an_account_that_is_nearly_full_makes_the_claims_of_others_no_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, clock, hung, claims = FakePlatform(), MovableClock(), list[str](), list[tuple[Collection[str], int]]()
    claim = outbox.claim

    def noted(
        worker: str, now: datetime, lease: timedelta, *, accounts: Collection[str], limit: int, **more: Any
    ) -> object:
        claims.append((accounts, limit))
        return claim(worker, now, lease, accounts=accounts, limit=limit, **more)

    class Hanging(FakeAdapter):
        async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
            hung.append(outbound.chat_id)
            await asyncio.Event().wait()
            return idempotency_key

    adapters = [Hanging(world, account="sick"), FakeAdapter(world)]
    async with running(tmp_path / "p.db", world, adapters=adapters, concurrent_sends=4, clock=clock) as here:
        for number in range(3):
            notice = Outbound(platform="fake", account="sick", chat_id=f"x{number}", text="hi")
            await here.store.transact(here.store.outbox.enqueue(notice, cause(f"sick {number}"), clock.now()))
        await until(lambda: len(hung) == 3)
        monkeypatch.setattr(outbox, "claim", noted)
        chat = world.dm(world.person("alice"))
        await owe(here, chat.id, "hello", "n", clock)
        await chat.hears("hello")
    assert max(limit for accounts, limit in claims if "fake:bot" in accounts) == 4


async def test_a_send_in_which_the_adapter_breaks_twice_is_left_to_a_person(tmp_path: Path) -> None:
    world, at_once = FakePlatform(), timedelta()

    class Broken(FakeAdapter):
        async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
            if "first" in outbound.text:
                raise ValueError(outbound.text)
            return await super().send(outbound, idempotency_key=idempotency_key)

    broken = [Broken(world)]
    async with running(
        tmp_path / "p.db", world, adapters=broken, acknowledges=False, chance=NoPauses(), repeat_after=at_once
    ) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "first")
        await chat.say(alice, "second")
        await chat.hears("second")
        assert (await states(here))[0] == ("unclear", "the adapter broke: ValueError")


async def test_within_a_chat_nothing_overtakes_what_is_tried_again(tmp_path: Path) -> None:
    world = FakePlatform(faults=Faults(busy_for=0.1))
    async with running(tmp_path / "p.db", world, acknowledges=False):
        alice, bob = world.person("alice"), world.person("bob")
        chat, other = world.dm(alice), world.dm(bob)
        world.injector.script.append(SendFault.BUSY)
        await chat.say(alice, "first")
        await until(lambda: not world.injector.script)
        await chat.say(alice, "second")
        await other.say(bob, "elsewhere")
        await other.hears("elsewhere")
        assert chat.shown == []
        await chat.hears("second")
        assert [message.text for message in chat.shown] == ["You said: first", "You said: second"]


async def test_a_chat_is_not_written_to_more_often_than_allowed(tmp_path: Path) -> None:
    world = FakePlatform(interval=0.1)
    async with running(tmp_path / "p.db", world, limits=Limits(interval=0.15), acknowledges=False) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        for number in range(4):
            await chat.say(alice, f"message {number}")
        await chat.hears("message 3")
        await here.settled()
        rows = await here.rows("SELECT DISTINCT attempts FROM outbox")
        assert [row[0] for row in rows] == [1]  # the platform never had to ask


async def test_a_chat_that_cannot_be_written_to_for_long_gets_no_mark(tmp_path: Path) -> None:
    world, clock = FakePlatform(), MovableClock()
    lease = timedelta(seconds=0.3)
    limit = timedelta(seconds=0.2)
    async with running(tmp_path / "p.db", world, clock=clock, lease=lease, send_limit=limit, poll=OFTEN) as here:
        chat = world.dm(world.person("alice"))
        hold = here.engine._live.budget.back_off  # pyright: ignore[reportPrivateUsage]
        hold(chat_columns(Outbound(platform="fake", account="bot", chat_id=chat.id, text="")), 0.8)
        await owe(here, chat.id, "hello", "n", clock)
        shown = await chat.hears("hello")
        assert shown.text == "hello"


async def test_a_retry_comes_in_time_though_other_things_are_sent_meanwhile(tmp_path: Path) -> None:
    world, clock = FakePlatform(faults=Faults(busy_for=0.2)), MovableClock()
    async with running(tmp_path / "p.db", world, clock=clock, poll=timedelta(hours=1)) as here:
        alice, bob = world.person("alice"), world.person("bob")
        chat, other = world.dm(alice), world.dm(bob)
        world.injector.script.append(SendFault.BUSY)
        await owe(here, chat.id, "hello", "n", clock)
        await until(lambda: _tried(here, 1))
        await owe(here, other.id, "elsewhere", "m", clock)
        await other.hears("elsewhere")
        await chat.hears("hello")
