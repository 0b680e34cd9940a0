"""Identities become people, people are linked and unlinked, aliases are kept."""

import asyncio

from palaver.domain.key import canonical
from palaver.domain.session import identity_of
from palaver.stores import people, sessions
from palaver.stores.store import Store
from tests.stores.world import NOON, World, dm

TELEGRAM, MATRIX = "telegram:7", "matrix:%40ann%3Ahs"


async def test_first_contact_makes_one_person(store: Store) -> None:
    made = await asyncio.gather(*(store.transact(people.person_of(TELEGRAM, NOON)) for _ in range(20)))
    assert len(set(made)) == 1
    assert await store.transact(people.person_of(MATRIX, NOON)) not in made


async def test_linked_identities_read_each_others_sessions_until_unlinked(store: Store) -> None:
    world = World(store)
    begun = await world.exchange("from telegram", source=dm("7"))
    assert identity_of(dm("7")) == TELEGRAM
    await store.transact(people.link(TELEGRAM, MATRIX, NOON))
    both = await store.read(people.principal_of(MATRIX))
    assert both.identities == {TELEGRAM, MATRIX}
    assert (await store.read(sessions.get_visible(begun.turn.session, both))).id == begun.turn.session
    await store.transact(people.unlink(MATRIX, NOON))
    alone = await store.read(people.principal_of(MATRIX))
    assert alone.identities == {MATRIX}
    persons = [await store.transact(people.person_of(identity, NOON)) for identity in (TELEGRAM, MATRIX)]
    assert len(set(persons)) == 2


async def test_somebody_never_seen_is_only_themselves(store: Store) -> None:
    assert (await store.read(people.principal_of("web:9"))).identities == {"web:9"}


async def test_aliases_lead_to_one_id_and_can_be_corrected(store: Store) -> None:
    await store.transact(people.add_alias("whatsapp", "+49:1\x00", "lid\ud800"))
    await store.transact(people.add_alias("whatsapp", "49@s", "+49:1\x00"))
    known = await store.read(people.aliases("whatsapp"))
    assert canonical("49@s", known) == "lid\ud800"
    await store.transact(people.add_alias("whatsapp", "+49:1\x00", "other"))
    assert canonical("49@s", await store.read(people.aliases("whatsapp"))) == "other"
    assert await store.read(people.aliases("signal")) == {}
