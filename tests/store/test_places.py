"""Home channels, and chats that are gone."""

from dataclasses import replace

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.model.access import AccessRole, Effect, Grant
from palaver.model.turn import Outbound
from palaver.store import accounts
from palaver.store.people import access_rules, grants
from palaver.store.queue import outbox
from palaver.store.store import Store
from tests.store.world import NOON, World, begin_sends, cause, dm, group

OPEN = access_rules.load((Grant(role=AccessRole.OWNER),))
GONE = Outbound(platform="telegram", account="b", chat_id="7", text="hello")


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def test_a_platform_has_one_home_for_each_profile_the_last_that_was_set(world: World) -> None:
    await world.store.transact(accounts.set_home("main", dm("1"), NOON, by="alice"))
    await world.store.transact(accounts.set_home("main", group("1"), NOON, by="alice"))
    await world.store.transact(accounts.set_home("main", dm("2", "web"), NOON, by="alice"))
    await world.store.transact(accounts.set_home("work", dm("3"), NOON, by="alice"))
    assert await world.store.read(accounts.list_homes("main", OPEN)) == [group("1"), dm("2", "web")]
    assert len(await world.store.read(accounts.list_configured_homes())) == 3


async def test_the_direct_chat_of_somebody_without_access_is_no_home_any_more(world: World) -> None:
    store, hall = world.store, replace(group("9"), platform="irc")
    for place in (dm("1"), dm("2", "web"), hall):
        await store.transact(accounts.set_home("main", place, NOON, by="alice"))
    block = Grant(effect=Effect.BLOCK, platform="telegram", user_id="1")
    await store.transact(grants.add(block, NOON, by="operator"))
    for rules, left in ((OPEN, [hall, dm("2", "web")]), (access_rules.load(()), [hall])):
        assert await store.read(accounts.list_homes("main", rules)) == left
        assert {home.place for home in await store.read(accounts.list_named_homes("main", rules))} == set(left)
        assert set(await store.read(accounts.list_all_homes(rules))) == set(left)
    assert len(await store.read(accounts.list_configured_homes())) == 3


async def test_that_a_chat_is_gone_is_news_once_until_it_is_back(world: World) -> None:
    async def gone() -> bool:
        return await world.store.transact(accounts.mark_chat_gone(GONE, NOON, "blocked"))

    assert [await gone(), await gone()] == [True, False]
    assert await world.store.transact(accounts.mark_chat_gone(replace(GONE, account="other"), NOON, "blocked"))
    await world.store.transact(accounts.mark_chat_reachable(GONE))
    assert await gone()


async def test_someone_who_sends_knows_that_the_chat_was_gone(world: World) -> None:
    await world.store.transact(accounts.mark_chat_gone(GONE, NOON, "blocked"))
    await world.store.transact(outbox.enqueue(GONE, cause("one"), NOON))
    await world.store.transact(outbox.enqueue(replace(GONE, chat_id="8"), cause("two"), NOON))
    claimed = await world.store.transact(begin_sends("w1", NOON))
    assert {each.outbound.chat_id: each.is_gone for each in claimed} == {"7": True, "8": False}


@transaction
def misdirect() -> Statements[None]:
    """On server one the chat 7 has the id 9; a send to chat 7 of each server names chat 9."""
    moved = "SELECT account, server, chat, '9', 1 FROM outbox WHERE server = 'one'"
    yield f"INSERT INTO chat_moves (account, server, chat, new_chat, since) {moved}", ()
    yield "UPDATE outbox SET chat = '9'", ()


async def test_a_chat_that_moved_on_one_server_takes_no_sends_to_another(world: World) -> None:
    for server in ("one", "two"):
        await world.store.transact(outbox.enqueue(replace(GONE, scope_id=server), cause(server), NOON))
    await world.store.transact(misdirect())
    claimed = await world.store.transact(begin_sends("w1", NOON))
    assert [each.outbound.scope_id for each in claimed] == ["one"]
