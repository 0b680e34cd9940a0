"""Several forms of one id are one: what was known under one form goes on under another."""

from dataclasses import replace
from datetime import timedelta

import pytest

from palaver.model.feedback import Rating
from palaver.model.memory import MemoryLimits, MemoryScope
from palaver.model.session import Principal
from palaver.model.source import Source, canonical_id, canonical_source, with_participant
from palaver.model.turn import Usage, outbound_to
from palaver.store.conversations import attach, branches, feedback, sessions, titles
from palaver.store.people import aliases, api_tokens, links, memory, people, usage
from palaver.store.people.api_tokens import CredentialKind
from palaver.store.queue import inbox, turns
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.test_attach import rows
from tests.store.world import NOON, OPERATOR, World, answer, dm, group, key_of

OLD, NEW = dm("old"), dm("new")


async def learn(store: Store, alias: str, known_as: str) -> bool:
    return await store.transact(aliases.learn("telegram", alias, known_as, NOON))


async def test_aliases_lead_to_one_id_and_can_be_corrected(store: Store) -> None:
    assert await store.transact(aliases.learn("whatsapp", "+49:1\x00", "lid\ud800", NOON))
    assert await store.transact(aliases.learn("whatsapp", "49@s", "+49:1\x00", NOON))
    assert not await store.transact(aliases.learn("whatsapp", "49@s", "+49:1\x00", NOON))
    known = await store.read(aliases.load_for("whatsapp"))
    assert canonical_id("49@s", known) == "lid\ud800"
    await store.transact(aliases.learn("whatsapp", "+49:1\x00", "other", NOON))
    assert canonical_id("49@s", await store.read(aliases.load_for("whatsapp"))) == "other"
    assert await store.read(aliases.load_for("signal")) == {}
    assert await store.read(aliases.load_all()) == {"whatsapp": await store.read(aliases.load_for("whatsapp"))}


async def test_a_conversation_goes_on_under_the_canonical_id(store: Store) -> None:
    world = World(store)
    begun = await world.exchange("before", source=OLD)
    await learn(store, "old", "new")
    again = await world.exchange("after", source=NEW)
    assert again.turn.session == begun.turn.session
    assert await world.texts(again.turn.session, Principal.speaking(NEW)) == ["before", "yes", "after", "yes"]
    assert (await store.read(people.find_person("telegram:new", OPERATOR))).identities[0].name
    assert await store.read(violations()) == []


async def test_who_takes_part_under_one_id_and_has_left_under_the_other_takes_part(store: Store) -> None:
    """A branch copies what somebody said under another id, who counts as having left it."""
    world, here = World(store), group("9")
    first, second = with_participant(here, "new"), with_participant(here, "old")
    parent = (await world.exchange("before", source=first)).turn.session
    branch = branches.branch(key_of(second), second, OPERATOR, world.now, by="me", from_session=parent)
    made = await store.transact(branch)
    await learn(store, "old", "new")
    assert await world.texts(made.id, Principal.speaking(first)) == ["before", "yes"]


@pytest.mark.parametrize(
    ("steps", "last"),
    [
        ([("old", "mid"), ("mid", "new")], "new"),
        ([("mid", "new"), ("old", "mid")], "new"),
        ([("old", "new"), ("new", "old")], "new"),
        ([("new", "old"), ("old", "new")], "new"),
    ],
    ids=["a chain", "a chain from its end", "a ring", "a ring the other way"],
)
async def test_a_conversation_goes_on_through_chains_and_rings(
    store: Store, steps: list[tuple[str, str]], last: str
) -> None:
    world = World(store)
    begun = await world.exchange("before", source=OLD)
    for alias, known_as in steps:
        await learn(store, alias, known_as)
    spoken = canonical_source(OLD, await store.read(aliases.load_for("telegram")))
    assert spoken.user_id == last
    again = await world.exchange("after", source=spoken)
    assert again.turn.session == begun.turn.session
    assert await store.read(violations()) == []


async def test_a_running_turn_is_answered_under_the_canonical_id(store: Store) -> None:
    world = World(store)
    await world.say("before", OLD)
    begun = await world.begin(OLD)
    await world.say("waits", OLD)
    assert begun
    await learn(store, "old", "new")
    assert await world.begin(NEW) is None
    await store.transact(turns.settle(begun.turn, [answer()], [], NOON))
    again = await world.begin(NEW)
    assert again
    assert again.turn.session == begun.turn.session
    assert [each.inbound.text for each in again.messages] == ["waits"]
    assert await store.read(violations()) == []


async def test_a_message_that_comes_again_under_another_id_is_the_same(store: Store) -> None:
    world = World(store)
    assert await world.say("once", OLD, id_="m")
    await learn(store, "old", "new")
    assert await world.say("once", NEW, id_="m") is None


async def test_a_chat_without_an_id_is_that_of_its_person_under_every_id(store: Store) -> None:
    world = World(store)
    old, new = replace(OLD, chat_id=None), replace(NEW, chat_id=None)
    assert await world.say("once", old, id_="m")
    await world.begin(old)
    assert await world.say("twice", old, id_="both")
    assert await world.say("twice", new, id_="both"), "nobody knows yet that the two are one"
    await learn(store, "old", "new")
    assert await world.say("once", new, id_="m") is None
    senders = await store.read(rows("SELECT DISTINCT identity FROM inbox"))
    assert [tuple(row) for row in senders] == [("telegram:new",)]
    assert await store.read(violations()) == []


async def test_a_command_that_comes_again_under_another_id_is_the_same(store: Store) -> None:
    world = World(store)
    number = await world.say("/help", OLD, id_="m")
    assert number
    await store.transact(inbox.withdraw(number, "answered"))
    await learn(store, "old", "new")
    assert await world.say("/help", NEW, id_="m") is None


async def test_where_both_have_a_conversation_neither_is_lost(store: Store) -> None:
    world = World(store)
    old = await world.exchange("as old", source=OLD)
    new = await world.exchange("as new", source=NEW)
    await world.say("waits", OLD)
    await learn(store, "old", "new")
    again = await world.begin(NEW)
    assert again
    assert again.turn.session == new.turn.session
    me = Principal.speaking(NEW)
    assert (await store.read(sessions.get_visible(old.turn.session, me))).id == old.turn.session
    assert await store.read(violations()) == []


async def test_group_ids_are_not_rewritten_and_members_are(store: Store) -> None:
    world = World(store)
    member, place = group("old", chat="old"), group("new", chat="old")
    begun = await world.exchange("before", source=member)
    await learn(store, "old", "new")
    again = await world.exchange("after", source=place)
    assert again.turn.session == begun.turn.session
    assert key_of(place).chat == "old"


async def test_another_platform_is_not_touched(store: Store) -> None:
    world = World(store)
    other = Source(platform="web", chat_id="old", user_id="old")
    begun = await world.exchange("mine", source=other)
    await learn(store, "old", "new")
    assert (await world.exchange("still", source=other)).turn.session == begun.turn.session


async def test_an_alias_of_somebody_who_is_linked_is_linked(store: Store) -> None:
    world = World(store)
    for source in (OLD, NEW, dm("9", platform="web")):
        await world.exchange("hello", source=source)
    await store.transact(links.link("telegram:old", "web:9", NOON, by="test"))
    await store.transact(links.link("telegram:old", "telegram:new", NOON, by="test"))
    await learn(store, "old", "new")
    both = await store.read(people.principal_of("telegram:new"))
    assert both.identities == {"telegram:new", "web:9"}
    unlinked = await store.transact(links.unlink("web:9", NOON, by="test"))
    assert sorted(map(sorted, unlinked.people)) == [["telegram:new"], ["web:9"]]
    assert (await store.read(people.principal_of("web:9"))).identities == {"web:9"}


async def test_someone_who_attached_a_chat_is_unlinked_from_it_under_the_new_id(store: Store) -> None:
    world = World(store)
    web = dm("9", platform="web")
    begun = await world.exchange("theirs", source=web)
    await world.exchange("mine", source=OLD)
    await store.transact(links.link("telegram:old", "web:9", NOON, by="test"))
    session = await store.read(sessions.get_visible(begun.turn.session, OPERATOR))
    farewell = outbound_to(OLD, "parted")
    await store.transact(attach.attach(key_of(OLD), session, NOON, by="telegram:old", farewell=farewell))
    await learn(store, "old", "new")
    assert await store.read(attach.conversation_of(key_of(NEW))) == key_of(web)
    await store.transact(links.unlink("web:9", NOON, by="test"))
    assert await store.read(attach.conversation_of(key_of(NEW))) == key_of(NEW)
    assert await store.read(violations()) == []


async def test_what_is_kept_of_somebody_is_theirs_under_the_new_id(store: Store) -> None:
    world = World(store)
    mine, limits = MemoryScope(profile="main", identity="telegram:new"), MemoryLimits()
    for source in (NEW, OLD):
        begun = await world.exchange("hello", source=source)
        await store.transact(titles.rename(begun.turn.session, "Plans", OPERATOR))
        await store.transact(feedback.store_rating(begun.turn.number, f"telegram:{source.user_id}", Rating.UP, NOON))
    before = MemoryScope(profile="main", identity="telegram:old")
    await world.say("remember", OLD)
    noting = await world.begin(OLD)
    assert noting
    await store.transact(memory.remember(noting.turn, before, "likes tea", limits, NOON))
    await store.transact(turns.settle(noting.turn, [answer("noted")], [], NOON, usage=Usage(input_tokens=1)))
    await store.transact(usage.sum_all_ended_turns())
    await store.transact(api_tokens.add("digest", CredentialKind.TOKEN, NOON, identity="telegram:old"))
    await learn(store, "old", "new")
    me = await store.read(people.principal_of("telegram:new"))
    assert [note.text for note in await store.read(memory.list_notes(mine))] == ["likes tea"]
    assert (await store.read(usage.total(NOON, me.identities))).input_tokens == 21
    assert await store.read(rows("SELECT DISTINCT identity FROM usage")) == [("telegram:new",)]
    assert await store.read(rows("SELECT owner, title FROM sessions ORDER BY no")) == [
        ("telegram:new", "Plans"),
        ("telegram:new", "Plans #2"),
    ]
    assert await store.read(rows("SELECT turn_no, identity FROM feedback ORDER BY turn_no")) == [
        (1, "telegram:new"),
        (2, "telegram:new"),
    ]
    assert await store.read(rows("SELECT identity FROM api_tokens")) == [("telegram:new",)]
    assert await store.read(violations()) == []


async def test_of_two_ratings_of_an_answer_the_later_one_stays(store: Store) -> None:
    begun = await World(store).exchange("hello", source=OLD)
    for user, rating, later in (("new", Rating.DOWN, 2), ("old", Rating.UP, 1)):
        at = NOON + timedelta(minutes=later)
        await store.transact(feedback.store_rating(begun.turn.number, f"telegram:{user}", rating, at))
    await learn(store, "old", "new")
    assert await store.read(rows("SELECT identity, rating FROM feedback")) == [("telegram:new", Rating.DOWN)]
