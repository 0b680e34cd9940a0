"""Grants are kept, take each other's place, and leave a row for anything that changed them."""

import asyncio
from datetime import timedelta

import pytest

from palaver.model.access import AccessRole, Basis, Effect, Grant, Verdict
from palaver.model.errors import LastOwner
from palaver.model.source import Trust
from palaver.store.people import access_rules, aliases, grants, links, people
from palaver.store.people.grants import GrantTable
from palaver.store.store import Store
from tests.store.world import NOON, dm

ANN = Grant(platform="telegram", user_id="7")
BEA = Grant(platform="telegram", user_id="8")


async def table(store: Store, known: GrantTable | None = None) -> GrantTable:
    return await store.read(grants.load_table(known or GrantTable()))


async def add(store: Store, grant: Grant, *, force: bool = False) -> int:
    return await store.transact(grants.add(grant, NOON, by="operator", force=force))


async def remove(store: Store, number: int, *, force: bool = False) -> Grant | None:
    return await store.transact(grants.remove(number, NOON, by="operator", force=force))


def owner(grant: Grant, role: AccessRole = AccessRole.OWNER) -> Grant:
    return Grant(platform=grant.platform, user_id=grant.user_id, role=role)


@pytest.mark.parametrize(
    "grant",
    [
        Grant(),
        Grant(effect=Effect.BLOCK, platform="telegram", user_id="6:6"),
        Grant(role=AccessRole.OWNER, platform="matrix", user_id="@ann:hs", chat_id="!r:hs", account="b"),
        Grant(platform="irc", scope_id="irc.example.org:6697", user_id="alice\x00\ud800"),
        Grant(basis=Basis.PLATFORM_ROLE, role=AccessRole.ADMIN, platform="discord"),
        Grant(person="01person"),
    ],
)
async def test_a_grant_comes_back_as_it_was_and_can_be_taken_back(store: Store, grant: Grant) -> None:
    number = await add(store, grant)
    assert (await table(store)).grants == {number: grant}
    assert await remove(store, number, force=True) == grant
    assert await remove(store, number) is None
    assert (await table(store)).grants == {}
    log = await store.read(grants.list_changes(10))
    assert [(change.kind.value, change.by, change.at) for change in log] == [
        ("granted", "operator", NOON),
        ("revoked", "operator", NOON),
    ]
    assert all(change.details == grant.to_json() for change in log)


async def test_what_is_known_is_known_until_something_changes(store: Store) -> None:
    first = await table(store)
    assert await table(store, first) is first
    await add(store, ANN)
    second = await table(store, first)
    assert second is not first
    assert await table(store, second) is second


async def test_another_role_for_the_same_people_takes_the_place_of_the_first(store: Store) -> None:
    await add(store, owner(BEA))
    await add(store, owner(ANN, AccessRole.ADMIN))
    await add(store, Grant(platform="telegram", user_id="7", chat_id="-100"))
    lowered = await add(store, owner(ANN, AccessRole.GUEST))
    roles = {grant.role for grant in (await table(store)).grants.values() if grant.user_id == "7" and not grant.chat_id}
    assert roles == {AccessRole.GUEST}
    assert lowered in (await table(store)).grants
    assert (await store.read(grants.list_changes(1)))[0].details["before"] == "admin"


async def test_the_last_owner_is_not_lost_by_a_slip(store: Store) -> None:
    number = await add(store, owner(ANN))
    before = (await table(store)).grants
    for slip in (remove(store, number), add(store, owner(ANN, AccessRole.ADMIN)), _block(store, ANN), _block(store)):
        with pytest.raises(LastOwner, match="Make somebody else owner first"):
            await slip
    assert (await table(store)).grants == before
    await add(store, owner(BEA))
    assert await remove(store, number) == owner(ANN)
    await _block(store, force=True)


async def _block(store: Store, whom: Grant | None = None, *, force: bool = False) -> None:
    user = whom and whom.user_id
    await add(store, Grant(effect=Effect.BLOCK, platform="telegram", user_id=user), force=force)


async def test_two_who_take_each_others_ownership_at_once_leave_one_owner(store: Store) -> None:
    numbers = [await add(store, owner(ANN)), await add(store, owner(BEA))]
    taken = await asyncio.gather(*(remove(store, number) for number in numbers), return_exceptions=True)
    assert {type(each) for each in taken} == {Grant, LastOwner}
    assert len((await table(store)).grants) == 1


async def test_a_grant_to_a_person_knows_their_accounts(store: Store) -> None:
    person = await store.transact(people.person_of("telegram:7", NOON))
    await store.transact(people.person_of("telegram:8", NOON))
    await add(store, Grant(person=person))
    assert (await table(store)).people == {"telegram:7": person}


@pytest.mark.parametrize("effect", Effect)
async def test_a_grant_to_a_person_holds_for_all_their_accounts(store: Store, effect: Effect) -> None:
    # The younger of two linked people has the id of the elder.
    born = {user: NOON + timedelta(days=age) for age, user in enumerate(("7", "8-lid", "8"))}
    ids = {user: await store.transact(people.person_of(f"telegram:{user}", at)) for user, at in born.items()}
    await add(store, Grant(effect=effect, person=ids["8"]))

    async def verdicts() -> list[Verdict]:
        rules = await store.read(access_rules.load([Grant(platform="telegram")] if effect is Effect.BLOCK else []))
        return [rules.decide(dm(user), Trust()).verdict for user in ("7", "8", "8-lid")]

    theirs = Verdict.REFUSE if effect is Effect.BLOCK else Verdict.ALLOW
    other = Verdict.ALLOW if effect is Effect.BLOCK else Verdict.REFUSE
    assert await verdicts() == [other, theirs, other]
    await store.transact(links.link("telegram:7", "telegram:8", NOON, by="test"))
    assert await verdicts() == [theirs, theirs, other]
    await store.transact(links.unlink("telegram:8", NOON, by="test"))
    assert await verdicts() == [other, theirs, other]
    await store.transact(aliases.learn("telegram", "8", "8-lid", NOON))
    assert await verdicts() == [other, theirs, theirs]
