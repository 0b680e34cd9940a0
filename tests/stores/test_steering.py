"""What is said to a turn while it runs."""

import asyncio
from datetime import timedelta

import pytest

from palaver.domain.errors import StaleFence
from palaver.domain.lifecycle import InboxState, TurnState
from palaver.domain.turn import Turn
from palaver.ports.store import key_topic
from palaver.stores import inbox, steering, turns
from palaver.stores.store import Store
from tests.stores.world import LEASE, OPERATOR, World, dm, first, key_of

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
    return await world.store.transact(steering.request_stop(KEY, world.now, by="alice"))


async def test_a_stop_reaches_the_turn_that_runs(world: World) -> None:
    turn = await begin(world)
    assert not (await world.store.read(steering.signals(turn))).stop
    with world.store.listen(key_topic(KEY)) as signal:
        assert await stop(world)
        await asyncio.wait_for(signal.wait(), 5)
    assert (await world.store.read(steering.signals(turn))).stop


async def test_there_is_nothing_to_stop_where_nothing_runs(world: World) -> None:
    assert not await stop(world)
    turn = await begin(world)
    await world.store.transact(turns.settle(turn, [], [], world.now))
    assert not await stop(world)


async def test_a_turn_that_was_cut_off_can_be_stopped_before_it_is_taken_up(world: World) -> None:
    turn = await begin(world)
    await world.store.transact(turns.halt(turn, TurnState.INTERRUPTED, world.now))
    assert await stop(world)
    (taken,) = await world.store.transact(turns.reclaim("w2", world.now, LEASE))
    assert (await world.store.read(steering.signals(taken))).stop


async def test_a_turn_sees_what_waits_behind_it(world: World) -> None:
    turn = await begin(world)
    await world.say("more")
    await world.say("elsewhere", dm("8"))
    seen = await world.store.read(steering.signals(turn))
    assert [each.inbound.text for each in seen.waiting] == ["more"]


async def test_what_is_taken_into_a_turn_is_in_its_transcript_and_keeps_the_conversation_awake(world: World) -> None:
    turn = await begin(world)
    world.later(minutes=5)
    number = await world.say("more")
    await world.say("and more")
    taken = await world.store.transact(steering.steer(turn, first(1), world.now))
    assert [each.inbound.text for each in taken] == ["more"]
    assert await world.texts(turn.session) == ["hello", "more"]
    session = await world.store.read(turns.session_of(turn))
    assert session.last_human == world.now
    found = await world.store.read(inbox.inbox_row(number or 0, OPERATOR))
    assert found
    assert (found.state, found.turn) == (InboxState.IN_TURN, turn.number)


async def test_a_turn_that_was_taken_over_takes_nothing_more(world: World) -> None:
    turn = await begin(world)
    await world.say("more")
    world.later(minutes=5)
    assert await world.store.transact(turns.reclaim("w2", world.now, timedelta(minutes=1)))
    with pytest.raises(StaleFence):
        await world.store.transact(steering.steer(turn, first(1), world.now))
    assert (await world.store.read(steering.status(KEY))).waiting == 1


async def test_the_message_in_which_an_answer_grows_is_known_after_a_crash(world: World) -> None:
    turn = await begin(world)
    await world.store.transact(steering.keep_draft(turn, "p99"))
    world.later(minutes=5)
    (taken,) = await world.store.transact(turns.reclaim("w2", world.now, LEASE))
    assert taken.draft == "p99"
    await world.store.transact(steering.keep_draft(turn, "late"))
    session = await world.store.transact(turns.reclaim("w3", world.now, LEASE, alone=True))
    assert [each.draft for each in session] == ["p99"]


async def test_looking_at_the_status_changes_nothing(world: World) -> None:
    empty = await world.store.read(steering.status(KEY))
    assert (empty.session, empty.running_since, empty.waiting) == (None, None, 0)
    turn = await begin(world)
    await world.say("more")
    busy = await world.store.read(steering.status(KEY))
    assert busy.session
    assert (busy.session.id, busy.running_since, busy.waiting) == (turn.session, turn.started, 1)
    world.later(hours=1)
    assert await world.store.read(steering.status(KEY)) == busy
