"""The fake platform keeps what it should keep, and breaks what it is told to break."""

import asyncio
import selectors
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime

import pytest

from palaver.model.turn import Outbound
from palaver.protocols.adapter import (
    PlatformBusy,
    PlatformDown,
    PlatformError,
    SendRefused,
    SendUnclear,
    TargetAway,
    TargetGone,
)
from palaver.protocols.capabilities import Editing, Typing
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.chat import Chat
from palaver.testkit.faults import Faults, SendFault
from palaver.testkit.platform import FakePlatform, LoopClock
from palaver.testkit.recorder import Recorder, running


def to(chat: Chat, text: str = "hello", thread: str | None = None) -> Outbound:
    return Outbound(platform="fake", chat_id=chat.id, text=text, thread_id=thread)


def dm(world: FakePlatform) -> Chat:
    return world.dm(world.person("alice"))


async def say(chat: Chat, count: int) -> list[str]:
    texts = [f"number {number}" for number in range(count)]
    for text in texts:
        await chat.say(chat.people[0], text)
    return texts


async def handed_over(world: FakePlatform, count: int, *, at_least: int = 0) -> Recorder:
    """What an adapter has handed over once that many messages are safe."""
    recorder = Recorder()
    async with running(FakeAdapter(world), recorder):
        await recorder.has(count)
        while len(recorder.received) < at_least:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return recorder


# Speaking and listening


async def test_a_conversation() -> None:
    world = FakePlatform()
    alice, bob = world.person("alice"), world.person("bob")
    group = world.group("Dev", alice, bob)
    question = await group.say(alice, "hi", thread="7")
    await FakeAdapter(world).send(to(group, "hello", "7"), idempotency_key="k")
    heard = await group.hears("hello")
    assert (heard.thread, heard.key, heard.author) == ("7", "k", "bot")
    assert (group.said, group.shown, group.messages) == ([question], [heard], [question, heard])
    with pytest.raises(ValueError, match=r"carol is not in the chat Dev. Its members: alice, bob"):
        await group.say(world.person("carol"), "hi")


async def test_hears_waits_and_then_says_what_was_shown_instead() -> None:
    world = FakePlatform()
    chat = dm(world)
    waiting = asyncio.create_task(chat.hears("o", times=2))
    for text in ("one", "two"):
        await world.send("bot", to(chat, text), text)
    assert (await waiting).text == "two"
    with pytest.raises(AssertionError, match=r"'three' was not shown within 0\.01 s. Shown: 'one', 'two'"):
        await chat.hears("three", within=0.01)


async def test_message_ids_are_unique_in_their_chat_only() -> None:
    world = FakePlatform()
    assert [(await chat.say(chat.people[0], "hi")).id for chat in (dm(world), dm(world))] == ["1", "1"]


async def test_accounts_see_only_their_chats() -> None:
    world = FakePlatform()
    chat = world.channel("News", accounts=("one", "two"))
    await chat.say(world.person("alice"), "hi")
    assert [len(world.unacknowledged(account)) for account in ("one", "two", "bot")] == [1, 1, 0]
    with pytest.raises(TargetGone):
        await FakeAdapter(world, "bot").send(to(chat), idempotency_key="k")
    assert await FakeAdapter(world, "two").send(to(chat), idempotency_key="k")


async def test_a_bot_of_somebody_else_is_marked() -> None:
    world = FakePlatform()
    chat = world.group("Dev")
    await chat.say(world.person("robot", is_bot=True), "beep")
    assert (await handed_over(world, 1)).trusts[0].is_bot


async def test_edits_by_people_are_kept_and_acknowledged() -> None:
    world = FakePlatform()
    chat = dm(world)
    message = await chat.say(chat.people[0], "helo")
    edited = await chat.edit(chat.people[0], message, "hello")
    assert (edited.id, edited.text, edited.earlier) == (message.id, "hello", ("helo",))
    recorder = Recorder()
    async with running(FakeAdapter(world), recorder):
        await recorder.has_changes(1)
    assert recorder.texts == ["helo"]
    assert [(change.text, change.source.message_id) for change in recorder.changes] == [("hello", message.id)]


async def test_drafts_are_remembered_and_typing_is_seen() -> None:
    world = FakePlatform()
    adapter, chat = FakeAdapter(world), dm(world)
    assert isinstance(adapter, Typing)
    assert isinstance(adapter, Editing)
    await adapter.typing(to(chat, "", "7"))
    receipt = await adapter.send(to(chat, "a"), idempotency_key="k")
    await adapter.edit(receipt, to(chat, "a b"))
    assert chat.shown[0].earlier == ("a",)
    assert chat.typing == [("bot", "7")]


# Updates


async def test_updates_stay_until_they_are_acknowledged() -> None:
    world = FakePlatform()
    chat = dm(world)
    texts = await say(chat, 3)
    line = await world.open("bot")
    first = await line.next()
    assert (await line.next()).message.text == texts[1]
    await line.acknowledge(first.number)
    await line.close()
    assert [message.text for message in world.unacknowledged()] == texts[1:]
    assert (await handed_over(world, 2)).texts == texts[1:]
    assert world.unacknowledged() == []


async def test_duplicates_come_once_more_and_no_oftener() -> None:
    world = FakePlatform(faults=Faults(duplicate=1))
    texts = await say(dm(world), 5)
    received = [inbound.text for inbound in (await handed_over(world, 5, at_least=10)).received]
    assert sorted(received) == sorted([*texts, *texts])
    assert world.unacknowledged() == []


async def test_a_duplicate_comes_after_a_reconnect() -> None:
    world = FakePlatform(faults=Faults(duplicate=1))
    await say(dm(world), 1)
    line = await world.open("bot")
    update = await line.next()
    await line.acknowledge(update.number)
    await line.close()
    assert await (await world.open("bot")).next() == update


async def test_reordering_changes_the_order_and_nothing_else() -> None:
    world = FakePlatform(faults=Faults(reorder=1))
    texts = await say(dm(world), 20)
    received = (await handed_over(world, 20)).texts
    assert received != texts
    assert sorted(received) == sorted(texts)


async def test_delays_lose_nothing() -> None:
    world = FakePlatform(faults=Faults(delay=0.02))
    texts = await say(dm(world), 10)
    assert sorted((await handed_over(world, 10)).texts) == sorted(texts)


async def test_what_is_delayed_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    world = FakePlatform()
    monkeypatch.setattr(world.injector, "delay", lambda: 0.01)
    await say(dm(world), 1)
    assert world.unacknowledged() == []
    await handed_over(world, 1)


async def test_disconnects_in_the_middle_lose_nothing() -> None:
    world = FakePlatform(faults=Faults(disconnect=0.3), seed=4)
    texts = await say(dm(world), 20)
    recorder = await handed_over(world, 20)
    assert recorder.texts == texts
    assert len(recorder.received) > 20, "some acknowledgement was lost"


# Sends

CERTAIN: list[tuple[Faults, type[PlatformError], int]] = [
    (Faults(refused=1), SendRefused, 0),
    (Faults(gone=1), TargetGone, 0),
    (Faults(busy=1, busy_for=7), PlatformBusy, 0),
    (Faults(lost_before=1), SendUnclear, 0),
    (Faults(lost_after=1), SendUnclear, 1),
]


@pytest.mark.parametrize(("faults", "error", "shown"), CERTAIN)
async def test_faults_of_sends(faults: Faults, error: type[PlatformError], shown: int) -> None:
    world = FakePlatform(faults=faults)
    chat = dm(world)
    with pytest.raises(error) as raised:
        await world.send("bot", to(chat), "k")
    assert type(raised.value) is error
    assert len(chat.shown) == shown
    if isinstance(raised.value, PlatformBusy):
        assert raised.value.after == 7


async def test_the_same_seed_gives_the_same_faults() -> None:
    async def outcomes(seed: int) -> list[str]:
        world = FakePlatform(faults=Faults(refused=0.2, busy=0.2, lost_before=0.2, lost_after=0.2), seed=seed)
        chat = dm(world)
        sends = [world.send("bot", to(chat), str(number)) for number in range(30)]
        return [type(outcome).__name__ for outcome in await asyncio.gather(*sends, return_exceptions=True)]

    assert await outcomes(1) == await outcomes(1)
    assert await outcomes(1) != await outcomes(2)
    assert {"str", "SendRefused", "PlatformBusy", "SendUnclear"} == set(await outcomes(1))


async def test_mishaps_can_be_ordered() -> None:
    world = FakePlatform()
    chat = dm(world)
    world.injector.script.extend([SendFault.BUSY, SendFault.GONE])
    for error in (PlatformBusy, TargetGone):
        with pytest.raises(error):
            await world.send("bot", to(chat), "k")
    assert await world.send("bot", to(chat), "k")


@pytest.mark.parametrize(("delays", "shown"), [([0.02], 0), ([0.0, 0.02], 1)])
async def test_a_cut_during_a_send_leaves_it_unclear(
    delays: list[float], shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = FakePlatform()
    chat = dm(world)
    monkeypatch.setattr(world.injector, "delay", lambda: delays.pop(0))
    sending = asyncio.create_task(world.send("bot", to(chat), "k"))
    await asyncio.sleep(0.01)
    world.cut()
    with pytest.raises(SendUnclear):
        await sending
    assert len(chat.shown) == shown


@pytest.mark.parametrize("repeats_safely", [True, False])
async def test_a_repeated_key(repeats_safely: bool) -> None:
    world = FakePlatform(repeats_safely=repeats_safely)
    chat = dm(world)
    world.injector.script.append(SendFault.LOST_AFTER)
    with pytest.raises(SendUnclear):
        await world.send("bot", to(chat), "k")
    again = await world.send("bot", to(chat), "k")
    assert [message.id for message in chat.shown] == (["1"] if repeats_safely else ["1", "2"])
    assert again == chat.shown[-1].id


async def test_the_pace_of_a_chat() -> None:
    world = FakePlatform(interval=0.05)
    chat, other = dm(world), dm(world)
    receipt = await world.send("bot", to(chat), "1")
    with pytest.raises(PlatformBusy) as busy:
        await world.edit("bot", receipt, to(chat, "more"))
    assert 0 < busy.value.after <= 0.05
    assert await world.send("bot", to(other), "2")
    await asyncio.sleep(busy.value.after)
    assert await world.send("bot", to(chat), "3")


async def test_texts_too_long_or_blank_are_refused() -> None:
    world = FakePlatform(max_text=5)
    chat = dm(world)
    assert await world.send("bot", to(chat, "ä" * 5), "k")
    for text in ("ä" * 6, "", " \n"):
        with pytest.raises(SendRefused, match="1 to 5 code points"):
            await world.send("bot", to(chat, text), "k")


def close(_: FakePlatform, chat: Chat) -> None:
    chat.gone = True


def leave(_: FakePlatform, chat: Chat) -> None:
    chat.away = True


def shut(world: FakePlatform, _: Chat) -> None:
    world.down = True


@pytest.mark.parametrize(("happen", "error"), [(close, TargetGone), (leave, TargetAway), (shut, PlatformDown)])
async def test_chats_and_worlds_that_are_not_there(
    happen: Callable[[FakePlatform, Chat], None], error: type[PlatformError]
) -> None:
    world = FakePlatform()
    chat = dm(world)
    receipt = await world.send("bot", to(chat), "k")
    happen(world, chat)
    with pytest.raises(error):
        await world.send("bot", to(chat), "k")
    with pytest.raises(error):
        await world.edit("bot", receipt, to(chat))
    with pytest.raises(error):
        await world.typing("bot", to(chat))


async def test_nobody_connects_to_a_world_that_is_down() -> None:
    world = FakePlatform()
    world.down = True
    with pytest.raises(PlatformDown):
        await FakeAdapter(world).run(Recorder())


async def test_only_own_messages_can_be_edited() -> None:
    world = FakePlatform()
    chat = dm(world)
    message = await chat.say(chat.people[0], "mine")
    with pytest.raises(SendRefused):
        await world.edit("bot", message.id, to(chat, "yours"))


# Time


class Jumping(selectors.SelectSelector):
    """Nobody waits: where nothing happens, it is later at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            self.now += timeout or 0.0
        return ready


def test_time_is_the_time_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    selector = Jumping()
    loop = asyncio.SelectorEventLoop(selector)
    monkeypatch.setattr(loop, "time", lambda: selector.now)

    async def wait_for_hours() -> float:
        world = FakePlatform(faults=Faults(delay=7200))
        chat = dm(world)
        started = await chat.say(chat.people[0], "hi")
        await asyncio.wait_for((await world.open("bot")).next(), 7200)
        await world.send("bot", to(chat), "1")
        return (chat.shown[0].at - started.at).total_seconds()

    with closing(loop):
        assert 0 < loop.run_until_complete(wait_for_hours()) < 4 * 7200


async def test_it_begins_at_midnight_however_long_the_machine_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, uptime = asyncio.get_running_loop(), 100 * 86400.0
    monkeypatch.setattr(loop, "time", lambda: uptime)
    monkeypatch.setattr("palaver.testkit.platform._PROCESS_START", uptime)
    assert LoopClock().now() == datetime(2026, 1, 1, tzinfo=UTC)
    uptime += 7200
    assert LoopClock().now().hour == 2
