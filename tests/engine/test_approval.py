"""A turn that asks permission waits for a person, and for nobody else; it goes on or ends as that person says."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from palaver.commands.trace_steps import trace_steps
from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.model.access import AccessRole, Grant
from palaver.model.key import ScopedSetting
from palaver.model.revision import RevisionPolicy
from palaver.model.transcript import ToolCall
from palaver.model.turn import BusyMode, Outbound, QuestionMode, Turn, TurnState
from palaver.model.view import INTERRUPTED, NOT_RUN, open_calls
from palaver.protocols.adapter import Limits
from palaver.protocols.agent import (
    ApprovalNeeded,
    Event,
    Failure,
    FailureKind,
    Final,
    Request,
    TextDelta,
    ToolCalled,
    ToolReturned,
)
from palaver.store.queue import turn_control, turns
from palaver.store.status.invariants import violations
from palaver.store.status.trace import find_traces
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Scripted, heard, noted
from tests.engine.gateway import OPERATOR, Bench, NoPauses, running, until
from tests.store.world import NOON

SLOW = timedelta(minutes=5)


async def states(here: Bench) -> list[str]:
    return [row[0] for row in await here.rows("SELECT state FROM turns ORDER BY no")]


@pytest.mark.parametrize(("command", "told"), [("/approve", "it"), ("/deny", "not allowed")])
async def test_what_a_person_says_is_done_at_once(store_url: str, command: str, told: str) -> None:
    # Nothing but the command itself wakes the turn.
    async with running(store_url, lease=SLOW, poll=SLOW) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "!approve it")
        await chat.hears("Reply /approve or /deny.")
        await chat.say(alice, "/status")
        await chat.hears("waiting for /approve or /deny")
        await chat.say(alice, command)
        await chat.hears("You said: it")
        await here.settled()
        assert await states(here) == ["done"]
        assert told in await here.texts()
        assert not any("restarted" in text for text in await here.texts())
        assert await here.store.read(violations()) == []


class _SlowDrafts(FakeAdapter):
    """A platform that takes its time to show what the agent says before it asks."""

    def __init__(self, world: FakePlatform) -> None:
        super().__init__(world)
        self.is_showing, self.go = asyncio.Event(), asyncio.Event()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        if outbound.text == "let me see":
            self.is_showing.set()
            await self.go.wait()
        return await super().send(outbound, idempotency_key=idempotency_key)


@pytest.mark.parametrize("said", ["/stop", "never mind"])
async def test_a_turn_that_was_stopped_asks_nothing(tmp_path: Path, said: str) -> None:
    async def asks(request: Request) -> AsyncGenerator[Event]:
        if heard(request) == "never mind":
            yield Final(text="as you like")
            return
        yield TextDelta("let me see")
        yield ApprovalNeeded(call=ToolCall(id="c", name="look"), question="May I?")

    world, interrupts = FakePlatform(), ScopedSetting(default=BusyMode.INTERRUPT)
    adapter = _SlowDrafts(world)
    async with running(tmp_path / "p.db", world, agent=Scripted(asks), adapters=[adapter], busy=interrupts) as here:
        chat = world.dm(alice := world.person("alice"))
        await chat.say(alice, "look")
        await adapter.is_showing.wait()
        await chat.say(alice, said)
        await until(partial(_is_stopped, here))
        adapter.go.set()
        await here.settled()
        assert [state for state in await states(here) if state == "parked"] == []
        assert [message.text for message in chat.shown if "May I?" in message.text] == []


async def test_a_stop_in_the_moment_in_which_a_turn_asks_is_not_lost(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    halt = turns.halt

    @transaction
    def stop_first(turn: Turn, state: TurnState, now: datetime, **rest: Any) -> Statements[TurnState]:
        yield from turn_control.request_stop(turn.key, now, by="alice")
        return (yield from halt(turn, state, now, **rest))

    monkeypatch.setattr(turns, "halt", stop_first)
    caplog.set_level(logging.INFO)
    async with running(store_url, lease=SLOW, poll=SLOW) as here:
        chat = here.world.dm(alice := here.world.person("alice"))
        await chat.say(alice, "!approve it")
        await until(partial(_is_over, here))
        await here.settled()
        assert [message.text for message in chat.shown if "/approve" in message.text] == []
        assert await here.store.read(violations()) == []
    assert "turn stopped" in caplog.text
    assert "turn parked" not in caplog.text


async def _is_over(here: Bench) -> bool:
    return await states(here) in (["done"], ["failed"])


async def _is_stopped(here: Bench) -> bool:
    return any(each.stop.done() for each in here.engine._runner._running.values())  # pyright: ignore[reportPrivateUsage]


async def test_a_turn_can_ask_again_and_again(tmp_path: Path) -> None:
    said: dict[str, bool] = {}

    async def asks_thrice(request: Request) -> AsyncGenerator[Event]:
        said.update(request.approvals)
        asked = len(said)
        if asked < 3:
            yield ApprovalNeeded(call=ToolCall(id=f"c{asked}", name="look"), question=f"May I, {asked}?")
        else:
            yield Final(text=f"thank you for {said}")

    async with running(tmp_path / "p.db", agent=Scripted(asks_thrice), attempts=1) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        for number in range(3):
            await chat.hears(f"May I, {number}?")
            await chat.say(alice, "/deny" if number == 1 else "/approve")
        await chat.hears("thank you for {'c0': True, 'c1': False, 'c2': True}")


async def test_a_button_that_is_pressed_twice_does_not_answer_what_is_asked_next(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", agent=Scripted(_in_steps)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        await chat.hears("May I, asked?")
        ((number, fence),) = await here.rows("SELECT no, fence FROM turns")
        for _ in range(2):
            await chat.say(alice, f"/approve {number}-{fence}")
        await chat.hears("May I, later?")
        await chat.hears("Approved.")
        await here.settled()
        assert await states(here) == ["parked"]
        await chat.say(alice, f"/approve {number}-{fence}")
        await chat.hears("The question has changed.")


async def test_a_question_has_buttons_that_answer_it_and_no_other(store_url: str) -> None:
    async with running(store_url, agent=Scripted(_in_steps)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        first = await chat.hears("May I, asked?")
        assert [choice.label for choice in first.choices] == ["Approve", "Deny"]
        await chat.press(alice, first, "Approve")
        second = await chat.hears("May I, later?")
        await chat.press(alice, first, "Approve")  # once more
        await chat.hears("The question has changed.")
        assert await states(here) == ["parked"]
        await chat.say(alice, "/deny")
        await chat.hears("thank you")
        await chat.press(alice, second, "Approve")  # when it was decided by words
        await chat.hears("There is nothing to approve or deny.")
        await here.settled()
        assert "later refused" in await here.texts()


async def test_pressing_a_button_allows_no_more_than_saying_it(tmp_path: Path) -> None:
    world = FakePlatform()
    alice, bob, carol, eve = (world.person(name) for name in ("alice", "bob", "carol", "eve"))
    grants = (
        Grant(platform="fake", role=AccessRole.MEMBER, user_id=alice.id),
        Grant(platform="fake", role=AccessRole.MEMBER, user_id=bob.id),
        Grant(platform="fake", role=AccessRole.ADMIN, user_id=carol.id),
    )
    async with running(tmp_path / "p.db", world, grants=grants) as here:
        group = world.group("friends", alice, bob, carol, eve)
        await group.say(alice, "!approve it", thread="5")
        question = await group.hears("May I")
        await group.press(eve, question, "Approve")
        await group.press(bob, question, "Approve")
        await group.hears("needs the admin role")
        assert await states(here) == ["parked"]
        assert len(await here.rows("SELECT 1 FROM inbox WHERE state = 'refused'")) == 1
        await group.press(carol, question, "Approve")
        await group.hears("You said: it")


async def test_a_question_is_answered_where_it_was_shown_also_outside_of_its_conversation(store_url: str) -> None:
    world = FakePlatform()
    alice, bob, carol = (world.person(name) for name in ("alice", "bob", "carol"))
    group, elsewhere = world.group("friends", alice, bob), world.group("others", carol)
    grants = (
        Grant(platform="fake", role=AccessRole.MEMBER, chat_id=group.id),
        Grant(platform="fake", role=AccessRole.ADMIN, chat_id=elsewhere.id),
    )
    async with running(store_url, world, grants=grants) as here:
        await group.say(alice, "!approve it", thread="5")
        allow, deny = (await group.hears("May I")).choices
        await elsewhere.say(carol, allow.says)
        await elsewhere.hears("There is nothing to approve or deny.")
        for refused in (allow, deny):
            await group.say(bob, refused.says)
            await group.hears("somebody else's request needs the admin role")
        assert await states(here) == ["parked"]
        await group.say(alice, allow.says)
        await group.hears("You said: it")


async def test_a_long_question_has_its_buttons_at_its_end(tmp_path: Path) -> None:
    async def asks(request: Request) -> AsyncGenerator[Event]:
        yield ApprovalNeeded(call=ToolCall(id="c", name="look"), question=f"May I? {'really ' * 20}{heard(request)}")

    async with running(tmp_path / "p.db", agent=Scripted(asks), limits=Limits(text=100)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        last = await chat.hears("Reply /approve or /deny.")
        assert [bool(message.choices) for message in chat.shown] == [message == last for message in chat.shown]
        assert len(chat.shown) > 1


async def test_a_question_outlives_the_gateway(store_url: str) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(store_url, world):
        await chat.say(alice, "!approve it")
        await chat.hears("May I")
    async with running(store_url, world, worker="w2"):
        await chat.say(alice, "/approve")
        await chat.hears("You said: it")


@pytest.mark.parametrize("command", ["/stop", "/new"])
async def test_nobody_has_to_answer(store_url: str, command: str) -> None:
    async def asks(request: Request) -> AsyncGenerator[Event]:
        if heard(request) == "go":
            yield ApprovalNeeded(call=ToolCall(id="c", name="look"), question="May I?")
        else:
            yield Final(text=f"answer to: {heard(request)}")

    agent = Scripted(asks)
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        await chat.hears("May I?")
        await chat.say(alice, "/queue hello?")
        await chat.say(alice, command)
        await chat.hears(
            "The open question there was denied." if command == "/new" else "The open question was denied."
        )
        await chat.say(alice, "well?")
        await chat.hears("answer to: well?")
        await here.settled()
        assert await states(here) == ["failed", "done", "done"][: 2 if command == "/new" else 3]
        note = texts.LEFT_NOTE if command == "/new" else texts.STOPPED_NOTE
        first = (await here.rows("SELECT id FROM sessions ORDER BY no"))[0][0]
        assert note in await here.texts(first)
        assert (note in noted(agent.requests[-1])) == (command == "/stop")
        assert await here.store.read(violations()) == []


@pytest.mark.parametrize(
    ("commands", "told", "stays"),
    [
        (["/back"], "There is nothing to undo.", True),
        (["/redo"], "There is nothing to redo.", True),
        (["/undo 0"], "Nothing to undo.", True),
        (["/resume 9"], "There is no conversation '9'.", True),
        (["/undo", "/redo"], "Restored “!approve it”", False),
        (["/undo", "/back"], "Undid the last undo.", False),
        (["/branch"], "The open question there was denied.", False),
        (["/resume Earlier"], "The open question there was denied.", False),
    ],
)
async def test_going_back_leaves_a_question_open_or_says_that_it_is_denied(
    tmp_path: Path, commands: list[str], told: str, stays: bool
) -> None:
    async with running(tmp_path / "p.db") as here:
        chat = here.world.dm(alice := here.world.person("alice"))
        if told == "The open question there was denied.":
            await chat.say(alice, "/new Earlier")
            await chat.say(alice, "hello")
            await chat.say(alice, "/new")
        await chat.say(alice, "!approve it")
        await chat.hears("Reply /approve or /deny.")
        for command in commands:
            await chat.say(alice, command)
        await chat.hears(told)
        assert ("parked" in await states(here)) == stays
        await chat.say(alice, "/approve")
        await chat.hears("You said: it" if stays else "There is nothing to approve or deny.")
        await here.settled()
        assert await here.store.read(violations()) == []


async def test_back_denies_the_question_of_what_it_leaves_and_says_so(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        chat = here.world.dm(alice := here.world.person("alice"))
        for said in ("hello", "/new", "!approve it"):
            await chat.say(alice, said)
        await chat.hears("Reply /approve or /deny.")
        await chat.say(alice, "/back")
        undone = await chat.hears("Undid the last reset.")
        assert undone.text.endswith("The open question there was denied.")
        assert await here.store.read(violations()) == []


async def test_retry_denies_the_open_question_and_says_so(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        chat = here.world.dm(alice := here.world.person("alice"))
        await chat.say(alice, "!approve it")
        await chat.hears("Reply /approve or /deny.")
        await chat.say(alice, "/retry")
        told = await chat.hears("Answering again: “!approve it”.")
        assert told.text.endswith("The open question there was denied.")
        await chat.hears("Reply /approve or /deny.", times=2)
        await here.settled()
        assert await here.store.read(violations()) == []


async def test_a_place_that_detaches_leaves_the_question_to_the_others(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat, other = here.world.dm(alice), here.world.group("others", alice)
        await chat.say(alice, "/new Shared")
        await chat.say(alice, "!approve it")
        await chat.hears("Reply /approve or /deny.")
        await other.say(alice, "/attach Shared --yes")
        await other.hears("This chat now continues")
        await other.say(alice, "/back")
        await other.hears("Undid the last attach.")
        await chat.say(alice, "/approve")
        await chat.hears("You said: it")


async def test_someone_who_goes_on_talking_learns_once_what_the_turn_waits_for(store_url: str) -> None:
    waits = ScopedSetting(default=QuestionMode.WAIT)
    async with running(store_url, questions=waits) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat, other = here.world.dm(alice), here.world.dm(bob)
        await chat.say(alice, "!approve it")
        await chat.hears("May I")
        for text in ("hello?", "are you there?"):
            await chat.say(alice, text)
        await chat.hears(texts.ASKED_FIRST)
        await other.say(bob, "hello")
        await other.hears("You said: hello")
        await chat.say(alice, "/help status")
        await chat.hears("/status")
        await chat.say(alice, "/approve")
        await chat.hears("You said: are you there?")
        await here.settled()
        assert [message.text for message in chat.shown].count(texts.ASKED_FIRST) == 1
        assert await here.store.read(violations()) == []


async def test_a_message_withdraws_the_question_and_is_answered(store_url: str) -> None:
    async def asks(request: Request) -> AsyncGenerator[Event]:
        if heard(request).startswith("look"):
            yield ToolCalled(calls=CALLS)
            yield ToolReturned(call="done", text="result of done")
            yield ApprovalNeeded(call=CALLS[1], question=f"May I {heard(request)}?")
        else:
            yield Final(text=f"answer to: {heard(request)}")

    agent = Scripted(asks)
    async with running(store_url, agent=agent, lease=SLOW, poll=SLOW) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "look here")
        question = await chat.hears("May I look here?")
        await chat.say(alice, "never mind")
        await chat.hears("answer to: never mind")
        await here.settled()
        assert [message.text for message in chat.shown][1:] == [texts.WITHDRAWN, "answer to: never mind"]
        assert await states(here) == ["failed", "done"]
        step = ["result of done", NOT_RUN, NOT_RUN, texts.WITHDRAWN_NOTE, "never mind"]
        assert (await here.texts())[-len(step) - 1 : -1] == step, "the calls are closed as not run"
        assert INTERRUPTED not in [message.text for message in agent.requests[-1].messages]
        for answer in ("/approve", "/deny", question.choices[0].says):
            await chat.say(alice, answer)
            await chat.hears("That question was withdrawn when another message arrived. Nothing was approved.")
        asked, answered = [
            [step.sentence for step in trace_steps(trace, NOON)]
            for name in ("turn:1", "in:2")
            for trace in await here.store.read(find_traces(name, OPERATOR))
        ]
        assert "its question was withdrawn by in:2" in asked
        assert f"queued notice that the question was withdrawn to fake chat {chat.id}" in asked
        assert "withdrew the question of turn:1" in answered
        await chat.say(alice, "look there")
        await chat.hears("May I look there?")
        await chat.say(alice, "/deny")
        await chat.say(alice, "/approve")
        await chat.hears("There is nothing to approve or deny.")
        assert await here.store.read(violations()) == []


@pytest.mark.parametrize("deletes", [False, True])
async def test_a_change_that_goes_back_withdraws_the_question(store_url: str, *, deletes: bool) -> None:
    rerun = ScopedSetting(default=RevisionPolicy.RERUN)
    async with running(store_url, revisions=rerun) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        said = await chat.say(alice, "!approve it")
        await chat.hears("May I")
        if deletes:
            await chat.delete(alice, said)
            await chat.hears("You deleted a message")
        else:
            await chat.edit(alice, said, "never mind")
            await chat.hears("You said: never mind")
        await here.settled()
        assert await states(here) == (["failed"] if deletes else ["failed", "done"])
        assert [message.text for message in chat.shown].count(texts.WITHDRAWN) == int(not deletes)
        assert await here.store.read(violations()) == []


async def test_only_a_message_that_comes_after_a_question_withdraws_it(store_url: str) -> None:
    go = asyncio.Event()

    async def asks(request: Request) -> AsyncGenerator[Event]:
        if heard(request) == "go":
            await go.wait()
            yield ApprovalNeeded(call=CALLS[0], question="May I?")
        else:
            yield Final(text=f"answer to: {heard(request)}")

    agent = Scripted(asks)
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        await until(lambda: bool(agent.requests))
        await chat.say(alice, "and then?")
        await chat.hears("Still answering. Your message is queued.")
        go.set()
        await chat.hears("May I?")
        for waits in ("/status", "/title Holidays", "/queue later"):
            await chat.say(alice, waits)
        await chat.hears(texts.ASKED_FIRST)
        assert await states(here) == ["parked"]
        await chat.say(alice, "never mind")
        await chat.hears("answer to: never mind")
        await here.settled()
        answers = [message.text for message in chat.shown if message.text.startswith("answer")]
        assert answers == ["answer to: and then?", "answer to: later", "answer to: never mind"]


async def test_only_the_person_asked_or_an_admin_can_allow_it(tmp_path: Path) -> None:
    world = FakePlatform()
    alice, bob, carol = (world.person(name) for name in ("alice", "bob", "carol"))
    grants = (
        Grant(platform="fake", role=AccessRole.MEMBER),
        Grant(platform="fake", role=AccessRole.ADMIN, user_id=carol.id),
    )
    async with running(tmp_path / "p.db", world, grants=grants) as here:
        group = world.group("friends", alice, bob, carol)
        await group.say(alice, "!approve it", thread="5")
        await group.hears("May I")
        await group.say(bob, "/approve", thread="5")
        await group.hears("needs the admin role")
        assert await states(here) == ["parked"]
        await group.say(carol, "/approve", thread="5")
        await group.hears("You said: it")


@pytest.mark.parametrize("command", ["/approve", "/deny"])
async def test_where_nothing_was_asked_nothing_is_allowed(tmp_path: Path, command: str) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, command)
        await chat.hears("There is nothing to approve or deny.")


CALLS = tuple(ToolCall(id=name, name="look") for name in ("done", "asked", "later"))


async def _in_steps(request: Request) -> AsyncGenerator[Event]:
    """A response with three calls: the first is used at once, the others only where a person allows it."""
    still_open = open_calls(request.messages)
    if not still_open and not any(message.calls for message in request.messages):
        yield ToolCalled(calls=CALLS, text="let me look")
        yield ToolReturned(call="done", text="result of done")
        still_open = CALLS[1:]
    for call in still_open:
        if call.id not in request.approvals:
            yield ApprovalNeeded(call=call, question=f"May I, {call.id}?")
            return
        yield ToolReturned(call=call.id, text=f"{call.id} {'used' if request.approvals[call.id] else 'refused'}")
    yield Final(text="thank you")


async def test_what_is_open_of_a_step_stays_open_until_a_person_has_answered(store_url: str) -> None:
    agent, world = Scripted(_in_steps), FakePlatform()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(store_url, world, agent=agent):
        await chat.say(alice, "go")
        await chat.hears("May I, asked?")
    async with running(store_url, world, agent=agent, worker="w2"):
        await chat.say(alice, "/approve")
        await chat.hears("May I, later?")
    async with running(store_url, world, agent=agent, worker="w3") as here:
        await chat.say(alice, "/deny")
        await chat.hears("thank you")
        await here.settled()
        shown = [[(each.text, len(each.calls)) for each in request.messages[1:]] for request in agent.requests]
        begins = [("let me look", 3), ("result of done", 0)]
        assert shown == [[], begins, [*begins, ("asked used", 0)]]
        assert [dict(request.approvals) for request in agent.requests] == [{}, {"asked": True}, {"later": False}]
        said = ["go", "let me look", "result of done", "asked used", "later refused", "thank you"]
        assert (await here.texts())[-len(said) :] == said
        assert await here.store.read(violations()) == []


async def test_what_was_allowed_is_not_used_twice_when_the_gateway_dies_in_it(store_url: str) -> None:
    used: list[str] = []
    world, at_it = FakePlatform(), asyncio.Event()

    async def dies(request: Request) -> AsyncGenerator[Event]:
        if still_open := open_calls(request.messages):
            used.append(still_open[0].id)
            at_it.set()
            await asyncio.Event().wait()
        elif any(message.calls for message in request.messages):
            yield Final(text=noted(request))
        else:
            yield ToolCalled(calls=CALLS[:1])
            yield ApprovalNeeded(call=CALLS[0], question="May I?")

    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(store_url, world, agent=Scripted(dies)):
        await chat.say(alice, "go")
        await chat.hears("May I?")
        await chat.say(alice, "/approve")
        await at_it.wait()
    async with running(store_url, world, agent=Scripted(dies), worker="w2"):
        answer = await chat.hears(INTERRUPTED)
        assert "the gateway restarted" in answer.text
        assert used == ["done"]


async def test_what_was_allowed_once_does_not_count_for_a_later_call_of_the_same_id(tmp_path: Path) -> None:
    async def says_it_again(request: Request) -> AsyncGenerator[Event]:
        still_open = open_calls(request.messages)
        if not still_open:
            yield ApprovalNeeded(call=ToolCall(id="x", name="look"), question="May I, first?")
        elif len(still_open) == 1:
            yield ToolReturned(call=still_open[0].id, text="looked")
            yield ToolCalled(calls=(ToolCall(id="x", name="shoot"), ToolCall(id="y", name="look")))
            yield ApprovalNeeded(call=ToolCall(id="y", name="look"), question="May I, second?")
        else:
            yield Final(text=f"thank you for {dict(request.approvals)}")

    async with running(tmp_path / "p.db", agent=Scripted(says_it_again)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        for which in ("first", "second"):
            await chat.hears(f"May I, {which}?")
            await chat.say(alice, "/approve")
        await chat.hears("thank you for {'y': True}")


async def test_a_call_that_has_the_id_of_one_that_is_over_is_another_call(tmp_path: Path) -> None:
    async def goes_on(request: Request) -> AsyncGenerator[Event]:
        if still_open := open_calls(request.messages):
            yield ToolReturned(call=still_open[0].id, text="looked")
            yield Final(text=f"{still_open[0].name} with {list(request.approvals.values())}")
        else:
            yield ToolCalled(calls=(ToolCall(id="x", name="look"),))
            yield ToolReturned(call="x", text="looked")
            yield ApprovalNeeded(call=ToolCall(id="x", name="shoot"), question="May I?")

    async with running(tmp_path / "p.db", agent=Scripted(goes_on)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        await chat.hears("May I?")
        await chat.say(alice, "/approve")
        await chat.hears("shoot with [True]")


async def test_what_was_allowed_is_not_used_twice_when_the_agent_is_asked_again(tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []

    async def fails_in_it(request: Request) -> AsyncGenerator[Event]:
        asked.append(tuple(call.id for call in open_calls(request.messages)))
        if len(asked) == 1:
            yield ToolCalled(calls=CALLS[:1])
            yield ApprovalNeeded(call=CALLS[0], question="May I?")
        elif len(asked) == 2:
            yield Failure(kind=FailureKind.TRANSIENT, detail="in the middle of it")
        else:
            yield Final(text=noted(request))

    async with running(tmp_path / "p.db", agent=Scripted(fails_in_it), chance=NoPauses()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        await chat.hears("May I?")
        await chat.say(alice, "/approve")
        await chat.hears(INTERRUPTED)
        assert asked == [(), ("done",), ()]
