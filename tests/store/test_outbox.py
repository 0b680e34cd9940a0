"""Everything owed is claimed once and settled with a receipt."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.model.errors import BadArgument, StaleFence
from palaver.model.turn import Delivery, Outbound, OutboxState
from palaver.store.opening import open_store
from palaver.store.queue import outbox, turns
from palaver.store.records import chat_columns, micros
from palaver.store.results import Departure, RepeatSafety
from palaver.store.store import Store
from tests.store.effort import steps_of
from tests.store.world import LEASE, NOON, World, begin_sends, cause

NOTICE = Outbound(platform="telegram", chat_id="7", text="a notice", thread_id="5", account="b", reply_to="m1")


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def claim(world: World, worker: str = "w1") -> list[Delivery]:
    return await world.store.transact(outbox.claim(worker, world.now, LEASE))


async def begin(world: World, worker: str = "w1") -> list[Delivery]:
    return await world.store.transact(begin_sends(worker, world.now))


async def test_a_notice_is_owed_once_and_comes_out_as_it_went_in(world: World) -> None:
    first = await world.store.transact(outbox.enqueue(NOTICE, cause("unclear:1"), NOON))
    assert first is not None
    assert await world.store.transact(outbox.enqueue(NOTICE, cause("unclear:1"), NOON)) is None
    assert await world.store.transact(outbox.enqueue(NOTICE, cause("unclear:2"), NOON)) != first
    (claimed,) = await claim(world)
    assert (claimed.outbound, claimed.turn) == (NOTICE, None)


def to_chat(chat: str, text: str = "a notice") -> Outbound:
    return replace(NOTICE, chat_id=chat, text=text)


async def test_within_a_chat_one_send_after_the_other_in_the_order_they_were_owed(world: World) -> None:
    for number, text in enumerate(("first", "second", "third")):
        await world.store.transact(outbox.enqueue(to_chat("7", text), cause(text), NOON + timedelta(seconds=number)))
    await world.store.transact(outbox.enqueue(to_chat("8", "elsewhere"), cause("elsewhere"), NOON))
    world.later(minutes=1)
    assert [each.outbound.text for each in await claim(world)] == ["elsewhere", "first"]
    assert await claim(world) == []


async def test_a_send_that_waits_for_its_next_try_is_not_overtaken_in_its_chat(world: World) -> None:
    await world.store.transact(outbox.enqueue(to_chat("7", "first"), cause("first"), NOON))
    (first,) = await begin(world)
    await world.store.transact(outbox.enqueue(to_chat("7", "second"), cause("second"), NOON + timedelta(seconds=1)))
    retry = NOON + timedelta(hours=1)
    await world.store.transact(outbox.settle_send(first, "w1", OutboxState.DUE, error="rate limit", due=retry))
    world.later(minutes=1)
    assert await begin(world) == []
    world.later(hours=1)
    assert [each.outbound.text for each in await begin(world)] == ["first"]


async def test_a_worker_claims_only_for_the_accounts_it_serves(world: World) -> None:
    await world.store.transact(outbox.enqueue(NOTICE, cause("n"), NOON))
    assert await world.store.transact(outbox.claim("w1", NOON, LEASE, accounts=["telegram:other"])) == []
    assert await world.store.transact(outbox.claim("w1", NOON, LEASE, accounts=[])) == []
    assert len(await world.store.transact(outbox.claim("w1", NOON, LEASE, accounts=["telegram:b", "web:"]))) == 1


async def test_what_is_due_longest_goes_first_in_any_account(world: World) -> None:
    for number, account in enumerate(("b", "c", "a", "b")):
        notice = replace(to_chat(str(number), str(number)), account=account)
        await world.store.transact(outbox.enqueue(notice, cause(str(number)), NOON + timedelta(seconds=number)))
    world.later(minutes=1)
    served = ["telegram:a", "telegram:b", "telegram:c"]
    for limit, expected in ((1, ["0"]), (2, ["1", "2"]), (9, ["3"])):
        claimed = await world.store.transact(outbox.claim("w1", world.now, LEASE, accounts=served, limit=limit))
        assert [each.outbound.text for each in claimed] == expected


@pytest.mark.parametrize("backlog", ["telegram:other", "telegram:b"])
async def test_a_claim_looks_at_no_more_than_it_takes_however_much_is_due(tmp_path: Path, backlog: str) -> None:
    taken: list[int] = []
    for length in (10, 100):
        path = tmp_path / f"{length}.db"
        async with await open_store(str(path)) as store:
            for number in range(length):
                notice = replace(to_chat(str(number)), account=backlog.partition(":")[2])
                await store.transact(outbox.enqueue(notice, cause(f"n{number}"), NOON))
        served = ["telegram:b", "telegram:c", "web:"]
        taken.append(steps_of(path, outbox.claim("w1", NOON, LEASE, accounts=served, limit=4)))
    assert taken[0] == taken[1]


async def test_a_worker_can_serve_any_number_of_accounts(world: World) -> None:
    await world.store.transact(outbox.enqueue(NOTICE, cause("n"), NOON))
    served = ["telegram:b", *(f"telegram:b{number}" for number in range(600))]
    assert len(await world.store.transact(outbox.claim("w1", NOON, LEASE, accounts=served))) == 1


async def test_many_claimers_get_each_send_once(world: World) -> None:
    for number in range(40):
        await world.store.transact(outbox.enqueue(to_chat(str(number)), cause(f"n{number}"), NOON))
    claims = await asyncio.gather(
        *(world.store.transact(outbox.claim(f"w{n}", NOON, LEASE, limit=5)) for n in range(12))
    )
    numbers = [each.number for claimed in claims for each in claimed]
    assert len(numbers) == len(set(numbers)) == 40


async def test_notices_owed_at_once_all_get_a_number(world: World) -> None:
    numbers = await asyncio.gather(
        *(world.store.transact(outbox.enqueue(NOTICE, cause(f"n{n}"), NOON)) for n in range(40))
    )
    assert len(set(numbers)) == 40
    assert None not in numbers


async def test_delivered_due_again_and_dead(world: World) -> None:
    await world.store.transact(outbox.enqueue(NOTICE, cause("n"), NOON))
    (sent,) = await begin(world)
    retry = NOON + timedelta(minutes=1)
    await world.store.transact(outbox.settle_send(sent, "w1", OutboxState.DUE, error="rate limit", due=retry))
    assert await begin(world) == []
    world.later(minutes=1)
    (again,) = await begin(world)
    assert (again.attempts, again.error) == (2, "rate limit")
    await world.store.transact(outbox.settle_send(again, "w1", OutboxState.DELIVERED, receipt="p99"))
    assert await begin(world) == []
    with pytest.raises(StaleFence):
        await world.store.transact(outbox.settle_send(again, "w1", OutboxState.DEAD))


async def reclaim(world: World, worker: str, *, safe: bool) -> list[Delivery]:
    return await world.store.transact(
        outbox.reclaim_sends(worker, world.now, safe=RepeatSafety(accounts=frozenset({"telegram:b"} if safe else ())))
    )


@transaction
def give_number_again(number: int) -> Statements[None]:
    """As if commits were lost, and another message got the number, the claim and the attempt of this one."""
    yield "UPDATE outbox SET created = created + 1 WHERE id = ?", (number,)


async def test_the_receipt_of_a_lost_send_is_not_that_of_the_next_with_its_number(world: World) -> None:
    await world.store.transact(outbox.enqueue(NOTICE, cause("n"), NOON))
    (sent,) = await begin(world)
    await world.store.transact(give_number_again(sent.number))
    with pytest.raises(StaleFence):
        await world.store.transact(outbox.settle_send(sent, "w1", OutboxState.DELIVERED, receipt="p99"))


async def test_what_can_have_been_sent_before_commits_were_lost_is_marked(world: World) -> None:
    await world.exchange("hello")
    await world.store.transact(outbox.enqueue(to_chat("command"), cause("command:1"), NOON))
    await world.store.transact(outbox.enqueue(to_chat("question"), cause("halt:1"), NOON))
    world.later(minutes=1)
    doubt = world.now
    await world.store.transact(outbox.enqueue(to_chat("before"), cause("n"), NOON))
    await world.store.transact(answer_late(doubt, besides="before"))
    await world.store.transact(outbox.enqueue(to_chat("after"), cause("m"), doubt))
    claimed = await world.store.transact(outbox.claim("w1", world.now, LEASE, doubt=doubt))
    marked = {each.outbound.chat_id: each.may_be_duplicate for each in claimed}
    assert marked == {"7": True, "command": True, "question": True, "before": True, "after": False}
    assert await world.store.transact(outbox.claim("w1", world.now, LEASE, doubt=doubt)) == []


@transaction
def answer_late(at: datetime, *, besides: str) -> Statements[None]:
    """As if what was received before the loss was answered after it."""
    yield "UPDATE outbox SET created = ? WHERE chat <> ?", (micros(at), besides)


async def test_a_claim_whose_owner_is_gone_is_sent_once_more_marked(world: World) -> None:
    await world.store.transact(outbox.enqueue(NOTICE, cause("n"), NOON))
    (sent,) = await begin(world)
    assert await reclaim(world, "w2", safe=False) == []
    world.later(seconds=61)
    assert [each.number for each in await reclaim(world, "w2", safe=False)] == [sent.number]
    with pytest.raises(StaleFence):
        await world.store.transact(outbox.settle_send(sent, "w1", OutboxState.DELIVERED, receipt="late"))
    (marked,) = await begin(world, "w2")
    assert marked.may_be_duplicate


async def test_what_was_only_claimed_goes_out_unmarked_when_its_owner_is_gone(world: World) -> None:
    await world.store.transact(outbox.enqueue(NOTICE, cause("n"), NOON))
    (claimed,) = await claim(world)
    world.later(seconds=61)
    assert await reclaim(world, "w2", safe=False) == []
    with pytest.raises(StaleFence):
        await world.store.transact(outbox.begin_send(claimed, "w1", world.now + LEASE))
    (again,) = await begin(world, "w2")
    assert (again.attempts, again.may_be_duplicate) == (1, False)


async def test_what_was_kept_back_goes_out_unmarked_when_its_owner_is_gone(world: World) -> None:
    await world.store.transact(outbox.enqueue(NOTICE, cause("n"), NOON))
    (sent,) = await begin(world)
    kept_back = {Departure("send", sent.number, attempt, "w1") for attempt in (1, 2)}
    for worker, lost in (("w2", []), ("w3", [sent.number])):  # what w1 kept back, w2 can have sent
        world.later(seconds=61)
        reclaim_sends = outbox.reclaim_sends(worker, world.now, safe=RepeatSafety(), kept_back=kept_back)
        assert [each.number for each in await world.store.transact(reclaim_sends)] == lost
        (again,) = await begin(world, worker)
        assert again.may_be_duplicate is bool(lost)


async def test_a_send_that_crashes_make_unclear_is_repeated_three_times(world: World) -> None:
    await world.store.transact(outbox.enqueue(NOTICE, cause("n"), NOON))
    number = None
    for times in range(4):
        (sent,) = await begin(world, f"w{times}")
        number = sent.number
        assert sent.times_unclear == times
        world.later(seconds=61)
        assert len(await reclaim(world, f"w{times + 1}", safe=False)) == 1
    assert await claim(world) == []
    assert await world.store.transact(outbox.settle_unclear(number or 0, OutboxState.DUE, world.now))
    (again,) = await begin(world)
    assert again.may_be_duplicate
    await world.store.transact(outbox.settle_send(again, "w1", OutboxState.DEAD, error="refused"))
    once_more = outbox.settle_by_hand([again.number], OutboxState.DEAD, OutboxState.DUE, world.now)
    assert await world.store.transact(once_more) == [again.number]
    (again,) = await begin(world)
    assert again.may_be_duplicate, "it may have arrived long before it was given up"


async def test_a_reconnect_hurries_no_possible_duplicate_and_nothing_that_the_platform_put_off(world: World) -> None:
    later = world.now + timedelta(hours=1)
    for chat in ("paused", "unclear", "put off", "put off before"):
        await world.store.transact(outbox.enqueue(to_chat(chat), cause(chat), NOON))
    sent = {each.outbound.chat_id: each for each in await begin(world)}
    settle = partial(outbox.settle_send, worker="w1", state=OutboxState.DUE, due=later)
    await world.store.transact(settle(sent["paused"]))
    await world.store.transact(
        outbox.mark_unclear(sent["unclear"], "w1", later, safe=False, error="cut off", crashed=True)
    )
    await world.store.transact(settle(sent["put off"], rate_limited=True))
    await world.store.transact(settle(sent["put off before"], rate_limited=True, due=world.now))
    (again,) = await begin(world)
    await world.store.transact(settle(again))
    elsewhere = replace(to_chat("elsewhere"), account="c")
    await world.store.transact(outbox.enqueue(elsewhere, cause("elsewhere"), later))
    await world.store.transact(outbox.end_pauses("telegram", "b", world.now))
    assert {each.outbound.chat_id for each in await claim(world)} == {"paused", "put off before"}


async def test_what_matters_only_now_is_not_repeated(world: World) -> None:
    await world.store.transact(outbox.enqueue(replace(NOTICE, is_passing=True), cause("n"), NOON))
    (sent,) = await begin(world)
    world.later(seconds=61)
    await reclaim(world, "w2", safe=False)
    found = await world.store.read(outbox.get_delivery(sent.number))
    assert found
    assert (found.state, found.may_be_duplicate) == (OutboxState.DELIVERED, False)


async def test_a_send_that_was_begun_by_a_commit_without_an_answer_is_begun_once(world: World) -> None:
    await world.store.transact(outbox.enqueue(NOTICE, cause("n"), NOON))
    (claimed,) = await claim(world)
    step, other = (outbox.begin_send(claimed, "w1", world.now + more) for more in (LEASE, 2 * LEASE))
    begun = await world.store.transact(step)
    assert await world.store.transact(step) == begun
    with pytest.raises(StaleFence):
        await world.store.transact(other)
    await world.store.transact(outbox.settle_send(begun, "w1", OutboxState.DELIVERED, receipt="p"))


async def test_a_chat_that_is_not_free_keeps_what_is_due(world: World) -> None:
    for chat in ("7", "8", "9"):
        for text in ("first", "second"):
            await world.store.transact(outbox.enqueue(to_chat(chat, text), cause(chat + text), NOON))
    world.later(seconds=1)
    here, there, elsewhere, empty = (chat_columns(to_chat(chat)) for chat in ("7", "8", "9", "10"))
    besides = [here, there, elsewhere, empty]
    for served in (["telegram:b"], ["web:", "telegram:b"], None):
        claimed = outbox.claim("w1", world.now, LEASE, accounts=served, besides=besides)
        assert await world.store.transact(claimed) == []
    assert await world.store.read(outbox.list_owed(besides, world.now)) == {here, there, elsewhere}
    assert await world.store.read(outbox.list_owed(besides, NOON - LEASE)) == set()
    (claimed,) = await world.store.transact(outbox.claim("w1", world.now, LEASE, besides=[here, elsewhere, empty]))
    assert (claimed.outbound.chat_id, claimed.outbound.text) == ("8", "first")
    assert await world.store.read(outbox.list_owed([here, there], world.now)) == {here}


async def test_unclear_twice_is_left_to_a_person_and_holds_nothing_up(world: World) -> None:
    await world.store.transact(outbox.enqueue(NOTICE, cause("n"), NOON))
    await world.store.transact(outbox.enqueue(NOTICE, cause("next"), NOON + timedelta(seconds=1)))
    (once,) = await begin(world)
    await world.store.transact(outbox.mark_unclear(once, "w1", world.now, safe=False, error="cut"))
    (sent,) = await begin(world)
    await world.store.transact(outbox.mark_unclear(sent, "w1", world.now, safe=False, error="cut"))
    found = await world.store.read(outbox.get_delivery(sent.number))
    assert found
    assert (found.state, found.error) == (OutboxState.UNCLEAR, "cut")
    world.later(seconds=1)
    (following,) = await begin(world)
    assert following.number != sent.number
    assert await world.store.transact(outbox.settle_unclear(sent.number, OutboxState.DELIVERED, world.now))
    assert not await world.store.transact(outbox.settle_unclear(sent.number, OutboxState.DUE, world.now))


async def test_unclear_sends_are_reported_until_a_notice_has_said_so(world: World) -> None:
    async def lose(chat: str) -> int:
        number = await world.store.transact(outbox.enqueue(to_chat(chat), cause(f"command:{chat}"), world.now))
        for _ in range(2):
            (sent,) = await begin(world)
            await world.store.transact(outbox.mark_unclear(sent, "w1", world.now, safe=False, error="cut"))
        return number or 0

    async def unreported() -> list[int]:
        return [each.number for each in await world.store.read(outbox.list_unreported(world.now))]

    first = await lose("1")
    assert await unreported() == [first]
    world.later(minutes=1)
    await world.store.transact(outbox.enqueue(to_chat("home"), cause("unclear:this hour"), world.now))
    assert await unreported() == []
    (notice,) = await begin(world)
    await world.store.transact(outbox.settle_send(notice, "w1", OutboxState.DELIVERED, receipt="p"))
    world.later(minutes=1)
    second = await lose("2")
    assert await unreported() == [second]


async def test_where_sending_twice_shows_once_it_is_sent_again_unmarked(world: World) -> None:
    await world.store.transact(outbox.enqueue(NOTICE, cause("n"), NOON))
    for _ in range(3):
        (sent,) = await begin(world)
        assert not sent.may_be_duplicate
        world.later(seconds=61)
        assert len(await reclaim(world, "w2", safe=True)) == 1


async def test_a_reply_is_owed_once_per_turn_and_ordinal(world: World) -> None:
    begun = await world.exchange("hello", "hi")
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        await world.store.transact(outbox.enqueue_replies(begun.turn.number, [NOTICE], NOON))
    assert len(await claim(world)) == 1


async def test_what_waits_for_a_chat_can_be_hastened(world: World) -> None:
    others = {"chat": replace(NOTICE, chat_id="another"), "account": replace(NOTICE, account="c")}
    for name, notice in {"here": NOTICE, **others}.items():
        await world.store.transact(outbox.enqueue(notice, cause(name), NOON))
    for sent in await begin(world):
        later = NOON + timedelta(hours=1)
        await world.store.transact(outbox.settle_send(sent, "w1", OutboxState.DUE, error="away", due=later))
    assert await begin(world) == []
    with world.store.listen(outbox.OUTBOX) as owed:
        await world.store.transact(outbox.make_due_now(NOTICE.platform, NOTICE.account, NOTICE.chat_id, world.now))
        await asyncio.wait_for(owed.wait(), 60)
    assert [sent.outbound for sent in await begin(world)] == [NOTICE]


async def test_parts_that_are_owed_at_once_come_in_their_order(world: World) -> None:
    parts = [to_chat("7", text) for text in ("one", "two", "three")]
    await world.store.transact(outbox.enqueue_parts(parts, cause("command:1"), NOON))
    world.later(seconds=1)
    for part in parts:
        assert await world.store.read(outbox.has_pending(part))
        (sent,) = await begin(world)
        assert sent.outbound == part
        await world.store.transact(outbox.settle_send(sent, "w1", OutboxState.DELIVERED, receipt="p"))
    assert not await world.store.read(outbox.has_pending(parts[0]))


async def test_what_cannot_take_the_place_of_its_draft_is_due_as_a_message_of_its_own(world: World) -> None:
    await world.store.transact(outbox.enqueue(replace(NOTICE, edits="draft"), cause("n"), NOON))
    (sent,) = await begin(world)
    await world.store.transact(
        outbox.resend_as(sent, replace(sent.outbound, edits=None), "w1", world.now, error="too old")
    )
    (again,) = await begin(world)
    assert (again.outbound, again.may_be_duplicate) == (NOTICE, False)
    with pytest.raises(StaleFence):
        await world.store.transact(outbox.resend_as(sent, sent.outbound, "w1", world.now, error="too late"))


async def test_a_worker_whose_clock_runs_behind_does_not_overtake(world: World) -> None:
    await world.store.transact(outbox.enqueue(to_chat("7", "first"), cause("first"), NOON))
    await world.store.transact(outbox.enqueue(to_chat("7", "second"), cause("second"), NOON - timedelta(seconds=2)))
    (first,) = await begin(world)
    assert first.outbound.text == "first"
    await world.store.transact(outbox.settle_send(first, "w1", OutboxState.DELIVERED, receipt="1"))
    (second,) = await begin(world)
    assert second.outbound.text == "second"


async def test_a_turn_never_takes_the_numbers_of_the_next(world: World) -> None:
    await world.say("hello")
    begun = await world.begin()
    assert begun
    with pytest.raises(BadArgument, match="too many replies"):
        turns.settle(begun.turn, [], [NOTICE] * (outbox.REPLIES + 1), NOON)
    await world.store.transact(turns.settle(begun.turn, [], [NOTICE] * outbox.REPLIES, NOON))
    await world.exchange("and the next")
