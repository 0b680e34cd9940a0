"""Which worker serves which account, how far it has read, and how gateways start."""

import asyncio
import socket
from dataclasses import replace
from datetime import timedelta

import pytest

from palaver.model.access import AccessRole, Effect, Grant
from palaver.model.errors import StaleFence
from palaver.model.source import Source, account_text
from palaver.model.split import ReplyAccount, ReplyRoutes
from palaver.store import accounts
from palaver.store.accounts import GATEWAY
from palaver.store.store import Store
from tests.store.world import LEASE, World, dm, group


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def hold(world: World, worker: str, account: str | None = "b", *, alone: bool = False) -> int | None:
    return await world.store.transact(accounts.acquire("telegram", account, worker, world.now, LEASE, alone=alone))


async def test_an_account_says_until_when_a_gateway_that_is_gone_holds_it(world: World) -> None:
    for worker, is_gone in ((f"{socket.gethostname()}:{_GONE}:1", True), ("elsewhere:1:1", False)):
        await hold(world, worker, worker)
        (health,) = [each for each in await world.store.read(accounts.list_health(world.now)) if each.account == worker]
        assert health.held_until == (world.now + LEASE if is_gone else None)
        assert health.worker == (None if is_gone else worker)


_GONE = 1 << 22
"""No process has so high a number."""


async def test_an_account_is_held_by_one_until_its_lease_runs_out(world: World) -> None:
    fence = await hold(world, "w1")
    assert fence is not None
    assert await hold(world, "w2") is None
    world.later(seconds=30)
    assert await hold(world, "w1") == fence
    world.later(seconds=45)
    assert await hold(world, "w2") is None
    world.later(seconds=30)
    taken = await hold(world, "w2")
    assert taken is not None
    assert taken > fence
    assert await hold(world, "w1") is None


async def test_of_many_who_want_it_one_gets_it(world: World) -> None:
    fences = await asyncio.gather(*(hold(world, f"w{number}") for number in range(8)))
    assert len([fence for fence in fences if fence is not None]) == 1


async def test_the_only_gateway_need_not_wait_for_a_dead_one(world: World) -> None:
    assert await hold(world, "w1")
    assert await hold(world, "w2", alone=True)


async def test_accounts_of_a_platform_are_apart(world: World) -> None:
    assert await hold(world, "w1", "a") is not None
    assert await hold(world, "w2", "b") is not None
    assert await hold(world, "w3", None) is not None


async def test_what_is_released_is_free_at_once(world: World) -> None:
    assert await hold(world, "w1") is not None
    await world.store.transact(accounts.release("telegram", "b", "w2"))
    assert await hold(world, "w2") is None
    await world.store.transact(accounts.release("telegram", "b", "w1"))
    assert await hold(world, "w2") is not None


async def test_only_who_serves_an_account_moves_its_position(world: World) -> None:
    fence = await hold(world, "w1")
    assert fence is not None
    await world.store.transact(accounts.save_position("telegram", "b", fence, "41"))
    world.later(minutes=5)
    taken = await hold(world, "w2")
    assert taken is not None
    with pytest.raises(StaleFence):
        await world.store.transact(accounts.save_position("telegram", "b", fence, "42"))
    assert await world.store.read(accounts.read_position("telegram", "b")) == "41"
    await world.store.transact(accounts.save_position("telegram", "b", taken, "43"))
    assert await world.store.read(accounts.read_position("telegram", "b")) == "43"
    assert await world.store.read(accounts.read_position("telegram", "other")) is None


async def start(world: World) -> int:
    return await world.store.transact(accounts.count_start(world.now, timedelta(minutes=5)))


async def test_starts_count_within_their_window_until_a_gateway_stands(world: World) -> None:
    assert [await start(world) for _ in range(3)] == [1, 2, 3]
    world.later(minutes=6)
    assert await start(world) == 1
    world.later(seconds=10)
    assert await start(world) == 2
    await world.store.transact(accounts.reset_start_count())
    assert await start(world) == 1


async def test_how_an_account_is_doing_is_known_to_all(world: World) -> None:
    fence = await hold(world, "w1") or 0
    await hold(world, "w1", None)
    await world.store.transact(accounts.acquire(GATEWAY, "sweeper", "w1", world.now, LEASE))
    await world.store.transact(accounts.mark_connected("telegram", "b", fence, world.now))
    whole, named = await world.store.read(accounts.list_health(world.now))
    assert (whole.account, whole.state) == (None, "connecting")
    assert (named.account, named.worker, named.state, named.connected_since) == ("b", "w1", "connected", world.now)
    world.later(seconds=10)
    await world.store.transact(accounts.mark_down("telegram", "b", fence, world.now, "no\u202e\nanswer " * 99))
    down = (await world.store.read(accounts.list_health(world.now)))[1]
    assert (down.state, down.failed_at) == ("connecting", world.now)
    assert down.last_error is not None
    assert down.last_error.startswith("no answer")
    assert len(down.last_error) == 300


async def test_a_connection_ends_with_its_owner(world: World) -> None:
    fence = await hold(world, "w1") or 0
    await world.store.transact(accounts.mark_connected("telegram", "b", fence, world.now))
    world.later(minutes=5)
    (health,) = await world.store.read(accounts.list_health(world.now))
    assert (health.worker, health.state) == (None, "not served")
    taken = await hold(world, "w2") or 0
    await world.store.transact(accounts.mark_connected("telegram", "b", fence, world.now))
    await world.store.transact(accounts.mark_down("telegram", "b", fence, world.now, "late news"))
    (health,) = await world.store.read(accounts.list_health(world.now))
    assert (health.worker, health.state, health.last_error) == ("w2", "connecting", None)
    await world.store.transact(accounts.mark_connected("telegram", "b", taken, world.now))
    assert await hold(world, "w2") == taken
    (health,) = await world.store.read(accounts.list_health(world.now))
    assert health.state == "connected"


async def test_an_owner_is_reached_only_in_a_direct_chat_of_their_own(world: World) -> None:
    owner, admin, blocked = (Grant(platform="telegram", user_id=user, role=AccessRole.OWNER) for user in "789")
    grants = (owner, replace(admin, role=AccessRole.ADMIN), blocked, replace(blocked, effect=Effect.BLOCK))
    grants += (replace(owner, platform="webhook"), replace(owner, platform="irc"))
    mine, elsewhere = dm("7"), dm("7", "irc")
    for source in (mine, elsewhere, group("7"), dm("8"), dm("9"), dm("7", "webhook")):
        await world.exchange("hi", source=source)
    served = {account_text(name, None): ReplyAccount(for_people=name != "webhook") for name in _PLATFORMS}
    routes = ReplyRoutes(accounts=served)
    found = await world.store.read(accounts.owner_chats(grants, routes))
    assert [(chat.platform, chat.chat_id) for chat in found] == [("irc", "7"), ("telegram", "7")]


_PLATFORMS = ("telegram", "irc", "webhook")


async def test_the_latest_chats_of_an_account_are_known_by_its_messages(world: World) -> None:
    def said(chat: str, **changed: str) -> Source:
        return Source(**{"platform": "telegram", "account": "b", "chat_id": chat, "user_id": "7", **changed})

    there = said("1"), said("a:b/2"), said("3", account="other"), said("4", scope_id="s"), said("1"), said("5")
    for source in there:
        await world.say("hi", source)

    async def known(limit: int = 9, server: str | None = None) -> list[str]:
        return await world.store.read(accounts.recent_chats("telegram", "b", limit, server=server))

    assert await known() == ["5", "1", "a:b/2"]
    assert await known(2) == ["5", "1"]
    assert await known(server="s") == ["4"]
