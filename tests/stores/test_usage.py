"""What was used is summed up as turns are settled, and found without going through the history."""

from datetime import date, timedelta
from zoneinfo import ZoneInfo

import pytest

from palaver.domain.caps import Spent
from palaver.domain.errors import StaleFence
from palaver.domain.lifecycle import TurnState
from palaver.domain.session import Principal
from palaver.domain.turn import Usage
from palaver.ports.usage import By
from palaver.ports.work import Steps, work
from palaver.stores import turns, usage
from palaver.stores.schema import known_migrations
from palaver.stores.store import Store
from tests.stores.world import LEASE, NOON, OPERATOR, World, dm, group

ONE = Spent(turns=1, input_tokens=10, output_tokens=5, cost_micros=3)
BERLIN = ZoneInfo("Europe/Berlin")
DAY = timedelta(days=1)


async def test_every_turn_counts_for_whoever_it_answered(store: Store) -> None:
    world = World(store)
    await world.exchange("a", source=dm("7"))
    await world.exchange("b", source=group("7"))
    await world.exchange("c", source=dm("8"))
    since = NOON - DAY
    assert await store.read(usage.spent(since, ["telegram:8"])) == ONE
    assert (await store.read(usage.spent(since, ["telegram:7"]))).turns == 2
    assert (await store.read(usage.spent(since, ["telegram:7", "telegram:8"]))).tokens == 45
    assert (await store.read(usage.spent(since))).cost_micros == 9
    assert await store.read(usage.spent(since, [])) == Spent()
    assert await store.read(usage.spent(NOON + DAY)) == Spent()


async def test_a_turn_that_is_settled_twice_counts_once(store: Store) -> None:
    world = World(store)
    await world.say("a")
    begun = await world.begin()
    assert begun
    settle = turns.settle(begun.turn, [], [], NOON, usage=Usage(model="m", input_tokens=7))
    await store.transact(settle)
    with pytest.raises(StaleFence):
        await store.transact(settle)
    assert await store.read(usage.spent(NOON)) == Spent(turns=1, input_tokens=7)


async def test_what_a_turn_has_used_before_it_waited_counts_at_once_and_once(store: Store) -> None:
    world = World(store)
    await world.say("a")
    begun = await world.begin()
    assert begun
    halt = turns.halt(begun.turn, TurnState.PARKED, NOON, usage=Usage(model="m", input_tokens=7, cost_micros=2))
    await store.transact(halt)
    with pytest.raises(StaleFence):
        await store.transact(halt)
    assert await store.read(usage.spent(NOON)) == Spent(input_tokens=7, cost_micros=2)
    resumed = await store.transact(turns.resume(begun.turn.number, "w2", NOON, LEASE))
    assert resumed
    await store.transact(turns.settle(resumed, [], [], NOON, usage=Usage(input_tokens=3)))
    assert await store.read(usage.spent(NOON)) == Spent(turns=1, input_tokens=10, cost_micros=2)
    session = await store.read(turns.session_of(resumed))
    assert (session.counters.input_tokens, session.counters.cost_micros) == (10, 2)
    row = await store.read(_turn(resumed.number))
    assert row == ("m", 10, 2)


@work
def _turn(number: int) -> Steps[tuple[object, ...]]:
    return (yield "SELECT model, input_tokens, cost_micros FROM turns WHERE no = ?", (number,))[0]


async def test_tables_by_person_model_and_day(store: Store) -> None:
    world = World(store)
    for minutes, model, cost in ((0, "small", 1), (10, "small", 1), (60 * 13, "large", 50)):
        world.now = NOON + timedelta(minutes=minutes)
        await world.say("a")
        begun = await world.begin()
        assert begun
        spent = Usage(model=model, input_tokens=1, cost_micros=cost)
        await store.transact(turns.settle(begun.turn, [], [], world.now, usage=spent))
    await world.exchange("b", source=dm("8"))
    by_model = await store.read(usage.table(By.MODEL, OPERATOR, since=NOON - DAY, zone=BERLIN))
    assert list(by_model) == ["large", "", "small"]
    assert by_model["small"] == Spent(turns=2, input_tokens=2, cost_micros=2)
    by_day = await store.read(usage.table(By.DAY, OPERATOR, since=NOON - DAY, zone=BERLIN))
    assert [(day, spent.turns) for day, spent in by_day.items()] == [(date(2026, 3, 2), 2), (date(2026, 3, 1), 2)]
    mine = Principal(identities=frozenset({"telegram:8"}))
    assert list(await store.read(usage.table(By.PERSON, mine, since=NOON - DAY, zone=BERLIN))) == ["telegram:8"]
    until = NOON + timedelta(hours=1)
    early = await store.read(usage.table(By.PERSON, OPERATOR, since=NOON - DAY, until=until, zone=BERLIN))
    assert early == {"telegram:7": Spent(turns=2, input_tokens=2, cost_micros=2)}


async def test_what_was_used_before_the_sums_were_kept_is_in_them(store: Store) -> None:
    world = World(store)
    await world.exchange("a")
    before = await store.read(usage.table(By.DAY, OPERATOR, since=NOON - DAY, zone=BERLIN))
    await store.transact(_sum_up_again())
    assert await store.read(usage.table(By.DAY, OPERATOR, since=NOON - DAY, zone=BERLIN)) == before != {}


@work
def _sum_up_again() -> Steps[None]:
    sql = next(each.sql for each in known_migrations() if each.number == 6)
    yield "DELETE FROM used", ()
    yield "INSERT INTO used" + sql.partition("INSERT INTO used")[2].partition(";")[0], ()
