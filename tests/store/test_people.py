"""Identities become people at first contact, are found again, and their aliases are followed."""

import asyncio
import random
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from palaver.db.schema import SQLITE, known_migrations, translate
from palaver.model.access import Basis, ChatKind, Effect, Grant, possible_trust
from palaver.model.errors import NotFound
from palaver.model.label import Label
from palaver.model.session import Principal
from palaver.model.source import THREAD, Source
from palaver.store.conversations import sessions, visibility
from palaver.store.conversations.visibility import visible_to
from palaver.store.people import people
from palaver.store.people.access_rules import WITHOUT, AccessRules
from palaver.store.people.grants import GrantCache, GrantTable
from palaver.store.records import json_text
from palaver.store.store import Store
from tests.store.world import NOON, OPERATOR, World, dm, group

TELEGRAM, MATRIX = "telegram:7", "matrix:%40ann%3Ahs"


async def test_first_contact_makes_one_person(store: Store) -> None:
    made = await asyncio.gather(*(store.transact(people.person_of(TELEGRAM, NOON)) for _ in range(20)))
    assert len(set(made)) == 1
    assert await store.transact(people.person_of(MATRIX, NOON)) not in made


async def test_someone_who_speaks_becomes_a_person_under_the_name_they_go_by(store: Store) -> None:
    world = World(store)
    await world.exchange("hello", source=dm("7"))
    await world.exchange("again", source=dm("7"))
    world.later(minutes=1)
    await world.exchange("hello", source=group("8"))
    found = await store.read(people.list_people(OPERATOR))
    assert [[each.identity for each in person.identities] for person in found] == [["telegram:7"], ["telegram:8"]]
    assert [person.name for person in found] == [Label("name of 7"), Label("name of 8")]
    first, second = (person.id for person in found)
    assert [person.id for person in await store.read(people.list_people(OPERATOR, after=first))] == [second]
    assert len(await store.read(people.list_people(OPERATOR, limit=1))) == 1


async def test_a_direct_address_is_a_direct_chat_of_that_very_account(store: Store) -> None:
    world = World(store)
    begun = await world.exchange("hello", source=dm("7"))
    await store.transact(sessions.join(begun.turn.session_number, dm("8")))
    await world.exchange("hello", source=group("8"))
    found = await store.read(people.direct_addresses(["telegram:7", "telegram:8"]))
    assert {identity: source.chat_id for identity, source in found.items()} == {"telegram:7": "7"}


async def test_a_person_is_found_by_id_and_identity_by_the_operator_and_by_themselves(store: Store) -> None:
    await World(store).exchange("hello", source=dm("7"))
    (person,) = await store.read(people.list_people(OPERATOR))
    for name in (person.id, "telegram:7"):
        assert await store.read(people.find_person(name, OPERATOR)) == person
        assert await store.read(people.find_person(name, Principal.speaking(dm("7")))) == person
        with pytest.raises(NotFound):
            await store.read(people.find_person(name, Principal.speaking(dm("8"))))
    assert await store.read(people.list_people(Principal.speaking(dm("7")))) == []


PLACES = (
    dm("7"),
    dm("7", account="second"),
    group("7"),
    group("7", chat='-2","user_id":"'),
    replace(group("7"), account="second", scope_id="s"),
    replace(group("7"), chat_id=None, chat_id_alt="-100"),
    replace(group("7", chat="5"), chat_kind=THREAD, parent_chat_id="-100", thread_id="5"),
    replace(dm("7"), chat_id=None),
    replace(dm("7", platform="web"), user_id="ann"),
)
GRANTS = [
    replace(Grant(effect=effect, basis=basis, platform="telegram"), **place, **who)
    for effect in Effect
    for basis in (Basis.IDENTITY, Basis.PLATFORM_ROLE)
    for who in ({}, {"user_id": "7"})
    for place in (
        {},
        *({"chat_id": chat} for chat in ("-100", "7", '-2","user_id":"')),
        {"account": "second"},
        {"scope_id": "s"},
        {"kind": ChatKind.DM},
        {"kind": ChatKind.GROUP, "account": "second"},
    )
]


async def test_a_key_reads_what_the_rules_say_of_each_chat(store: Store) -> None:
    """And its principal names no session, however many there are."""
    world, made = World(store), dict[str, Source]()
    for place in PLACES:
        made[(await world.exchange("hello", source=place)).turn.session] = place
        await world.exchange("hello", source=replace(dm("8"), user_id="8"))
    identities, chance = frozenset({"telegram:7", "web:ann"}), random.Random(7)  # noqa: S311
    await store.transact(people.person_of("telegram:7", NOON))
    for _ in range(100):
        given = tuple(chance.sample(GRANTS, chance.randint(1, 4)))
        rules = AccessRules(given, GrantTable(configured=given), {}, GrantCache())
        able = {"web:ann": False, "telegram:7": rules.standing("telegram:7") not in WITHOUT}
        placed = tuple((each, rules.reach(each)) for each in sorted(identities))
        seen = visible_to(Principal(identities=identities, placed=placed))
        found = await store.read(visibility.select_sessions(seen.sql, *seen.values))
        wanted = {
            session
            for session, place in made.items()
            if (able["web:ann"] if place.platform == "web" else rules.role(place, *possible_trust(None)))
        }
        assert {session.id for session in found} == wanted, given


async def test_a_key_reads_where_thousands_of_chats_are_allowed(store: Store) -> None:
    session = (await World(store).exchange("hello", source=group("7"))).turn.session
    given = tuple(Grant(platform="telegram", chat_id=str(-number)) for number in range(3000))
    reach = AccessRules(given, GrantTable(configured=given), {}, GrantCache()).reach("telegram:7")
    principal = Principal(identities=frozenset({"telegram:7"}), placed=(("telegram:7", reach),))
    assert (await store.read(store.sessions.get_visible(session, principal))).id == session


def test_what_a_key_reads_costs_no_more_where_many_chats_are_allowed() -> None:
    """As SQLite counts its steps, for 100 sessions."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE sessions (no INTEGER PRIMARY KEY, platform TEXT, origin TEXT)")
    database.execute("CREATE TABLE participants (session_no INTEGER, identity TEXT, left_at INTEGER)")
    for number in range(100):
        origin = json_text({"platform": "telegram", "chat_id": str(-number), "chat_kind": "group"})
        database.execute("INSERT INTO sessions VALUES (?, 'telegram', ?)", (number, origin))
        database.execute("INSERT INTO participants VALUES (?, 'telegram:7', NULL)", (number,))
    database.execute("CREATE INDEX participants_of ON participants (session_no, identity)")
    steps = list[int]()
    for allowed in (20, 2000):
        given = tuple(Grant(platform="telegram", chat_id=str(-number)) for number in range(10, 10 + allowed))
        reach = AccessRules(given, GrantTable(configured=given), {}, GrantCache()).reach("telegram:7")
        seen = visible_to(Principal(identities=frozenset({"telegram:7"}), placed=(("telegram:7", reach),)))
        steps.append(0)

        def count() -> int:
            steps[-1] += 1
            return 0

        database.set_progress_handler(count, 100)
        counted = f"SELECT count(*) FROM sessions s WHERE {seen.sql}"  # noqa: S608 - our own words
        found = database.execute(counted, seen.values).fetchone()
        assert found == (min(90, allowed),)
    database.close()
    assert steps[1] < 5 * steps[0], "to read the list once costs some steps, too"


async def test_a_hostile_name_is_one_line_and_short(store: Store) -> None:
    await store.transact(people.person_of(TELEGRAM, NOON, name="\x00a\u202eb\nc" + "x" * 1_000_000))
    (person,) = await store.read(people.list_people(OPERATOR))
    assert person.name
    assert person.name.stored().startswith("ab c")
    assert len(person.name.stored()) <= 240


async def test_somebody_never_seen_is_only_themselves(store: Store) -> None:
    alone = await store.read(people.principal_for(dm("9", platform="web")))
    assert alone == Principal.speaking(dm("9", platform="web"))
    assert (await store.read(people.principal_of("web:9"))).identities == {"web:9"}


def test_someone_who_took_part_before_there_were_people_is_one_after_the_migration() -> None:
    first, second, *_ = known_migrations()
    with closing(sqlite3.connect(":memory:")) as db:
        for statement in translate(first.sql, SQLITE):
            db.execute(statement)
        db.execute(
            "INSERT INTO sessions (id, key, profile, platform, owner, origin, started, last_human, last_active)"
            " VALUES ('s', 'k', 'main', 'telegram', 'o', '{}', 5, 5, 5)"
        )
        db.execute("INSERT INTO people VALUES ('known', NULL, 1)")
        db.execute("INSERT INTO identities VALUES ('web:9', 'known', NULL, 1)")
        db.executemany("INSERT INTO participants VALUES (?, 1)", [(TELEGRAM,), ("web:9",)])
        for statement in translate(second.sql, SQLITE):
            db.execute(statement)
        found = db.execute("SELECT identity, person, born, created FROM identities ORDER BY identity").fetchall()
    assert found == [(TELEGRAM, f"0-{TELEGRAM}", f"0-{TELEGRAM}", 5), ("web:9", "known", "known", 1)]
