"""Sessions that end by themselves, what is owed to them then, and routes nobody uses."""

from datetime import timedelta

import pytest

from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.session import EndReason, Session
from palaver.model.turn import TurnState
from palaver.store.conversations import expiry, history, sessions
from palaver.store.queue import turn_control, turns
from palaver.store.results import Opening
from palaver.store.store import Store
from tests.store.world import IDLE_HOUR, LEASE, NOON, OPERATOR, World, dm, key_of, rules

RULE = IDLE_HOUR.reset_rule(dm())


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def open_one(world: World, user: str = "7") -> Session:
    begun = await world.exchange("hello", source=dm(user))
    return begun.opened.session


async def test_sessions_in_which_nobody_speaks_are_read_page_by_page(world: World) -> None:
    opened: list[str] = []
    for user in ("1", "2", "3", "4"):
        opened.append((await open_one(world, user)).id)
        world.later(minutes=1)
    last, until = None, NOON + timedelta(minutes=2)
    for expected in ([opened[0], opened[1]], [opened[2]], []):
        page = await world.store.read(expiry.list_idle(NOON, until, last, 2))
        assert [session.id for session in page] == expected
        last = page[-1] if page else None
    rest = await world.store.read(expiry.list_idle(until, world.now, None, 9))
    assert [session.id for session in rest] == opened[2:]


async def test_a_session_ends_when_its_time_has_come_and_not_before(world: World) -> None:
    session = await open_one(world)
    world.later(minutes=59)
    assert await world.store.transact(expiry.expire(session, RULE, world.now)) is None
    world.later(minutes=2)
    assert await world.store.transact(expiry.expire(session, RULE, world.now)) is EndReason.IDLE
    assert await world.store.transact(expiry.expire(session, RULE, world.now)) is None


async def test_someone_who_spoke_meanwhile_keeps_it_open(world: World) -> None:
    session = await open_one(world)
    world.later(hours=2)
    await world.exchange("still here")
    assert await world.store.transact(expiry.expire(session, RULE, world.now)) is None


async def test_a_session_in_a_turn_does_not_end(world: World) -> None:
    session = await open_one(world)
    await world.say("go on")
    await world.begin()
    world.later(hours=2)
    assert await world.store.transact(expiry.expire(session, RULE, world.now)) is None


async def test_what_was_said_in_time_is_in_time_however_long_it_waits_behind_a_turn(world: World) -> None:
    await world.say("hello")
    first = await world.begin(rules=IDLE_HOUR)
    assert first
    world.later(minutes=40)
    await world.say("and then?")
    world.later(minutes=30)
    await world.store.transact(turns.settle(first.turn, [], [], world.now))
    second = await world.begin(rules=IDLE_HOUR)
    assert second
    assert second.opened.opening is Opening.REUSED


@pytest.mark.parametrize(("minutes", "opening"), [(-10, Opening.REUSED), (0, Opening.RESET)])
async def test_the_hour_of_a_message_is_when_it_came_not_when_its_turn_begins(
    world: World, minutes: int, opening: Opening
) -> None:
    """Daily resets are at four in the morning."""
    daily = rules(ResetPolicy(mode=ResetMode.DAILY))
    await world.exchange("hello", rules=daily)
    world.later(hours=16, minutes=minutes)
    await world.say("good morning")
    world.later(minutes=20)
    begun = await world.begin(rules=daily)
    assert begun
    assert begun.opened.opening is opening


async def test_a_session_does_not_end_while_something_waits_in_it(world: World) -> None:
    session = await open_one(world)
    world.later(minutes=55)
    await world.say("still here")
    world.later(minutes=10)
    assert await world.store.transact(expiry.expire(session, RULE, world.now)) is None
    begun = await world.begin(rules=IDLE_HOUR)
    assert begun
    assert begun.opened.opening is Opening.REUSED


@pytest.mark.parametrize("allowed", [True, False])
async def test_someone_who_answers_a_question_keeps_the_conversation_awake(world: World, allowed: bool) -> None:
    await world.say("may it?")
    asking = await world.begin()
    assert asking
    await world.store.transact(turns.halt(asking.turn, TurnState.PARKED, world.now, asked="c1"))
    world.later(hours=5)
    assert await world.store.transact(turn_control.answer_question(key_of(dm()), world.now, OPERATOR, answer=allowed))
    (taken,) = await world.store.transact(turns.reclaim("w2", world.now, LEASE))
    await world.store.transact(turns.settle(taken, [], [], world.now))
    world.later(seconds=5)
    assert (await world.exchange("thanks", rules=IDLE_HOUR)).opened.opening is Opening.REUSED


async def ended_one(world: World) -> Session:
    session = await open_one(world)
    assert await owed(world) == []
    await world.store.transact(sessions.end(session.number, EndReason.IDLE, world.now))
    return await world.store.read(sessions.get(session.number))


async def owed(world: World) -> list[str]:
    return [session.id for session in await world.store.read(expiry.list_unfinalised(10))]


async def test_hooks_are_owed_to_what_has_ended_until_they_have_run(world: World) -> None:
    session = await ended_one(world)
    assert await owed(world) == [session.id]
    assert await world.store.transact(expiry.count_finalise_try(session, world.now, tries=3)) == set()
    await world.store.transact(expiry.mark_finalised(session, world.now, done=True, tries=3))
    assert await owed(world) == []
    assert await world.store.transact(expiry.count_finalise_try(session, world.now, tries=3)) is None


@pytest.mark.parametrize("dies", [False, True])
async def test_hooks_that_fail_are_tried_so_often_and_no_more_also_by_ones_that_die(world: World, dies: bool) -> None:
    session = await ended_one(world)
    for _ in range(3):
        assert await owed(world) == [session.id]
        assert await world.store.transact(expiry.count_finalise_try(session, world.now, tries=3)) == set()
        if not dies:
            await world.store.transact(expiry.mark_finalised(session, world.now, done=False, tries=3))
    assert await world.store.transact(expiry.count_finalise_try(session, world.now, tries=3)) is None
    assert await owed(world) == []


async def test_what_was_taken_up_again_meanwhile_and_ended_anew_is_owed_its_hooks_anew(world: World) -> None:
    session = await ended_one(world)
    assert await world.store.transact(expiry.count_finalise_try(session, world.now, tries=3)) == set()
    assert await world.store.transact(history.back(key_of(dm()), world.now, principal=OPERATOR))
    world.later(minutes=1)
    await world.store.transact(sessions.end(session.number, EndReason.IDLE, world.now))
    await world.store.transact(expiry.mark_finalised(session, world.now, done=True, tries=3))
    assert await owed(world) == [session.id]
