"""An answer grows in the chat and ends as exactly one message with exactly the answer."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from palaver.agents.echo import EchoAgent
from palaver.engine.delivery.replies import LONGEST_ANSWER
from palaver.engine.texts import CUT, MAY_BE_DUPLICATE, SORRY
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import Outbound
from palaver.protocols.adapter import Limits, SendUnclear
from palaver.protocols.agent import Event, Final, Request, TextDelta, ToolCalled, ToolReturned
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.faults import Faults, SendFault
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Scripted, Slow, heard
from tests.engine.gateway import NoPauses, running, until

QUICK = Limits(draft_interval=0.0)
STREAM = EchoAgent(streams=True, delay=0.01)


async def test_an_answer_grows_and_ends_as_one_message_with_exactly_its_text(store_url: str) -> None:
    async with running(store_url, agent=STREAM, limits=QUICK) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one two three four five")
        await here.settled()
        (shown,) = chat.shown
        assert shown.text == "You said: one two three four five"
        assert len(shown.earlier) >= 2
        assert all(shown.text.startswith(earlier) for earlier in shown.earlier)
        assert shown.reply_to == chat.said[0].id


async def test_a_character_that_comes_in_two_halves_is_whole_in_the_chat_and_in_the_store(tmp_path: Path) -> None:
    async def halves(_: Request) -> AsyncGenerator[Event]:
        pieces = ("four \ud83d", "\ude00", " five \ude00\ud83d", " six")
        for piece in pieces:
            yield TextDelta(piece)
            await asyncio.sleep(0.05)
        yield ToolCalled(calls=(ToolCall(id="c", name="look"),), text=pieces[0] + pieces[1], reasoning="".join(pieces))
        yield ToolReturned(call="c", text="".join(pieces))
        yield Final(text="".join(pieces))

    async with running(tmp_path / "p.db", agent=Scripted(halves), limits=QUICK) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "how many?")
        await here.settled()
        whole = "four \N{GRINNING FACE} five \ufffd\ufffd six"
        assert [shown.text for shown in chat.shown] == [whole]
        assert all(whole.startswith(earlier) for earlier in chat.shown[0].earlier)
        assert [entry.text for entry in await here.entries()][-3:] == ["four \N{GRINNING FACE}", whole, whole]


async def test_an_answer_that_the_model_could_not_finish_says_so(tmp_path: Path) -> None:
    async def cut(request: Request) -> AsyncGenerator[Event]:
        for word in ("It ", "begins"):
            yield TextDelta(word)
            await asyncio.sleep(0.05)
        yield Final(text="It begins", cut=heard(request) == "tell me")

    agent = Scripted(cut)
    async with running(tmp_path / "p.db", agent=agent, limits=QUICK) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "tell me")
        await here.settled()
        assert [shown.text for shown in chat.shown] == [f"It begins\n\n{CUT}"]
        await chat.say(alice, "go on")
        await here.settled()
        assert [shown.text for shown in chat.shown[1:]] == ["It begins"]
        # The mark is for people: the model sees its own words.
        assert [message.text for message in agent.requests[1].messages if message.role is Role.ASSISTANT] == [
            "It begins"
        ]
        assert [entry.cut for entry in await here.entries() if entry.role is Role.ASSISTANT] == [True, False]


async def test_drafts_are_shown_at_a_bounded_rate(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", agent=STREAM, limits=Limits(draft_interval=10.0)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one two three four five")
        await here.settled()
        (shown,) = chat.shown
        assert shown.text == "You said: one two three four five"
        assert len(shown.earlier) == 1


async def test_two_answers_grow_in_messages_of_their_own(tmp_path: Path) -> None:
    world = FakePlatform(repeats_safely=True)
    limits = replace(QUICK, repeats_safely=True)
    async with running(tmp_path / "p.db", world, agent=STREAM, limits=limits) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        for number in range(4):
            await chat.say(alice, f"message number {number}")
            await chat.hears(f"number {number}")
            await here.settled()
        assert [message.text for message in chat.shown] == [f"You said: message number {n}" for n in range(4)]


async def test_a_draft_that_was_deleted_is_followed_by_the_answer(tmp_path: Path) -> None:
    agent = Slow("growing")
    async with running(tmp_path / "p.db", agent=agent, limits=QUICK) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        draft = await chat.hears("growing")
        chat.messages.remove(draft)
        agent.go.set()
        await here.settled()
        assert [message.text for message in chat.shown] == ["answer to: hello"]


async def test_an_answer_in_the_place_of_a_deleted_draft_is_marked_when_it_may_be_a_duplicate(tmp_path: Path) -> None:
    agent = Slow("growing")
    async with running(tmp_path / "p.db", agent=agent, limits=QUICK, chance=NoPauses()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        draft = await chat.hears("growing")
        chat.messages.remove(draft)
        await asyncio.sleep(0.05)
        agent.go.set()
        await until(lambda: not agent.at_once)
        here.world.injector.script.extend([SendFault.LOST_AFTER, SendFault.LOST_AFTER])
        await here.settled()
        texts = [message.text for message in chat.shown]
        assert len(texts) == 1 or all(MAY_BE_DUPLICATE in text for text in texts[1:])


async def test_a_long_answer_takes_the_place_of_its_draft_and_goes_on_in_the_same_thread(tmp_path: Path) -> None:
    world = FakePlatform(max_text=100)
    limits = Limits(text=100, draft_interval=0.0)
    async with running(tmp_path / "p.db", world, agent=STREAM, limits=limits, burst_window=timedelta(0)) as here:
        alice = world.person("alice")
        group = world.group("friends", alice)
        said = " ".join(f"word{number}" for number in range(30))
        await group.say(alice, said, thread="5")
        await here.settled()
        assert len(group.shown) >= 3
        assert " ".join(message.text for message in group.shown).split() == f"You said: {said}".split()
        assert {message.thread for message in group.shown} == {"5"}
        assert group.shown[0].earlier


async def test_where_the_platform_cannot_edit_the_answer_comes_whole(tmp_path: Path) -> None:
    world = FakePlatform()

    class Plain:
        """The fake platform without edits."""

        def __init__(self) -> None:
            self._adapter = FakeAdapter(world)
            self.platform, self.account, self.limits = self._adapter.platform, self._adapter.account, QUICK
            self.run, self.send = self._adapter.run, self._adapter.send

    async with running(tmp_path / "p.db", world, agent=STREAM, adapters=[Plain()]) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "one two three")
        await here.settled()
        (shown,) = chat.shown
        assert (shown.text, shown.earlier) == ("You said: one two three", ())


async def test_a_draft_that_hangs_does_not_hold_the_answer_up(tmp_path: Path) -> None:
    world = FakePlatform()

    class Hanging(FakeAdapter):
        async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
            if idempotency_key.startswith("draft"):
                await asyncio.Event().wait()
            return await super().send(outbound, idempotency_key=idempotency_key)

    adapter = Hanging(world, limits=QUICK)
    async with running(tmp_path / "p.db", world, agent=STREAM, adapters=[adapter], send_limit=timedelta(seconds=0.1)):
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "one two three")
        await chat.hears("You said: one two three")


async def test_a_draft_of_which_nobody_knows_the_id_stays_the_only_one(tmp_path: Path) -> None:
    world = FakePlatform()

    class Flapping(FakeAdapter):
        async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
            receipt = await super().send(outbound, idempotency_key=idempotency_key)
            if idempotency_key.startswith("draft"):
                raise SendUnclear("the connection was lost")
            return receipt

    async with running(tmp_path / "p.db", world, agent=STREAM, adapters=[Flapping(world, limits=QUICK)]) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "one two three four five")
        await here.settled()
        assert [message.text for message in chat.shown][1:] == [
            f"You said: one two three four five\n{MAY_BE_DUPLICATE}"
        ]


async def test_drafts_are_dropped_before_answers_wait(tmp_path: Path) -> None:
    world = FakePlatform(interval=0.05, faults=Faults(busy_for=0.05))
    limits = Limits(interval=0.1, draft_interval=0.0)
    async with running(tmp_path / "p.db", world, agent=STREAM, limits=limits, acknowledges=False) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        for number in range(3):
            await chat.say(alice, f"one two three four five {number}")
        await chat.hears("five 2")
        await here.settled()
        rows = await here.rows("SELECT max(attempts) FROM outbox")
        assert rows[0][0] == 1
        assert len(chat.shown) == 3


async def test_a_busy_platform_holds_drafts_and_answers_alike(tmp_path: Path) -> None:
    world = FakePlatform(faults=Faults(busy_for=0.3))
    async with running(tmp_path / "p.db", world, agent=STREAM, limits=QUICK) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        world.injector.script.append(SendFault.BUSY)
        began = asyncio.get_running_loop().time()
        await chat.say(alice, "one two")
        await chat.hears("You said: one two")
        assert asyncio.get_running_loop().time() - began >= 0.3
        await here.settled()
        rows = await here.rows("SELECT attempts FROM outbox")
        assert [row[0] for row in rows] == [1]


async def _looks_first(request: Request) -> AsyncGenerator[Event]:
    call = ToolCall(id=f"c{request.turn}", name="look")
    yield TextDelta("let me look")
    yield ToolCalled(calls=(call,), text="let me look")
    yield ToolReturned(call=call.id, text="seen")
    if heard(request).endswith("wait"):
        await asyncio.Event().wait()
    yield Final(text="there it is")


async def test_what_was_shown_before_a_tool_call_is_kept_when_the_answer_is_stopped(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", agent=Scripted(_looks_first), limits=QUICK) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "wait")
        await chat.hears("let me look")
        await chat.say(alice, "/stop")
        await chat.hears("Stopping.")
        await here.settled()
        assert chat.shown[0].text == "let me look …"


async def test_a_stopped_answer_is_kept_up_to_the_longest_answer(tmp_path: Path) -> None:
    async def goes_on(_request: Request) -> AsyncGenerator[Event]:
        yield TextDelta("word\n" * (LONGEST_ANSWER // 5 - 1))
        yield TextDelta("last words, and more")
        yield TextDelta("never kept")
        await asyncio.Event().wait()

    async with running(tmp_path / "p.db", agent=Scripted(goes_on), limits=QUICK) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await until(lambda: bool(chat.shown))
        await chat.say(alice, "/stop")
        await chat.hears("Stopping.")
        await here.settled()
        (said,) = [text for text in await here.texts() if text.startswith("word\n")]
        assert (len(said), said[-10:]) == (LONGEST_ANSWER, "word\nlast ")


async def test_a_failed_answer_leaves_no_half_message_behind(tmp_path: Path) -> None:
    async def breaks(_request: Request) -> AsyncGenerator[Event]:
        yield TextDelta("half an answer")
        await asyncio.sleep(0.03)
        raise ValueError

    async with running(tmp_path / "p.db", agent=Scripted(breaks), limits=QUICK) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await here.settled()
        (shown,) = chat.shown
        assert shown.text == SORRY
