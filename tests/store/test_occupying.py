"""A turn in which a conversation is looked after: it holds the conversation, and answers nobody."""

import pytest

from palaver.model.compaction import plan_compaction
from palaver.model.turn import InboxState
from palaver.store.conversations import titles, transcript
from palaver.store.queue import inbox, turns
from palaver.store.store import Store
from tests.store.world import LEASE, NOON, OPERATOR, World, dm, key_of

KEY = key_of(dm())


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def test_nothing_begins_in_a_conversation_that_is_occupied(world: World) -> None:
    assert await world.store.transact(turns.reserve(KEY, NOON)) is None
    await world.exchange("one")
    number = await world.store.transact(turns.reserve(KEY, NOON))
    assert number is not None
    assert await world.store.transact(turns.reserve(KEY, NOON)) is None
    await world.say("two")
    assert await world.begin() is None
    assert await world.store.read(inbox.list_ready(9)) == []
    turn = await world.store.transact(turns.resume(number, "w1", NOON, LEASE))
    assert turn is not None
    assert (turn.attempt, turn.fence) == (1, 1)
    await world.store.transact(turns.settle(turn, [], [], NOON))
    assert await world.begin() is not None


async def test_a_conversation_in_which_somebody_waits_is_not_occupied_for_nobody(world: World) -> None:
    await world.exchange("one")
    received = await world.store.read(inbox.get_message(await world.say("/compress") or 0, OPERATOR))
    assert await world.store.transact(turns.reserve(KEY, NOON)) is None
    assert await world.store.transact(turns.reserve(KEY, NOON, received)) is not None


async def test_it_is_taken_up_at_once_also_where_something_else_just_ends(world: World) -> None:
    await world.exchange("one")
    number = await world.say("/compress")
    received = await world.store.read(inbox.get_message(number or 0, OPERATOR))
    await world.store.transact(turns.reserve(KEY, NOON, received))
    (turn,) = await world.store.transact(turns.reclaim("w1", NOON, LEASE, besides=[KEY]))
    assert [each.number for each in await world.store.read(turns.list_messages(turn))] == [number]
    await world.store.transact(turns.settle(turn, [], [], NOON))
    row = await world.store.read(inbox.get_message(number or 0, OPERATOR))
    assert row is not None
    assert row.state is InboxState.DONE


async def test_one_at_work_here_is_not_taken_from_itself(world: World) -> None:
    await world.say("one")
    await world.begin()
    world.later(hours=1)
    assert await world.store.transact(turns.reclaim("w1", world.now, LEASE, besides=[KEY])) == []
    assert len(await world.store.transact(turns.reclaim("w1", world.now, LEASE))) == 1


async def test_a_summary_that_is_tried_again_stands_once(world: World) -> None:
    begun = [await world.exchange(f"a rather long message, number {number}") for number in range(4)]
    session = begun[0].turn.session
    plan = plan_compaction(await world.store.read(transcript.load_visible(session, OPERATOR)))
    first = await world.store.transact(transcript.compact(KEY, plan, "short", NOON, by="test"))
    again = await world.store.transact(transcript.compact(KEY, plan, "short", NOON, by="test"))
    assert again == first
    assert (await world.texts(session)).count("short") == 1


async def test_a_suggested_title_never_takes_the_place_of_another(world: World) -> None:
    session = (await world.exchange("one")).turn.session
    assert await world.store.transact(titles.suggest_title("nowhere", "x")) is None
    assert await world.store.transact(titles.suggest_title(session, " \n\u200b")) is None
    assert await world.store.transact(titles.suggest_title(session, "A  title\n")) == "A title"
    assert await world.store.transact(titles.suggest_title(session, "Another")) == "A title"
    other = (await world.exchange("two", source=dm(thread_id="9"))).turn.session
    assert await world.store.transact(titles.suggest_title(other, "A title")) == "A title #2"
