"""What was used is reported as soon as a turn is settled, summed up later, found without going through the history."""

import asyncio
from dataclasses import replace
from datetime import date, timedelta
from zoneinfo import ZoneInfo

import pytest

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.errors import StaleFence
from palaver.model.session import Principal, UsageTotal
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import Turn, TurnState, Usage
from palaver.store.conversations import deletion
from palaver.store.opening import open_store
from palaver.store.people import usage
from palaver.store.people.usage import GroupBy
from palaver.store.privacy.erase_steps import fail_halted_turns
from palaver.store.privacy.footprint import Footprint
from palaver.store.queue import turns
from palaver.store.store import Store
from tests.store.conftest import DRIVER, fresh_store
from tests.store.world import LEASE, NOON, OPERATOR, World, answer, dm, group

ONE = UsageTotal(turns=1, input_tokens=10, output_tokens=5, cost_micros=3)
BERLIN = ZoneInfo("Europe/Berlin")
DAY = timedelta(days=1)


async def test_every_turn_counts_for_the_person_it_answered(store: Store) -> None:
    world = World(store)
    await world.exchange("a", source=dm("7"))
    await world.exchange("b", source=group("7"))
    await world.exchange("c", source=dm("8"))
    since = NOON - DAY
    assert await store.read(usage.total(since, ["telegram:8"])) == ONE
    assert (await store.read(usage.total(since, ["telegram:7"]))).turns == 2
    assert (await store.read(usage.total(since, ["telegram:7", "telegram:8"]))).tokens == 45
    assert (await store.read(usage.total(since))).cost_micros == 9
    assert await store.read(usage.total(since, [])) == UsageTotal()
    assert await store.read(usage.total(NOON + DAY)) == UsageTotal()


async def test_a_turn_that_is_settled_twice_counts_once(store: Store) -> None:
    world = World(store)
    await world.say("a")
    begun = await world.begin()
    assert begun
    settle = turns.settle(begun.turn, [answer()], [], NOON, usage=Usage(model="m", input_tokens=7))
    await store.transact(settle)
    with pytest.raises(StaleFence):
        await store.transact(settle)
    assert await store.read(usage.total(NOON)) == UsageTotal(turns=1, input_tokens=7)


async def test_what_a_turn_has_used_before_it_waited_counts_at_once_and_once(store: Store) -> None:
    world = World(store)
    await world.say("a")
    begun = await world.begin()
    assert begun
    halt = turns.halt(begun.turn, TurnState.PARKED, NOON, usage=Usage(model="m", input_tokens=7, cost_micros=2))
    await store.transact(halt)
    with pytest.raises(StaleFence):
        await store.transact(halt)
    assert await store.read(usage.total(NOON)) == UsageTotal(input_tokens=7, cost_micros=2)
    resumed = await store.transact(turns.resume(begun.turn.number, "w2", NOON, LEASE))
    assert resumed
    await store.transact(turns.settle(resumed, [answer()], [], NOON, usage=Usage(input_tokens=3)))
    assert await store.read(usage.total(NOON)) == UsageTotal(turns=1, input_tokens=10, cost_micros=2)
    session = await store.read(turns.session_of(resumed))
    assert (session.counters.input_tokens, session.counters.cost_micros) == (10, 2)
    row = await store.read(_turn(resumed.number))
    assert row == ("m", 10, 2)


@transaction
def _turn(number: int) -> Statements[tuple[object, ...]]:
    return (yield "SELECT model, input_tokens, cost_micros FROM turns WHERE no = ?", (number,))[0]


async def test_tables_by_person_model_and_day(store: Store) -> None:
    world = World(store)
    for minutes, model, cost in ((0, "small", 1), (10, "small", 1), (60 * 13, "large", 50)):
        world.now = NOON + timedelta(minutes=minutes)
        await world.say("a")
        begun = await world.begin()
        assert begun
        spent = Usage(model=model, input_tokens=1, cost_micros=cost)
        await store.transact(turns.settle(begun.turn, [answer()], [], world.now, usage=spent))
    await world.exchange("b", source=dm("8"))
    by_model = await store.read(usage.totals_by(GroupBy.MODEL, OPERATOR, since=NOON - DAY, zone=BERLIN))
    assert list(by_model) == ["large", "", "small"]
    assert by_model["small"] == UsageTotal(turns=2, input_tokens=2, cost_micros=2)
    by_day = await store.read(usage.totals_by(GroupBy.DAY, OPERATOR, since=NOON - DAY, zone=BERLIN))
    assert [(day, spent.turns) for day, spent in by_day.items()] == [(date(2026, 3, 2), 2), (date(2026, 3, 1), 2)]
    mine = Principal(identities=frozenset({"telegram:8"}))
    assert list(await store.read(usage.totals_by(GroupBy.PERSON, mine, since=NOON - DAY, zone=BERLIN))) == [
        "telegram:8"
    ]
    until = NOON + timedelta(hours=1)
    early = await store.read(usage.totals_by(GroupBy.PERSON, OPERATOR, since=NOON - DAY, until=until, zone=BERLIN))
    assert early == {"telegram:7": UsageTotal(turns=2, input_tokens=2, cost_micros=2)}


@transaction
def _rows(sql: str) -> Statements[list[Row]]:
    return (yield sql, ())


async def _summed(store: Store) -> list[int]:
    """Turns and tokens in the sums themselves."""
    rows = await store.read(_rows("SELECT coalesce(sum(turns), 0), coalesce(sum(input_tokens), 0) FROM usage"))
    return list(map(int, rows[0]))


# The sums follow behind


async def test_a_turn_is_reported_before_and_after_it_is_in_the_sums(store: Store) -> None:
    world = World(store)
    await world.exchange("a", source=dm("7"))
    await world.exchange("b", source=dm("8"))
    await world.say("c")
    begun = await world.begin()
    assert begun
    await store.transact(turns.settle(begun.turn, [], [], NOON))  # nothing was said
    told = usage.totals_by(GroupBy.PERSON, OPERATOR, since=NOON - DAY, zone=BERLIN)
    before = await store.read(told)
    assert await _summed(store) == [0, 0]
    assert await store.transact(usage.sum_ended_turns(least=4)) == 0
    assert await store.transact(usage.sum_ended_turns(least=3)) == 3
    assert await store.transact(usage.sum_ended_turns()) == 0
    assert await _summed(store) == [2, 20]
    assert await store.read(told) == before == {"telegram:7": ONE, "telegram:8": ONE}
    await world.exchange("d", source=dm("8"))
    assert (await store.read(told))["telegram:8"].turns == 2


async def test_sums_are_made_in_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "_TURNS_PER_BATCH", 2)
    world = World(store)
    for word in "abc":
        await world.exchange(word)
    assert [await store.transact(usage.sum_ended_turns()) for _ in range(3)] == [2, 1, 0]
    assert await _summed(store) == [3, 30]


async def test_what_breaks_off_is_summed_up_the_next_time(store: Store) -> None:
    world = World(store)
    await world.exchange("a")

    @transaction
    def broken() -> Statements[None]:
        yield from usage.sum_ended_turns()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.transact(broken())
    assert await store.read(usage.total(NOON - DAY)) == ONE
    assert await store.transact(usage.sum_ended_turns()) == 1
    assert await store.read(usage.total(NOON - DAY)) == ONE


async def test_what_goes_is_in_the_sums_first(store: Store) -> None:
    world = World(store)
    begun = await world.exchange("a")
    await store.transact(deletion.delete(begun.turn.session, OPERATOR, NOON))
    assert await store.read(usage.total(NOON - DAY, ["telegram:7"])) == ONE


@pytest.mark.parametrize("folded", [False, True])
async def test_what_is_used_for_a_turn_after_its_end_counts_once(store: Store, *, folded: bool) -> None:
    world = World(store)
    begun = await world.exchange("a")
    if folded:
        await store.transact(usage.sum_ended_turns())
    await store.transact(turns.charge_title(begun.turn, Usage(model="t", input_tokens=2), NOON))
    assert await store.read(usage.total(NOON - DAY)) == replace(ONE, input_tokens=12)
    await store.transact(usage.sum_ended_turns())
    assert await store.read(usage.total(NOON - DAY)) == replace(ONE, input_tokens=12)
    await store.transact(deletion.delete(begun.turn.session, OPERATOR, NOON))
    assert await store.read(_rows("SELECT * FROM title_usage")) == []


async def test_what_a_turn_used_counts_and_the_turn_only_if_it_was_answered(store: Store) -> None:
    world, spent, call = World(store), Usage(input_tokens=1), ToolCall("c1", "look", "{}")
    for entries, error in (
        ([answer()], "it broke"),
        ([answer("stopped", Role.NOTE)], None),
        ([answer("", calls=(call,))], None),
        ([], None),
        ([answer("partly"), answer("stopped", Role.NOTE)], None),
    ):
        await world.say("a")
        begun = await world.begin()
        assert begun
        await store.transact(turns.settle(begun.turn, entries, [], NOON, usage=spent, error=error))
    assert begun
    assert await store.read(usage.total(NOON - DAY)) == UsageTotal(turns=1, input_tokens=5)
    await store.transact(usage.sum_ended_turns())
    assert await _summed(store) == [1, 5]
    assert (await store.read(turns.session_of(begun.turn))).counters.turns == 1


async def test_what_is_used_for_somebody_who_is_forgotten_still_counts(store: Store) -> None:
    world = World(store)
    await world.say("a")
    begun = await world.begin()
    assert begun
    await store.transact(turns.halt(begun.turn, TurnState.PARKED, NOON, usage=Usage(input_tokens=7)))
    await store.transact(fail_halted_turns(Footprint(identities=frozenset({"telegram:7"})), NOON))
    assert await store.read(usage.total(NOON - DAY)) == UsageTotal(input_tokens=7)


async def test_many_who_settle_and_sum_up_at_once_count_every_turn_once(postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    async with await open_store(url) as one, await open_store(url) as other:
        world = World(one)
        begun = [await _begun(world, str(user)) for user in range(12)]

        async def settle(each: Turn) -> None:
            await one.transact(turns.settle(each, [answer()], [], NOON, usage=Usage(input_tokens=1)))

        async def sum_up(store: Store) -> None:
            for _ in range(6):
                await store.transact(usage.sum_ended_turns())

        await asyncio.gather(*map(settle, begun), sum_up(one), sum_up(other), sum_up(other))
        assert await one.read(usage.total(NOON - DAY)) == UsageTotal(turns=12, input_tokens=12)
        await one.transact(usage.sum_all_ended_turns())
        assert await _summed(other) == [12, 12]


async def _begun(world: World, user: str) -> Turn:
    await world.say("a", dm(user))
    begun = await world.begin(dm(user))
    assert begun
    return begun.turn


async def test_a_turn_that_is_settled_late_under_an_early_position_is_not_passed_over(postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    async with await open_store(url) as store:
        world = World(store)
        early = await _begun(world, "8")
        late = await DRIVER.connect(url)
        transaction = late.transaction()
        await transaction.start()
        for sql in (
            "UPDATE turns SET state = 'done', ended = started, input_tokens = 5, answered = 1 WHERE no = $1",
            "INSERT INTO journal (session_no, kind, first_seq, last_seq, turn_no) VALUES (1, 'settle', 1, 0, $1)",
        ):
            await late.execute(sql, early.number)
        await world.exchange("a")
        assert await store.transact(usage.sum_ended_turns()) == 1
        await transaction.commit()
        await late.close()
        assert await store.read(usage.total(NOON - DAY)) == replace(ONE, turns=2, input_tokens=15)
        assert await store.transact(usage.sum_ended_turns()) == 1
        assert await _summed(store) == [2, 15]
