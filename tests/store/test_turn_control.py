"""What is said to a turn while it runs."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from palaver.db.transaction import Statements, Transaction, key_topic, transaction
from palaver.model.errors import NotAllowed, StaleFence
from palaver.model.key import SessionKey
from palaver.model.session import Principal
from palaver.model.split import ReplyRoutes
from palaver.model.tools import ASK_USER
from palaver.model.transcript import ToolCall
from palaver.model.turn import Inbound, InboxState, Turn, TurnState, outbound_to
from palaver.model.view import NOT_RUN
from palaver.store.opening import open_store
from palaver.store.queue import commands, inbox, outbox, turn_control, turns
from palaver.store.results import Begun, Decision
from palaver.store.status import overview
from palaver.store.store import Store
from tests.store.conftest import DRIVER, fresh_store
from tests.store.world import LEASE, OPERATOR, World, answer, begin_sends, dm, group, key_of

KEY = key_of(dm())


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def begin(world: World) -> Turn:
    await world.say("hello")
    begun = await world.begin()
    assert begun
    return begun.turn


async def stop(world: World) -> bool:
    return await world.store.transact(turn_control.request_stop(KEY, world.now, by="alice"))


async def test_a_stop_reaches_the_turn_that_runs(world: World) -> None:
    turn = await begin(world)
    assert not (await world.store.read(turn_control.read_signals(turn))).stop
    with world.store.listen(key_topic(KEY)) as signal:
        assert await stop(world)
        await asyncio.wait_for(signal.wait(), 60)
    assert (await world.store.read(turn_control.read_signals(turn))).stop


async def test_there_is_nothing_to_stop_where_nothing_runs(world: World) -> None:
    assert not await stop(world)
    turn = await begin(world)
    await world.store.transact(turns.settle(turn, [], [], world.now))
    assert not await stop(world)


async def test_an_answer_is_to_one_question(world: World) -> None:
    turn, asked_at = await begin(world), world.now
    await world.store.transact(turns.halt(turn, TurnState.PARKED, asked_at, asked="c1"))
    first = (await world.store.read(turn_control.get_status(KEY, OPERATOR))).question
    (flight,) = await world.store.read(overview.list_open_turns(OPERATOR, 10))
    assert first == flight.question

    async def decide(question: str | None = None, said: datetime | None = None) -> Decision:
        answer = turn_control.answer_question(KEY, world.now, OPERATOR, answer=True, question=question, said=said)
        return await world.store.transact(answer)

    assert await decide(said=asked_at - timedelta(microseconds=1)) is Decision.OTHER
    assert await decide(first, said=asked_at - timedelta(days=1)) is Decision.DONE
    assert await decide(first) is Decision.NOTHING
    (again,) = await world.store.transact(turns.reclaim("w2", world.now, LEASE))
    await world.store.transact(turns.halt(again, TurnState.PARKED, world.now, asked="c1"))
    assert await decide(first, said=world.now) is Decision.OTHER
    assert await decide(said=world.now) is Decision.DONE


async def test_where_a_question_is_only_shown_others_can_neither_approve_nor_deny_it(world: World) -> None:
    turn, there = await begin(world), group("8")
    await world.store.transact(
        turns.halt(turn, TurnState.PARKED, world.now, asked="c1", notices=[outbound_to(there, "May I?")])
    )
    question = (await world.store.read(turn_control.get_status(KEY, OPERATOR))).question

    def decide(key: SessionKey, *, answer: bool) -> Transaction[Decision]:
        other = Principal.speaking(there)
        return turn_control.answer_question(key, world.now, other, answer=answer, question=question, place=there)

    elsewhere = group("8", "-300")
    names = turn_control.answer_question(
        key_of(elsewhere), world.now, OPERATOR, answer=True, question=question, place=elsewhere
    )
    assert await world.store.transact(names) is Decision.NOTHING, "it was not shown there"
    for approves in (True, False):
        with pytest.raises(NotAllowed):
            await world.store.transact(decide(key_of(there), answer=approves))
    with pytest.raises(NotAllowed):
        await world.store.transact(decide(KEY, answer=True))
    assert await world.store.transact(decide(KEY, answer=False)) is Decision.DONE, "in its conversation anyone can deny"


@transaction
def _end_of(turn: Turn) -> Statements[tuple[str, ...]]:
    ((state, error, by),) = yield "SELECT state, error, stopped_by FROM turns WHERE no = ?", (turn.number,)
    return state, error, by


@pytest.mark.parametrize(("asked", "closed"), [("c1", [NOT_RUN]), (None, [])])
async def test_a_turn_that_waits_can_be_ended(world: World, asked: str | None, closed: list[str]) -> None:
    """The calls that nobody approved did not run; a client may have run those that it was asked for."""
    turn = await begin(world)
    await world.store.transact(turns.append_to_turn(turn, [answer("", calls=(ToolCall("c1", "look"),))]))
    await world.store.transact(turns.halt(turn, TurnState.PARKED, world.now, asked=asked))
    dropped = turn_control.abandon_parked(KEY, world.now, note="It was left.", error="left", by="alice")
    assert await world.store.transact(dropped)
    assert await world.store.read(_end_of(turn)) == ("failed", "left", "alice")
    assert await world.texts(turn.session) == ["hello", "", *closed, "It was left."]
    assert not await world.store.transact(dropped)


async def test_what_answers_a_question_is_no_message_that_the_turn_answers(world: World) -> None:
    turn = await begin(world)
    call = ToolCall("c1", ASK_USER, '{"question": "Tea?"}')
    await world.store.transact(turns.append_to_turn(turn, [answer("", calls=(call,))]))
    await world.store.transact(turns.halt(turn, TurnState.PARKED, world.now, asked=call.id))
    number = await world.say("yes, please") or 0
    said = await world.store.read(inbox.get_message(number, OPERATOR))
    assert said
    assert await world.store.transact(turn_control.answer_by_message(KEY, number, world.now, inbound=said.inbound))
    (taken,) = await world.store.transact(turns.reclaim("w2", world.now, LEASE))
    assert [each.inbound.text for each in await world.store.read(turns.list_messages(taken))] == ["hello"]


async def test_a_turn_that_was_cut_off_can_be_stopped_before_it_is_taken_up(world: World) -> None:
    turn = await begin(world)
    await world.store.transact(turns.halt(turn, TurnState.INTERRUPTED, world.now))
    assert await stop(world)
    (taken,) = await world.store.transact(turns.reclaim("w2", world.now, LEASE))
    assert (await world.store.read(turn_control.read_signals(taken))).stop


async def test_a_turn_sees_what_waits_behind_it(world: World) -> None:
    turn = await begin(world)
    await world.say("more")
    await world.say("elsewhere", dm("8"))
    seen = await world.store.read(turn_control.read_signals(turn))
    assert [each.inbound.text for each in seen.waiting] == ["more"]


async def test_what_is_taken_into_a_turn_is_in_its_transcript_and_keeps_the_conversation_awake(world: World) -> None:
    turn = await begin(world)
    world.later(minutes=5)
    number = await world.say("more")
    await world.say("and more")
    for _ in range(2):  # the second time by one who did not hear that it was done
        held = await world.store.transact(turn_control.take_waiting(turn, {number or 0}, world.now))
        assert [each.inbound.text for each in held] == ["hello", "more"]
    assert await world.texts(turn.session) == ["hello", "more"]
    session = await world.store.read(turns.session_of(turn))
    assert session.last_human == world.now
    found = await world.store.read(inbox.get_message(number or 0, OPERATOR))
    assert found
    assert (found.state, found.turn) == (InboxState.IN_TURN, turn.number)


async def test_a_turn_that_was_taken_over_takes_nothing_more(world: World) -> None:
    turn = await begin(world)
    number = await world.say("more")
    world.later(minutes=5)
    assert await world.store.transact(turns.reclaim("w2", world.now, timedelta(minutes=1)))
    with pytest.raises(StaleFence):
        await world.store.transact(turn_control.take_waiting(turn, {number or 0}, world.now))
    assert (await world.store.read(turn_control.get_status(KEY, OPERATOR))).waiting == 1


async def test_the_message_in_which_an_answer_grows_is_known_after_a_crash(world: World) -> None:
    turn = await begin(world)
    await world.store.transact(turn_control.save_draft(turn, "p99"))
    world.later(minutes=5)
    (taken,) = await world.store.transact(turns.reclaim("w2", world.now, LEASE))
    assert taken.draft == "p99"
    await world.store.transact(turn_control.save_draft(turn, "late"))
    session = await world.store.transact(turns.reclaim("w3", world.now, LEASE, alone=True))
    assert [each.draft for each in session] == ["p99"]


async def test_an_answer_that_waits_for_the_request_of_its_draft_is_due_when_that_has_ended(world: World) -> None:
    turn, place = await begin(world), outbound_to(dm(), "hel")
    later = world.now + timedelta(seconds=30)
    await world.store.transact(turns.settle(turn, [answer()], [place], world.now, replies_due=later))
    assert not await world.store.transact(begin_sends("w1", world.now))
    await world.store.transact(turn_control.end_draft(turn, world.now))
    assert await world.store.transact(begin_sends("w1", world.now))


@pytest.mark.parametrize(("when", "edits"), [("before", "p99"), ("after", "p99"), ("never", None)])
async def test_an_answer_replaces_its_draft_whenever_the_receipt_comes(
    world: World, when: str, edits: str | None
) -> None:
    turn, place = await begin(world), outbound_to(dm(), "hel")
    assert await world.store.transact(turn_control.begin_draft(turn, place))
    answer = replace(place, text="hello", repeats_draft=True)
    steps: list[Transaction[object]] = [turns.settle(turn, [], [answer], world.now)]
    if when != "never":
        steps.insert(when == "after", turn_control.save_draft(turn, "p99"))
    for step in steps:
        await world.store.transact(step)
    (owed,) = await world.store.transact(outbox.claim("w1", world.now, LEASE))
    assert (owed.outbound.edits, owed.may_be_duplicate) == (edits, when == "never")


async def test_looking_at_the_status_changes_nothing(world: World) -> None:
    empty = await world.store.read(turn_control.get_status(KEY, OPERATOR))
    assert (empty.session, empty.running_since, empty.waiting) == (None, None, 0)
    turn = await begin(world)
    await world.say("more")
    busy = await world.store.read(turn_control.get_status(KEY, OPERATOR))
    assert busy.session
    assert (busy.session.id, busy.running_since, busy.waiting) == (turn.session, turn.started, 1)
    world.later(hours=1)
    assert await world.store.read(turn_control.get_status(KEY, OPERATOR)) == busy


async def _begin_slowly(world: World, url: str) -> "asyncio.Task[Begun | None]":
    """A turn that has looked at what waits, and is not there yet."""
    await world.say("hello")
    holder = await DRIVER.connect(url)
    await holder.execute("BEGIN; LOCK TABLE turns IN EXCLUSIVE MODE")
    begins = asyncio.create_task(world.begin())
    while not await holder.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110 - the lock is on the server
        await asyncio.sleep(0.01)

    async def let_go() -> "Begun | None":
        await asyncio.sleep(0.2)
        await holder.close()
        return await begins

    return asyncio.create_task(let_go())


async def test_a_turn_that_is_just_beginning_hears_of_a_message(postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    async with await open_store(url) as store:
        world = World(store)
        begins = await _begin_slowly(world, url)
        spoken = dm(message_id="m9")
        inbound = Inbound(source=spoken, text="more", at=world.now)
        with store.listen(key_topic(KEY)) as signal:
            await store.transact(inbox.accept(inbound, key_of(spoken), world.now))
            await asyncio.wait_for(signal.wait(), 60)
        assert await begins


async def test_a_turn_that_is_just_beginning_can_be_stopped(postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    async with await open_store(url) as store:
        world = World(store)
        begins = await _begin_slowly(world, url)
        number = await world.say("/stop", id_="stop")
        assert number
        received = await store.read(inbox.get_message(number, OPERATOR))
        assert received
        stopped = await store.transact(
            commands.run_command(received, _stop(world), ReplyRoutes(), world.now, urgent=True)
        )
        begun = await begins
        assert stopped
        assert begun
        assert (await store.read(turn_control.read_signals(begun.turn))).stop


@transaction
def _stop(world: World) -> Statements[str]:
    yield from turn_control.request_stop(KEY, world.now, by="alice")
    return ""


async def test_what_somebody_cannot_see_is_not_named(world: World) -> None:
    await begin(world)
    seen = await world.store.read(turn_control.get_status(KEY, Principal.speaking(dm("8"))))
    assert seen.session is None
    assert seen.running_since
