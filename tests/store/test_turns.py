"""Accepted once, claimed by one, written under a fence, settled whole."""

import asyncio
from dataclasses import replace

import pytest

from palaver.model.errors import IllegalTransition, SessionBusy, StaleFence
from palaver.model.source import Source
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import Inbound, InboxState, Outbound, OutboxState, TurnState
from palaver.store.conversations import sessions, transcript
from palaver.store.queue import inbox, outbox, turns
from palaver.store.results import Opening
from palaver.store.store import Store
from tests.store.opened import open_session
from tests.store.world import LEASE, NEVER, NOON, OPERATOR, World, answer, begin_sends, dm, key_of

OUT = Outbound(platform="telegram", chat_id="7", text="yes")


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def state_of(world: World, number: int | None) -> InboxState:
    row = await world.store.read(inbox.get_message(number or 0, OPERATOR))
    assert row
    return row.state


async def test_a_redelivered_message_is_accepted_once(world: World) -> None:
    first = await world.say("hello", id_="m1")
    assert first is not None
    assert await world.say("hello", id_="m1") is None
    assert await world.say("hello", dm("8"), id_="m1") is not None
    assert await world.say("hello", dm(account="other"), id_="m1") is not None


async def test_hostile_ids_are_distinguished(world: World) -> None:
    ids = ["a:b", "a%3Ab", "a", "b\x00", "b", "\ud800", "\ud801", " ", "é", "e\u0301", "x" * 5000]
    for id_ in ids:
        assert await world.say("hi", id_=id_) is not None
        assert await world.say("hi", id_=id_) is None
    for user in ids:
        assert await world.say("hi", dm(user)) is not None


async def test_messages_without_an_id_are_all_accepted(world: World) -> None:
    for text in ("one", "one", "two"):
        inbound = Inbound(source=dm(), text=text, at=NOON)
        assert await world.store.transact(inbox.accept(inbound, key_of(dm()), NOON)) is not None


async def test_a_hundred_first_messages_at_once_make_one_session_and_one_turn(world: World) -> None:
    await asyncio.gather(*(world.say(f"message {n}") for n in range(100)))
    begun = await asyncio.gather(*(world.begin() for _ in range(100)))
    turn = [each for each in begun if each]
    assert len(turn) == 1
    assert turn[0].opened.opening is Opening.CREATED
    opened = await asyncio.gather(
        *(
            world.store.transact(open_session(key_of(dm("9")), dm("9"), NOON, NEVER.reset_rule(dm())))
            for _ in range(100)
        )
    )
    assert len({each.session.id for each in opened}) == 1
    assert [each.opening for each in opened].count(Opening.CREATED) == 1


async def test_messages_are_claimed_in_order_of_arrival(world: World) -> None:
    for text in ("one", "two"):
        await world.say(text)
    begun = await world.begin(collects=True)
    await world.say("three")
    assert begun
    assert [each.inbound.text for each in begun.messages] == ["one", "two"]
    await world.store.transact(turns.settle(begun.turn, [answer("both")], [], NOON))
    begun = await world.begin(collects=True)
    assert begun
    assert [each.inbound.text for each in begun.messages] == ["three"]


async def test_one_turn_at_a_time_per_key_others_go_on(world: World) -> None:
    await world.say("one")
    await world.say("two")
    await world.say("elsewhere", dm("8"))
    first = await world.begin()
    assert await world.begin() is None
    assert await world.begin(dm("8")) is not None
    assert first


async def test_claimable_names_who_waits_longest_first(world: World) -> None:
    await world.say("b", dm("8"))
    await world.say("a", dm("7"))
    await world.say("c", dm("9"))
    await world.begin(dm("8"))
    found = await world.store.read(inbox.list_ready(10))
    assert found == [key_of(dm("7")), key_of(dm("9"))]
    assert await world.store.read(inbox.list_ready(1)) == [key_of(dm("7"))]


async def test_a_turn_leaves_its_words_its_counters_and_its_reply(world: World) -> None:
    number = await world.say("question")
    begun = await world.begin()
    assert begun
    assert await state_of(world, number) is InboxState.IN_TURN
    call = ToolCall("c1", "search")
    await world.store.transact(turns.append_to_turn(begun.turn, [answer("", calls=(call,), blob=b"\x00\xff")]))
    await world.store.transact(turns.append_to_turn(begun.turn, [answer("found", Role.TOOL, answers="c1")]))
    await world.store.transact(turns.settle(begun.turn, [answer("so it is")], [OUT, OUT], NOON))
    entries = await world.store.read(transcript.load_visible(begun.turn.session, OPERATOR))
    assert [entry.seq for entry in entries] == [1, 2, 3, 4]
    assert [entry.role for entry in entries] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert entries[0].sender
    assert entries[0].sender.name
    assert entries[0].sender.name.stored() == "name of 7"
    assert entries[1].calls == (call,)
    assert entries[1].blob == b"\x00\xff"
    assert {entry.turn for entry in entries} == {str(begun.turn.number)}
    session = await world.store.read(sessions.get_visible(begun.turn.session, OPERATOR))
    assert (session.counters.entries, session.counters.turns) == (4, 1)
    assert await state_of(world, number) is InboxState.DONE
    for ordinal in (0, 1):
        (owed,) = await world.store.transact(begin_sends("w1", NOON))
        assert (owed.turn, owed.ordinal) == (begun.turn.number, ordinal)
        await world.store.transact(outbox.settle_send(owed, "w1", OutboxState.DELIVERED, receipt="p1"))


async def test_a_failed_turn_fails_its_messages_and_the_queue_goes_on(world: World) -> None:
    number = await world.say("question")
    begun = await world.begin()
    assert begun
    await world.store.transact(turns.settle(begun.turn, [], [], NOON, error="provider down"))
    row = await world.store.read(inbox.get_message(number or 0, OPERATOR))
    assert row
    assert (row.state, row.reason) == (InboxState.FAILED, "provider down")
    session = await world.store.read(sessions.get_visible(begun.turn.session, OPERATOR))
    assert session.counters.turns == 0, "nothing was answered"
    await world.say("again")
    assert await world.begin()


async def test_an_old_fence_writes_nothing(world: World) -> None:
    await world.say("question")
    begun = await world.begin()
    assert begun
    world.later(seconds=61)
    taken = await world.store.transact(turns.reclaim("w2", world.now, LEASE))
    assert [(turn.number, turn.fence, turn.attempt, turn.worker) for turn in taken] == [(begun.turn.number, 2, 2, "w2")]
    late = begun.turn
    assert taken[0].halted == late.lease_until, "it was cut off when nobody extended its lease"
    assert await world.store.read(turns.list_messages(late)) == []
    for work in (
        turns.append_to_turn(late, [answer("too late")]),
        turns.settle(late, [answer("too late")], [OUT], world.now),
        turns.halt(late, TurnState.PARKED, world.now),
    ):
        with pytest.raises(StaleFence, match="Nothing was written"):
            await world.store.transact(work)
    assert await world.texts(late.session) == ["question"]
    assert await world.store.transact(begin_sends("w1", world.now)) == []
    await world.store.transact(turns.settle(taken[0], [answer("in time")], [OUT], world.now))
    assert await world.texts(late.session) == ["question", "in time"]


async def test_a_turn_that_was_lost_with_its_commit_writes_nothing_into_the_one_with_its_number(world: World) -> None:
    """A standby that was promoted without the newest commits gives their numbers again."""
    await world.say("from Bob", dm("8"))
    begun = await world.begin(dm("8"))
    assert begun
    for lost in (replace(begun.turn, started=NOON - LEASE), replace(begun.turn, worker="w2")):
        for work in (
            turns.append_to_turn(lost, [answer("for Ann")]),
            turns.settle(lost, [answer("for Ann")], [OUT], world.now),
            turns.halt(lost, TurnState.PARKED, world.now),
        ):
            with pytest.raises(StaleFence, match="Nothing was written"):
                await world.store.transact(work)
        assert await world.store.transact(turns.extend_leases([lost], world.now, LEASE)) == frozenset()
        assert await world.store.read(turns.state_of(lost)) is None
    assert await world.texts(begun.turn.session) == ["from Bob"]


async def test_a_settled_turn_is_over(world: World) -> None:
    begun = await world.exchange("question")
    with pytest.raises(StaleFence):
        await world.store.transact(turns.append_to_turn(begun.turn, [answer("more")]))
    with pytest.raises(StaleFence):
        await world.store.transact(turns.settle(begun.turn, [answer("again")], [OUT], NOON))
    assert await world.store.transact(turns.resume(begun.turn.number, "w2", NOON, LEASE)) is None
    assert await world.store.transact(turns.extend_leases([begun.turn], NOON, LEASE)) == frozenset()


async def test_a_living_worker_keeps_its_turn(world: World) -> None:
    await world.say("question")
    begun = await world.begin()
    assert begun
    world.later(seconds=50)
    assert await world.store.transact(turns.extend_leases([begun.turn], world.now, LEASE)) == {begun.turn.number}
    world.later(seconds=50)
    assert await world.store.transact(turns.reclaim("w2", world.now, LEASE)) == []


async def test_the_only_gateway_takes_over_at_once(world: World) -> None:
    await world.say("question")
    assert await world.begin()
    assert await world.store.transact(turns.reclaim("w1", world.now, LEASE, alone=True)) == []
    world.later(seconds=1)
    taken = await world.store.transact(turns.reclaim("w2", world.now, LEASE, alone=True))
    assert [(turn.worker, turn.halted) for turn in taken] == [("w2", world.now)]


async def test_a_parked_turn_holds_its_conversation_until_it_is_resumed(world: World) -> None:
    await world.say("question")
    begun = await world.begin()
    assert begun
    await world.store.transact(turns.halt(begun.turn, TurnState.PARKED, NOON))
    await world.say("meanwhile")
    assert await world.begin() is None
    assert await world.store.transact(turns.reclaim("w2", NOON + LEASE * 2, LEASE, alone=True)) == []
    resumed = await world.store.transact(turns.resume(begun.turn.number, "w2", NOON, LEASE))
    assert resumed
    assert (resumed.attempt, resumed.fence, resumed.state) == (2, 2, TurnState.RUNNING)
    await world.store.transact(turns.settle(resumed, [answer("done")], [], NOON))
    assert await world.begin()


async def test_only_legal_steps(world: World) -> None:
    await world.say("question")
    begun = await world.begin()
    assert begun
    with pytest.raises(IllegalTransition):
        await world.store.transact(turns.halt(begun.turn, TurnState.RUNNING, NOON))
    assert await world.store.transact(turns.resume(begun.turn.number, "w2", NOON, LEASE)) is None, "w1 runs it"


async def test_a_refused_message_waits_for_nothing(world: World) -> None:
    stranger = Source(platform="telegram", chat_id="66", user_id="66", message_id="m1")
    inbound = Inbound(source=stranger, text="let me in", at=NOON)
    number = await world.store.transact(inbox.accept(inbound, key_of(stranger), NOON, refused="a stranger"))
    assert await state_of(world, number) is InboxState.REFUSED
    assert await world.begin(stranger) is None
    waiting = await world.say("hello")
    assert await world.store.transact(inbox.refuse(waiting or 0, "changed my mind"))
    assert not await world.store.transact(inbox.refuse(waiting or 0, "twice"))
    refused = await world.store.read(inbox.get_message(waiting or 0, OPERATOR))
    assert refused
    assert refused.inbound.text == "", "nothing is kept of what is not answered"
    assert await world.begin() is None


async def test_a_cancelled_transaction_leaves_nothing(world: World) -> None:
    tasks = [asyncio.create_task(world.say(f"message {n}", id_=f"c{n}")) for n in range(50)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for number, task in enumerate(tasks):
        again = await world.say("once more", id_=f"c{number}")
        if not task.cancelled():
            assert again is None


async def test_secrets_in_tool_output_stay_outside(world: World) -> None:
    secret = "ghp" + "_" + "a1B2" * 10
    await world.say("look")
    begun = await world.begin()
    assert begun
    await world.store.transact(turns.append_to_turn(begun.turn, [answer(f"token {secret}", Role.TOOL, answers="x")]))
    assert secret not in str(await world.texts(begun.turn.session))
    assert "[redacted: github token]" in str(await world.texts(begun.turn.session))


async def test_what_a_turn_works_on_cannot_be_undone(world: World) -> None:
    await world.exchange("one")
    await world.say("two")
    begun = await world.begin()
    assert begun
    with pytest.raises(SessionBusy):
        await world.store.transact(transcript.undo(key_of(dm()), 1, NOON, principal=OPERATOR))
    await world.store.transact(turns.settle(begun.turn, [answer("answer to two")], [], NOON))
    assert await world.store.transact(transcript.undo(key_of(dm()), 1, NOON, principal=OPERATOR))


async def test_an_entry_that_is_written_again_after_a_lost_answer_stands_once(world: World) -> None:
    await world.say("question")
    begun = await world.begin()
    assert begun
    step = turns.append_to_turn(begun.turn, [answer("one"), answer("two")])
    assert await world.store.transact(step) == await world.store.transact(step)
    other = turns.append_to_turn(begun.turn, [answer("two", at=NOON.replace(second=1))])
    await world.store.transact(other)
    assert await world.texts(begun.turn.session) == ["question", "one", "two", "two"]


async def test_it_stands_once_also_if_something_else_was_written_into_the_session_meanwhile(world: World) -> None:
    await world.say("question")
    begun = await world.begin()
    assert begun
    step = turns.append_to_turn(begun.turn, [answer("one")])
    seq = await world.store.transact(step)
    assert await world.store.transact(transcript.append_outside_turn(key_of(dm()), answer("the news")))
    assert await world.store.transact(step) == seq
    assert await world.texts(begun.turn.session) == ["question", "one", "the news"]
