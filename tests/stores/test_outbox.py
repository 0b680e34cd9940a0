"""Everything owed is claimed once and settled with a receipt."""

import asyncio
from datetime import timedelta

import pytest

from palaver.domain.errors import StaleFence
from palaver.domain.lifecycle import OutboxState
from palaver.domain.turn import Delivery, Outbound
from palaver.stores import outbox
from palaver.stores.store import Store
from tests.stores.world import LEASE, NOON, World

NOTICE = Outbound(platform="telegram", chat_id="7", text="a notice", thread_id="5", account="b", reply_to="m1")


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def claim(world: World, worker: str = "w1") -> list[Delivery]:
    return await world.store.transact(outbox.claim(worker, world.now, LEASE))


async def test_a_notice_is_owed_once_and_comes_out_as_it_went_in(world: World) -> None:
    first = await world.store.transact(outbox.owe(NOTICE, "reset:1", NOON))
    assert first is not None
    assert await world.store.transact(outbox.owe(NOTICE, "reset:1", NOON)) is None
    assert await world.store.transact(outbox.owe(NOTICE, "reset:2", NOON)) != first
    claimed = await claim(world)
    assert [each.outbound for each in claimed] == [NOTICE, NOTICE]
    assert [each.turn for each in claimed] == [None, None]


async def test_many_claimers_get_each_send_once(world: World) -> None:
    for number in range(40):
        await world.store.transact(outbox.owe(NOTICE, f"n{number}", NOON))
    claims = await asyncio.gather(
        *(world.store.transact(outbox.claim(f"w{n}", NOON, LEASE, limit=5)) for n in range(12))
    )
    numbers = [each.number for claimed in claims for each in claimed]
    assert len(numbers) == len(set(numbers)) == 40


async def test_notices_owed_at_once_all_get_a_number(world: World) -> None:
    numbers = await asyncio.gather(*(world.store.transact(outbox.owe(NOTICE, f"n{n}", NOON)) for n in range(40)))
    assert len(set(numbers)) == 40
    assert None not in numbers


async def test_delivered_due_again_and_dead(world: World) -> None:
    await world.store.transact(outbox.owe(NOTICE, "n", NOON))
    (sent,) = await claim(world)
    retry = NOON + timedelta(minutes=1)
    await world.store.transact(outbox.settle_send(sent, "w1", OutboxState.DUE, error="rate limit", due=retry))
    assert await claim(world) == []
    world.later(minutes=1)
    (again,) = await claim(world)
    assert (again.attempts, again.error) == (2, "rate limit")
    await world.store.transact(outbox.settle_send(again, "w1", OutboxState.DELIVERED, receipt="p99"))
    assert await claim(world) == []
    with pytest.raises(StaleFence):
        await world.store.transact(outbox.settle_send(again, "w1", OutboxState.DEAD))


async def test_a_claim_whose_owner_is_gone_is_unclear_and_sent_again_marked(world: World) -> None:
    await world.store.transact(outbox.owe(NOTICE, "n", NOON))
    (sent,) = await claim(world)
    assert await world.store.transact(outbox.reclaim_sends("w2", world.now)) == []
    world.later(seconds=61)
    (unclear,) = await world.store.transact(outbox.reclaim_sends("w2", world.now))
    assert unclear.state is OutboxState.UNCLEAR
    assert await claim(world, "w2") == []
    with pytest.raises(StaleFence):
        await world.store.transact(outbox.settle_send(sent, "w1", OutboxState.DELIVERED, receipt="late"))
    assert await world.store.transact(outbox.resolve(unclear.number, OutboxState.DUE, world.now))
    (marked,) = await claim(world, "w2")
    assert marked.may_be_duplicate
    assert not await world.store.transact(outbox.resolve(unclear.number, OutboxState.DUE, world.now))


async def test_a_reply_is_owed_once_per_turn_and_ordinal(world: World) -> None:
    begun = await world.exchange("hello", "hi")
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        await world.store.transact(outbox.owe_replies(begun.turn.number, [NOTICE], NOON))
    assert len(await claim(world)) == 1
