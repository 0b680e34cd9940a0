"""The agent asks back: the person chooses or answers in words, from any surface, and the turn goes on with it."""

import json
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

from palaver.commands.trace_steps import trace_steps
from palaver.engine import texts
from palaver.model.access import AccessRole, Grant
from palaver.model.key import GroupScope, Scope, ScopedSetting
from palaver.model.tools import ASK_USER, NOT_ANSWERED
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import QuestionMode
from palaver.model.view import open_calls
from palaver.protocols.agent import (
    ApprovalNeeded,
    Event,
    Final,
    Request,
    ToolCalled,
    ToolReturned,
    question_to_person,
)
from palaver.store.status.invariants import violations
from palaver.store.status.trace import find_traces
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Scripted, heard
from tests.engine.gateway import OPERATOR, Bench, running
from tests.store.test_forgetting import forget
from tests.store.world import NOON

SLOW = timedelta(minutes=5)
CITIES = ("Paris", "London", "7")


async def states(here: Bench) -> list[str]:
    return [row[0] for row in await here.rows("SELECT state FROM turns ORDER BY no")]


async def asks_with_objects(request: Request) -> AsyncGenerator[Event]:
    results = [message.text for message in request.messages if message.role is Role.TOOL]
    if results:
        yield Final(text=f"So: {results[-1]}")
        return
    choices = [{"label": "Paris", "value": "PAR"}, {"label": "London"}, {"value": "ROM"}]
    call = ToolCall("q", ASK_USER, json.dumps({"question": "Where to?", "choices": choices}))
    yield ToolCalled(calls=(call,))
    yield ApprovalNeeded(call=call, question="Where to?")


async def test_choices_can_be_objects_with_a_label_and_a_value(tmp_path: Path) -> None:
    for said, meant in (("1", "PAR"), ("paris", "PAR"), ("London", "London"), ("3", "ROM"), ("to Oslo", "to Oslo")):
        async with running(tmp_path / f"{said}.db", agent=Scripted(asks_with_objects)) as here:
            alice = here.world.person("alice")
            chat = here.world.dm(alice)
            await chat.say(alice, "go")
            question = await chat.hears("Where to?\n1. Paris\n2. London\n3. ROM")
            assert [choice.label for choice in question.choices] == ["Paris", "London", "ROM"]
            await chat.say(alice, said)
            await chat.hears(f"So: {meant}")


async def asks(request: Request) -> AsyncGenerator[Event]:
    """Ask once in each turn, and say what came back."""
    results = [message.text for message in request.messages if message.role is Role.TOOL]
    if heard(request) == "go":
        choices = CITIES
    elif heard(request) == "freely":
        choices = ()
    else:
        yield Final(text=f"answer to: {heard(request)}" if heard(request) else f"So: {results[-1]}")
        return
    yield question_to_person(f"q{request.turn}", "Where to?", choices)


async def test_an_answer_is_a_button_a_number_a_choice_or_words(store_url: str) -> None:
    # Nothing but the answer itself wakes the turn.
    async with running(store_url, agent=Scripted(asks), lease=SLOW, poll=SLOW) as here:
        for said, meant in (
            ("2", "London"),
            ("#3", "7"),
            ("7", "7"),
            ("2.", "London"),
            ("paris", "Paris"),
            ("neither, to Rome", "neither, to Rome"),
            ("12", "12"),
            ("/answer 1", "Paris"),
            ("/answer two of them", "two of them"),
            ("press", "London"),
            ("/deny", NOT_ANSWERED),
        ):
            alice = here.world.person(said)
            chat = here.world.dm(alice)
            await chat.say(alice, "go")
            question = await chat.hears(
                "Where to?\n1. Paris\n2. London\n3. 7\nReply with a number, or in your own words."
            )
            assert [choice.label for choice in question.choices] == list(CITIES)
            await chat.say(alice, "/status")
            await chat.hears("waiting for your answer")
            await (chat.press(alice, question, "London") if said == "press" else chat.say(alice, said))
            await chat.hears(f"So: {meant}")
            await here.settled()
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "freely")
        question = await chat.hears("Where to?\nReply in your own words.")
        assert not question.choices
        await chat.say(alice, "home")
        await chat.hears("So: home")
        await here.settled()
        assert set(await states(here)) == {"done"}
        assert await here.store.read(violations()) == []


async def test_the_question_outlives_the_gateway_and_its_answer_belongs_to_the_turn(store_url: str) -> None:
    agent, world = Scripted(asks), FakePlatform()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(store_url, world, agent=agent):
        await chat.say(alice, "go")
        await chat.hears("Where to?")
    async with running(store_url, world, agent=agent, worker="w2") as here:
        await chat.say(alice, "2")
        await chat.hears("So: London")
        await here.settled()
        assert await states(here) == ["done"]
        said = [(message.role, message.text, message.answers) for message in agent.requests[-1].messages[1:]]
        assert said == [(Role.ASSISTANT, "", ""), (Role.TOOL, "London", "q1")]
        assert not open_calls(agent.requests[-1].messages)
        rows = await here.rows("SELECT turn_no, answers IS NOT NULL FROM inbox ORDER BY no")
        assert [tuple(row) for row in rows] == [(1, 0), (1, 1)]
        (trace,) = await here.store.read(find_traces("in:2", OPERATOR))
        assert "answered the question of turn:1" in [step.sentence for step in trace_steps(trace, NOON)]
        assert await here.store.read(violations()) == []


async def test_a_question_is_no_approval_and_an_approval_takes_no_words(tmp_path: Path) -> None:
    async def both(request: Request) -> AsyncGenerator[Event]:
        if heard(request) == "may":
            yield ApprovalNeeded(call=ToolCall(id="c", name="look"), question="May I?")
        else:
            async for event in asks(request):
                yield event

    async with running(tmp_path / "p.db", agent=Scripted(both)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/answer 2")
        await chat.hears("There is no open question to answer.")
        await chat.say(alice, "go")
        question = await chat.hears("Where to?")
        await chat.say(alice, "/approve")
        await chat.hears("The agent wants an answer, not an approval: send a number or your own words.")
        await chat.say(alice, "/stop")
        await chat.hears("Stopped. The open question was denied.")
        await chat.press(alice, question, "Paris")
        await chat.hears("There is no open question to answer.")
        await chat.say(alice, "may")
        await chat.hears("May I?")
        await chat.say(alice, "/answer yes")
        await chat.hears("That question needs /approve or /deny.")
        await chat.say(alice, "yes")
        await chat.hears(texts.WITHDRAWN)
        await chat.hears("answer to: yes")
        await here.settled()
        assert await states(here) == ["failed", "failed", "done"]


async def test_only_the_person_who_was_asked_or_an_admin_answers(store_url: str) -> None:
    world = FakePlatform()
    alice, bob, carol = (world.person(name) for name in ("alice", "bob", "carol"))
    grants = (
        Grant(platform="fake", role=AccessRole.GUEST, user_id=alice.id),
        Grant(platform="fake", role=AccessRole.MEMBER, user_id=bob.id),
        Grant(platform="fake", role=AccessRole.ADMIN, user_id=carol.id),
    )
    waits = ScopedSetting(default=QuestionMode.WAIT)
    shared = ScopedSetting(default=Scope(group=GroupScope.SHARED))
    async with running(store_url, world, agent=Scripted(asks), grants=grants, questions=waits, scopes=shared) as here:
        group = world.group("friends", alice, bob, carol)
        await group.say(alice, "go")
        question = await group.hears("Where to?")
        await group.press(bob, question, "London")
        await group.hears("Answering somebody else's request needs the admin role")
        for other in (bob, carol):
            await group.say(other, "2")  # talk, not an answer
        await group.hears("Your message is queued.")
        assert await states(here) == ["parked"]
        await group.press(carol, question, "Paris")
        await group.hears("So: Paris")
        await group.hears("answer to: 2")
        await here.settled()
        await group.say(alice, "go")
        await group.hears("Reply with a number, or in your own words.", times=2)
        await group.say(alice, "anywhere, says alice")  # a guest, too
        await group.hears("So: anywhere, says alice")
        await here.settled()
        await forget(here.store, f"fake:{alice.id}")
        bodies = [str(row[0]) for row in await here.rows("SELECT body FROM entries UNION ALL SELECT body FROM inbox")]
        assert not any("says alice" in body for body in bodies), "an answer is theirs, and goes with them"


async def test_other_calls_of_the_same_step_run_after_the_answer(tmp_path: Path) -> None:
    look, again = ToolCall(id="look", name="look"), ToolCall(id="again", name="look")
    asked = question_to_person("q", "Where to?", CITIES)

    async def steps(request: Request) -> AsyncGenerator[Event]:
        if not any(message.calls for message in request.messages):
            yield ToolCalled(calls=(look, asked.call, again))
            yield ToolReturned(call="look", text="looked")
            yield asked
            return
        for call in open_calls(request.messages):
            if call.id not in request.approvals:
                yield ApprovalNeeded(call=call, question="May I?")
                return
            yield ToolReturned(call=call.id, text="looked again")
        yield Final(text=", ".join(message.text for message in request.messages if message.role is Role.TOOL))

    async with running(tmp_path / "p.db", agent=Scripted(steps)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        await chat.hears("Where to?")
        await chat.say(alice, "1")
        await chat.hears("May I?")
        await chat.say(alice, "/approve")
        await chat.hears("looked, Paris")
        await here.settled()
        assert (await here.texts())[-2:] == ["looked again", "looked, Paris"]


async def test_a_message_with_a_file_or_for_later_is_no_answer(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", agent=Scripted(asks)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        await chat.hears("Where to?")
        await chat.say(alice, "/queue later")
        await chat.hears(texts.ASKED_FIRST)
        assert await states(here) == ["parked"]
        await chat.say(alice, "1")
        await chat.hears("So: Paris")
        await chat.hears("answer to: later")
