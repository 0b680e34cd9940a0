"""Sends that may have arrived: repeated once, when it can help, and told to the owner if it did not."""

import asyncio
import errno
import os
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.db.high_water import Loss, Seen
from palaver.db.transaction import COMMITS_MISSING, Statements, transaction
from palaver.engine import texts
from palaver.engine.delivery.departures import Departures
from palaver.model.source import Source
from palaver.model.turn import Outbound
from palaver.protocols.adapter import Limits, PlatformDown, SendUnclear
from palaver.store.queue import outbox
from palaver.store.records import REPLIES
from palaver.store.results import Departure
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.chat import Chat
from palaver.testkit.faults import Faults, SendFault
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Slow
from tests.engine.gateway import Bench, MovableClock, NoPauses, running, until
from tests.store.world import cause

OFTEN = timedelta(seconds=0.02)


async def states(here: Bench) -> list[str]:
    return [row[0] for row in await here.rows("SELECT state FROM outbox ORDER BY created, id")]


async def owe(here: Bench, chat: Chat, text: str, clock: MovableClock) -> None:
    notice = Outbound(platform="fake", account="bot", chat_id=chat.id, text=text)
    await here.store.transact(here.store.outbox.enqueue(notice, cause(text), clock.now()))


async def set_home(here: Bench, chat: Chat, clock: MovableClock) -> None:
    home = Source(platform="fake", account="bot", chat_id=chat.id, user_id="owner")
    await here.store.transact(here.store.accounts.set_home("main", home, clock.now(), by="owner"))


class Checked(FakeAdapter):
    """It fails, and then hangs, when it is asked whether all is well; then it says so."""

    def __init__(self, world: FakePlatform) -> None:
        super().__init__(world)
        self.checks = 0

    async def check(self) -> str:
        self.checks += 1
        match self.checks:
            case 1 | 2:
                raise PlatformDown("still away")
            case 3:
                await asyncio.Event().wait()
            case _:
                pass
        return "bot"


async def test_the_repeat_is_not_spent_while_the_platform_is_away(store_url: str) -> None:
    world, limit = FakePlatform(), timedelta(seconds=0.2)
    adapter = Checked(world)
    async with running(store_url, world, adapters=[adapter], chance=NoPauses(), send_limit=limit) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        world.injector.script.append(SendFault.LOST_BEFORE)
        await chat.say(alice, "hello")
        await chat.hears(texts.MAY_BE_DUPLICATE)
        await here.settled()
        assert await states(here) == ["delivered"]
    assert adapter.checks == 4


async def test_the_repeat_comes_after_a_pause_as_long_as_an_outage(tmp_path: Path) -> None:
    world, clock = FakePlatform(), MovableClock()
    async with running(tmp_path / "p.db", world, clock=clock, poll=OFTEN) as here:
        chat = world.dm(world.person("alice"))
        world.injector.script.append(SendFault.LOST_BEFORE)
        await owe(here, chat, "hello", clock)
        await until(lambda: _waits(here))
        ((due, created),) = await here.rows("SELECT due, created FROM outbox")
        assert timedelta(microseconds=due - created) >= timedelta(seconds=30)
        clock.later(minutes=1)
        await chat.hears(texts.MAY_BE_DUPLICATE)


async def _waits(here: Bench) -> bool:
    return bool(await here.rows("SELECT 1 FROM outbox WHERE attempts = 1 AND state = 'due'"))


async def test_the_owner_gets_one_notice_of_what_stays_unclear(store_url: str) -> None:
    world, clock = FakePlatform(), MovableClock()
    async with running(store_url, world, clock=clock, chance=NoPauses()) as here:
        home = world.dm(world.person("owner"))
        await set_home(here, home, clock)
        for name in ("alice", "bob"):
            world.injector.script.extend([SendFault.LOST_BEFORE] * 2)
            chat = world.dm(world.person(name))
            await owe(here, chat, f"hello {name}", clock)
            await until(lambda: not world.injector.script)
            await here.settled()
        assert sorted(await states(here)) == ["delivered", "unclear", "unclear"]
        assert ["palaver trace out:0.1" in message.text for message in home.shown] == [True]


async def test_what_becomes_unclear_after_the_notice_is_told_with_the_next(tmp_path: Path) -> None:
    world, clock = FakePlatform(), MovableClock()
    async with running(tmp_path / "p.db", world, clock=clock, chance=NoPauses(), sweep_every=OFTEN) as here:
        home = world.dm(world.person("owner"))
        await set_home(here, home, clock)
        for name in ("alice", "bob"):
            world.injector.script.extend([SendFault.LOST_BEFORE] * 2)
            await owe(here, world.dm(world.person(name)), f"hello {name}", clock)
            await until(lambda: not world.injector.script)
            await here.settled()
            clock.later(minutes=1)
        assert len(home.shown) == 1
        clock.later(hours=1)
        await home.hears("I do not know whether my message", times=2)
        clock.later(hours=1)
        await asyncio.sleep(5 * OFTEN.total_seconds())
        assert len(home.shown) == 2, "each is told once"


async def test_the_owner_gets_a_notice_in_the_chat_itself_where_there_is_no_other(tmp_path: Path) -> None:
    world, clock = FakePlatform(), MovableClock()
    async with running(tmp_path / "p.db", world, clock=clock, chance=NoPauses()) as here:
        home = world.dm(world.person("owner"))
        await set_home(here, home, clock)
        world.injector.script.extend([SendFault.LOST_BEFORE] * 4)
        await owe(here, home, "hello", clock)
        await until(lambda: not world.injector.script)
        await here.settled()
        assert await states(here) == ["unclear", "unclear"], "a notice that is lost calls for no other"


async def test_what_may_have_arrived_is_unclear_also_when_its_repeat_is_given_up(tmp_path: Path) -> None:
    world, clock = FakePlatform(), MovableClock()
    async with running(tmp_path / "p.db", world, clock=clock, poll=OFTEN) as here:
        world.injector.script.append(SendFault.LOST_AFTER)
        await owe(here, world.dm(world.person("alice")), "hello", clock)
        await until(lambda: _waits(here))
        world.down = True
        clock.later(hours=25)
        await here.settled()
        assert await states(here) == ["unclear"]


@pytest.mark.parametrize("is_news", [False, True])
async def test_what_repeats_safely_is_never_marked_also_when_patience_ends(tmp_path: Path, is_news: bool) -> None:
    world, clock = FakePlatform(repeats_safely=True, faults=Faults(lost_before=1.0)), MovableClock()
    said: list[str] = []

    class Noting(FakeAdapter):
        async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
            said.append(outbound.text)
            return await super().send(outbound, idempotency_key=idempotency_key)

    adapter = Noting(world, limits=Limits(repeats_safely=True))
    async with running(tmp_path / "p.db", world, adapters=[adapter], clock=clock, poll=OFTEN) as here:
        chat = world.dm(world.person("alice"))
        news = Outbound(platform="fake", account="bot", chat_id=chat.id, text="{}", is_news=is_news)
        await here.store.transact(here.store.outbox.enqueue(news, cause("n"), clock.now()))
        await until(lambda: _waits(here))
        clock.later(hours=25)
        await here.settled()
        assert await states(here) == ["unclear"]
    assert said == ["{}", "{}"]


async def test_news_is_never_marked(tmp_path: Path) -> None:
    world, clock = FakePlatform(), MovableClock()
    async with running(tmp_path / "p.db", world, clock=clock, chance=NoPauses()) as here:
        chat = world.dm(world.person("alice"))
        world.injector.script.append(SendFault.LOST_BEFORE)
        news = Outbound(platform="fake", account="bot", chat_id=chat.id, text="{}", is_news=True)
        await here.store.transact(here.store.outbox.enqueue(news, cause("n"), clock.now()))
        await here.settled()
        assert [message.text for message in chat.shown] == ["{}"]


# A gateway that dies: `running` drops it as a crash would


class Hanging(FakeAdapter):
    """It never answers to a request to send, of those that are held."""

    def __init__(self, world: FakePlatform, *, holds: str = "", limits: Limits | None = None) -> None:
        super().__init__(world, limits=limits)
        self.sent: list[str] = []
        self._holds = holds

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        if self._holds not in outbound.text:
            return await super().send(outbound, idempotency_key=idempotency_key)
        self.sent.append(outbound.text)
        await asyncio.Event().wait()
        return ""


async def test_an_answer_that_waits_for_its_chat_is_due_and_is_not_marked_after_a_crash(store_url: str) -> None:
    world, pace = FakePlatform(), Limits(interval=1000.0)
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(store_url, world, limits=pace, acknowledges=False) as here:
        for word in ("one", "two"):
            await chat.say(alice, word)
        await chat.hears("You said: one")
        await until(lambda: _is_done(here, turns=2))
        await until(lambda: _has_states(here, "delivered", "due"))
    async with running(store_url, world, worker="w2") as here:
        assert (await chat.hears("You said: two")).text == "You said: two"
        await here.settled()


async def _has_states(here: Bench, *wanted: str) -> bool:
    return await states(here) == [*wanted]


async def _is_done(here: Bench, *, turns: int) -> bool:
    return (await here.rows("SELECT count(*) FROM turns WHERE state = 'done'"))[0][0] == turns


async def test_an_answer_that_crashes_make_unclear_is_repeated_three_times_and_then_told(tmp_path: Path) -> None:
    world, clock, sent = FakePlatform(), MovableClock(), list[str]()
    chat, home = world.dm(world.person("alice")), world.dm(world.person("owner"))
    for number in range(4):
        adapter = Hanging(world)
        async with running(tmp_path / "p.db", world, clock=clock, worker=f"w{number}", adapters=[adapter]) as here:
            if not number:
                await set_home(here, home, clock)
                await owe(here, chat, "hello", clock)
            await until(lambda adapter=adapter: bool(adapter.sent))
            sent += adapter.sent
    async with running(tmp_path / "p.db", world, clock=clock, worker="w9") as here:
        await home.hears("palaver trace out:0.1")
        assert (await states(here))[0] == "unclear"
    assert sent == ["hello", *[f"hello\n{texts.MAY_BE_DUPLICATE}"] * 3]
    assert chat.shown == []


async def test_what_is_said_while_an_answer_is_written_is_not_repeated(tmp_path: Path) -> None:
    world, agent = FakePlatform(), Slow()
    alice = world.person("alice")
    chat, adapter = world.dm(alice), Hanging(world, holds="Still answering")
    async with running(tmp_path / "p.db", world, agent=agent, adapters=[adapter]) as here:
        await chat.say(alice, "one")
        await until(lambda: _is_running(here))
        await chat.say(alice, "two")
        await until(lambda: bool(adapter.sent))
    agent.go.set()
    async with running(tmp_path / "p.db", world, agent=agent, worker="w2") as here:
        await chat.hears("answer to: two")
        await here.settled()
        assert not any("Still answering" in message.text for message in chat.shown)
    assert len(adapter.sent) == 1


async def _is_running(here: Bench) -> bool:
    return bool(await here.rows("SELECT 1 FROM turns WHERE state = 'running'"))


class Known(Departures):
    """It knows what was kept back."""

    def __init__(self, *departures: Departure) -> None:
        super().__init__()
        self._departures = frozenset(departures)

    def kept_back(self) -> frozenset[Departure]:
        return self._departures


@pytest.mark.parametrize(
    ("known", "mark"),
    [
        (Departure("draft", 1, 1, "w1"), ""),
        (Departure("draft", 1, 2, "w1"), f"\n{texts.MAY_BE_DUPLICATE}"),
        (Departure("draft", 1, 1, "w0"), f"\n{texts.MAY_BE_DUPLICATE}"),
        (Departure("send", 1, 1, "w1"), f"\n{texts.MAY_BE_DUPLICATE}"),
    ],
)
async def test_an_answer_is_marked_after_a_draft_of_which_nobody_knows_whether_it_was_shown(
    tmp_path: Path, known: Departure, mark: str
) -> None:
    world, agent = FakePlatform(), Slow(first_word="well")
    alice = world.person("alice")
    chat, quick = world.dm(alice), Limits(draft_interval=0.0)
    adapter = Hanging(world, limits=quick)
    async with running(tmp_path / "p.db", world, agent=agent, adapters=[adapter]):
        await chat.say(alice, "hello")
        await until(lambda: bool(adapter.sent))
    agent.go.set()
    async with running(
        tmp_path / "p.db", world, agent=agent, limits=quick, worker="w2", departures=Known(known)
    ) as here:
        await chat.hears("answer to: hello")
        await here.settled()
    assert [message.text for message in chat.shown] == [f"answer to: hello{mark}"]


@pytest.mark.parametrize("alone", [True, False])
async def test_an_answer_is_stored_while_its_draft_is_on_its_way_and_replaces_it(tmp_path: Path, alone: bool) -> None:
    world, agent, go = FakePlatform(), Slow(first_word="well"), asyncio.Event()

    class Late(FakeAdapter):
        async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
            await go.wait()
            return await super().send(outbound, idempotency_key=idempotency_key)

    alice = world.person("alice")
    chat = world.dm(alice)
    adapters = [Late(world, limits=Limits(draft_interval=0.0))]
    async with running(tmp_path / "p.db", world, agent=agent, adapters=adapters, alone=alone) as here:
        await chat.say(alice, "hello")
        await until(lambda: _is_draft_on_its_way(here))
        agent.go.set()
        await until(lambda: _is_done(here, turns=1))
        assert await states(here) == ["due"]
        # Another gateway does not send it meanwhile.
        ((waits,),) = await here.rows("SELECT due > created FROM outbox")
        assert bool(waits) is not alone
        go.set()
        await here.settled()
    assert [(message.text, message.earlier) for message in chat.shown] == [("answer to: hello", ("well",))]


async def _is_draft_on_its_way(here: Bench) -> bool:
    return bool(await here.rows("SELECT 1 FROM turns WHERE draft_unclear = 1"))


class Connecting(FakeAdapter):
    """Connects for each send, which takes until it may go on, and fails as often as it is told to."""

    def __init__(self, world: FakePlatform) -> None:
        super().__init__(world, limits=Limits(announces_requests=True, draft_interval=0.0))
        self.begun, self.go, self.failures = asyncio.Event(), asyncio.Event(), list[Exception]()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        self.begun.set()
        await self.go.wait()
        if self.failures:
            raise self.failures.pop()
        return await super().send(outbound, idempotency_key=idempotency_key)


HEADER = 512
"""The bytes of a file of departures before its slots."""


def _written(folder: Path) -> list[bytes]:
    """What gateways wrote about requests, but for what has ended."""
    slots = (path.read_bytes()[HEADER:] for path in folder.iterdir())
    found = (each[at : at + 64].rstrip() for each in slots for at in range(0, len(each), 64))
    return sorted(each for each in found if not each.startswith(b"."))


@pytest.mark.parametrize("announces", [True, False])
async def test_a_request_is_written_down_as_left_right_before_it_leaves(tmp_path: Path, announces: bool) -> None:
    world, folder, seen = FakePlatform(), tmp_path / "departures", list[list[bytes]]()

    class Watched(FakeAdapter):
        async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
            seen.append(_written(folder))
            receipt = await super().send(outbound, idempotency_key=idempotency_key)
            seen.append(_written(folder))
            return receipt

        async def edit(self, receipt: str, outbound: Outbound) -> None:
            seen.append(_written(folder))
            await super().edit(receipt, outbound)
            seen.append(_written(folder))

    adapters = [Watched(world, limits=Limits(announces_requests=announces, draft_interval=0.0))]
    alice = world.person("alice")
    chat, agent = world.dm(alice), Slow(first_word="well")
    async with running(tmp_path / "p.db", world, agent=agent, adapters=adapters, departures=Departures(folder)) as here:
        await chat.say(alice, "hello")
        await chat.hears("well")
        agent.go.set()
        await here.settled()
        await until(lambda: not _written(folder))
    drafted, answered = b"draft 1 1", f"send {REPLIES} 1".encode()
    assert seen[1::2] == [[b"+" + drafted], [b"+" + answered]]
    assert seen[::2] == ([[], []] if announces else seen[1::2])
    assert list(folder.iterdir()) == []


def test_only_what_a_gateway_that_is_gone_kept_back_is_known(tmp_path: Path) -> None:
    one, other = Departures(tmp_path), Departures(tmp_path)
    with other.opened("w2"), one.opened("w1"):
        slots = [one.keep_back("send", number, 1) for number in (1, 2, 3, 2)]
        slots.append(one.keep_back("draft", 4, 2))
        one.leave(slots[1])
        one.end(slots[2])
        ((path, content),) = ((each, each.read_bytes()) for each in tmp_path.iterdir() if b"send" in each.read_bytes())
        assert other.kept_back() == frozenset()  # it still runs
        path.with_name("gone").write_bytes(b"")
        assert other.kept_back() == frozenset()  # it has only just made its file
        path.with_name("gone").write_bytes(content)
        path.with_name("from before the machine was started").write_bytes(bytes(36) + content[36:])
        path.with_name("cut").write_bytes(content[:10])
        path.with_name("damaged").write_bytes(content[:HEADER] + bytes(128))
        found = {Departure("send", 1, 1, "w1"), Departure("draft", 4, 2, "w1")}
        assert other.kept_back() == found
        hour_ago = time.time() - 3601
        os.utime(path.with_name("gone"), (hour_ago, hour_ago))
        late = Departures(tmp_path)
        with late.opened("w3"):
            assert late.kept_back() == found  # however late the next one starts
    assert path.exists(), "nobody knows the outcome of some"


def test_where_nothing_can_be_written_no_more_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    departures = Departures(tmp_path)

    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    with departures.opened("w1"):
        left, waits, ended = (departures.keep_back("send", number, 1) for number in (1, 2, 3))
        monkeypatch.setattr(os, "pwrite", fail)
        assert departures.keep_back("send", 4, 1) == 0  # it can be sent: nothing says that it was kept back
        departures.end(ended)
        with monkeypatch.context() as locked:
            locked.setattr(Path, "unlink", fail)
            with pytest.raises(OSError, match="Read-only"):
                departures.leave(waits)  # else the file would say something wrong
        departures.leave(left)
        assert list(tmp_path.iterdir()) == []
    with departures.opened("w1"):
        assert departures.keep_back("send", 5, 1) == 0


async def test_a_crash_while_a_send_connects_leaves_no_doubt(tmp_path: Path) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    chat, adapter = world.dm(alice), Connecting(world)
    async with running(tmp_path / "p.db", world, adapters=[adapter]) as here:
        await chat.say(alice, "hello")
        await adapter.begun.wait()
        assert await states(here) == ["claimed"]
    async with running(tmp_path / "p.db", world, worker="w2") as here:
        await here.settled()
    assert [message.text for message in chat.shown] == ["You said: hello"]


async def test_a_crash_while_a_draft_connects_leaves_no_doubt(tmp_path: Path) -> None:
    world, agent = FakePlatform(), Slow(first_word="well")
    alice = world.person("alice")
    chat, adapter = world.dm(alice), Connecting(world)
    async with running(tmp_path / "p.db", world, agent=agent, adapters=[adapter]) as here:
        await chat.say(alice, "hello")
        await adapter.begun.wait()
        assert not await _is_draft_on_its_way(here)
    agent.go.set()
    async with running(tmp_path / "p.db", world, agent=agent, worker="w2") as here:
        await here.settled()
    assert [message.text for message in chat.shown] == ["answer to: hello"]


async def test_a_connection_lost_before_a_request_left_leaves_no_doubt(tmp_path: Path) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    chat, adapter = world.dm(alice), Connecting(world)
    adapter.failures += [SendUnclear("lost"), TimeoutError()]
    adapter.go.set()
    async with running(tmp_path / "p.db", world, adapters=[adapter], chance=NoPauses()) as here:
        await chat.say(alice, "hello")
        await here.settled()
        assert await here.rows("SELECT state, attempts, times_unclear FROM outbox") == [("delivered", 3, 0)]
    assert [message.text for message in chat.shown] == ["You said: hello"]


@transaction
def take_over() -> Statements[None]:
    yield "UPDATE outbox SET worker = 'w2'", ()


async def test_a_send_that_was_taken_over_while_it_connected_does_not_leave(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    chat, adapter = world.dm(alice), Connecting(world)
    async with running(tmp_path / "p.db", world, adapters=[adapter], alone=False) as here:
        await chat.say(alice, "hello")
        await adapter.begun.wait()
        await here.store.transact(take_over())
        adapter.go.set()
        await until(lambda: any(getattr(said, "action", "") == "send.lease_lost" for said in caplog.records))
    assert not chat.shown


@transaction
def _enqueue_lost(lost: Outbound, now: datetime) -> Statements[None]:
    """Leave a send as a worker does that was killed before it sent."""
    yield from outbox.enqueue(lost, cause(lost.text), now)
    yield "UPDATE outbox SET state = 'claimed', worker = 'w0', claim_until = 0 WHERE state = 'due'", ()


async def test_a_send_that_takes_longer_than_its_lease_is_not_taken_from_a_worker_that_lives(tmp_path: Path) -> None:
    """Else what it sends would arrive a second time, or be marked although nothing had left."""
    world, clock, begun, go = FakePlatform(), MovableClock(), asyncio.Event(), asyncio.Event()

    class Stuck(FakeAdapter):
        async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
            if outbound.text == "slow":
                begun.set()
                await go.wait()
            return await super().send(outbound, idempotency_key=idempotency_key)

    lease = timedelta(seconds=0.3)
    async with running(tmp_path / "p.db", world, adapters=[Stuck(world)], clock=clock, lease=lease) as here:
        chat, other = world.dm(world.person("alice")), world.dm(world.person("bob"))
        await owe(here, chat, "slow", clock)
        await begun.wait()
        clock.later(hours=1)
        lost = Outbound(platform="fake", account="bot", chat_id=other.id, text="lost")
        await here.store.transact(_enqueue_lost(lost, clock.now()))
        await other.hears("lost")  # so leases were looked at
        go.set()
        await here.settled()
        assert await here.rows("SELECT state, attempts, times_unclear FROM outbox") == [("delivered", 1, 0)] * 2
    assert [message.text for message in chat.shown] == ["slow"]


async def test_after_missing_commits_the_turn_begins_again_and_the_owner_learns_of_it(tmp_path: Path) -> None:
    world, clock, agent = FakePlatform(), MovableClock(), Slow()
    async with running(tmp_path / "p.db", world, agent=agent, clock=clock, chance=NoPauses()) as here:
        home, alice = world.dm(world.person("owner")), world.person("alice")
        await set_home(here, home, clock)
        chat = world.dm(alice)
        await chat.say(alice, "hello")
        await until(lambda: len(agent.requests) == 1)
        lost = Seen("in", 9, "telegram chat 7", clock.now())
        database: Any = here.store.database
        database.take_loss = iter([Loss("abcdef", clock.now(), (lost,)), *[None] * 9]).__next__
        database.wake(COMMITS_MISSING)
        await home.hears("in:9")
        await until(lambda: len(agent.requests) == 2)
        agent.go.set()
        await here.settled()
        assert len(chat.shown) == 1
    assert agent.most_at_once == 1
