"""Attached places in the store: exact under any order of steps, also of several workers at once."""

import asyncio
from dataclasses import replace

import pytest

from palaver.db.transaction import Row, Statements, Transaction, transaction
from palaver.model.errors import BadArgument, NotFound
from palaver.model.key import SessionKey
from palaver.model.session import EndReason, Principal, Session
from palaver.model.turn import Inbound, outbound_to
from palaver.store.conversations import attach, handoff, history, sessions
from palaver.store.queue import inbox
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.speech import topic
from tests.store.world import World, dm, key_of

DESK, PHONE = dm("desk"), dm("phone")
ME = Principal(identities=frozenset({"telegram:desk", "telegram:phone"}))
STRANGER = Principal(identities=frozenset({"telegram:stranger"}))


@transaction
def rows(sql: str, *values: str) -> Statements[list[Row]]:
    return (yield sql, values)


@transaction
def _attach(session: str, place: SessionKey, principal: Principal, world: World) -> Statements[None]:
    found = yield from attach.find_attachable(session, place, principal)
    yield from attach.attach(place, found, world.now, by="me", farewell=outbound_to(PHONE, "parted"))


def attach_phone(world: World, session: str, principal: Principal = ME) -> Transaction[None]:
    return _attach(session, key_of(PHONE), principal, world)


async def waiting(world: World) -> list[tuple[str, str | None]]:
    return [tuple(row) for row in await world.store.read(rows("SELECT key, place FROM inbox WHERE state = 'waiting'"))]


async def healthy(world: World) -> bool:
    return await world.store.read(violations()) == []


@pytest.fixture
async def world(store: Store) -> World:
    """Where somebody else has attached a chat of theirs to a conversation of theirs."""
    world = World(store)
    session = (await world.exchange("theirs", source=dm("desk2"))).turn.session
    they = Principal(identities=frozenset({"telegram:desk2"}))
    await store.transact(_attach(session, key_of(topic("2")), they, world))
    return world


async def test_what_is_said_in_an_attached_place_is_said_to_the_conversation(world: World) -> None:
    session = (await world.exchange("at the desk", source=DESK)).turn.session
    await world.say("before", PHONE)
    await world.store.transact(attach_phone(world, session))
    await world.say("after", PHONE)
    desk, phone = key_of(DESK).text, key_of(PHONE).text
    assert await waiting(world) == [(desk, phone), (desk, phone)]
    refused = Inbound(source=PHONE, text="no", at=world.now)
    await world.store.transact(inbox.accept(refused, key_of(PHONE), world.now, refused="a reason"))
    found = await world.store.read(rows("SELECT key, place FROM inbox WHERE state = 'refused'"))
    assert [tuple(row) for row in found] == [(desk, phone)], "what was refused was said to it, too"
    assert await world.store.read(attach.conversation_of(key_of(PHONE))) == key_of(DESK)
    assert await healthy(world)
    await world.store.transact(attach.detach(key_of(PHONE), world.now))
    assert await waiting(world) == [(phone, None), (phone, None)]
    assert await healthy(world)


async def test_only_what_goes_on_elsewhere_and_is_seen_can_be_attached_to(world: World) -> None:
    session = (await world.exchange("at the desk", source=DESK)).turn.session
    with pytest.raises(NotFound):
        await world.store.transact(attach_phone(world, session, STRANGER))
    mine = (await world.exchange("here", source=PHONE)).turn.session
    with pytest.raises(BadArgument, match="another chat"):
        await world.store.transact(attach_phone(world, mine))
    other = await world.store.transact(sessions.reset(key_of(DESK), DESK, world.now, by="me"))
    with pytest.raises(BadArgument, match="/resume"):
        await world.store.transact(attach_phone(world, session))
    elsewhere = (await world.exchange("in another profile", source=replace(DESK, profile="work"))).turn.session
    with pytest.raises(BadArgument, match="another chat"):
        await world.store.transact(attach_phone(world, elsewhere))
    await world.store.transact(attach_phone(world, other.id))
    assert await healthy(world)


async def test_a_conversation_is_shared_by_those_who_are_in_it_now(world: World) -> None:
    begun = await world.exchange("at the desk", source=DESK)
    number, session = begun.turn.session_number, await world.store.read(sessions.get_visible(begun.turn.session, ME))
    assert not await world.store.read(attach.is_shared(session))
    await world.store.transact(sessions.join(number, dm("stranger")))
    assert await world.store.read(attach.is_shared(session))
    await world.store.transact(
        rows("UPDATE participants SET left_at = 1 WHERE identity = ? RETURNING 1", "telegram:stranger")
    )
    assert not await world.store.read(attach.is_shared(session))


async def test_two_places_are_not_attached_crosswise(world: World) -> None:
    """Not to a conversation whose own place is attached elsewhere."""
    desk = (await world.exchange("at the desk", source=DESK)).turn.session
    phone = (await world.exchange("on the phone", source=PHONE)).turn.session
    await world.store.transact(attach_phone(world, desk))
    with pytest.raises(BadArgument, match="/detach in the other chat first"):
        await world.store.transact(_attach(phone, key_of(DESK), ME, world))
    await world.store.transact(attach.detach(key_of(PHONE), world.now))
    await world.store.transact(_attach(phone, key_of(DESK), ME, world))
    await world.say("to the phone", DESK)
    assert [key for key, _ in await waiting(world)] == [key_of(PHONE).text]
    assert await healthy(world)


async def test_no_place_is_attached_by_way_of_another(world: World) -> None:
    """Not from a place that something is attached to: it would be spoken to from there, and no more from itself."""
    desk = (await world.exchange("at the desk", source=DESK)).turn.session
    third = (await world.exchange("at the third", source=dm("third"))).turn.session
    me = Principal(identities=ME.identities | {"telegram:third"})
    await world.store.transact(attach_phone(world, desk))
    with pytest.raises(BadArgument, match="/detach in the other chat first"):
        await world.store.transact(_attach(third, key_of(DESK), me, world))
    await world.store.transact(attach.detach(key_of(PHONE), world.now))
    await world.store.transact(_attach(third, key_of(DESK), me, world))
    assert await healthy(world)


async def test_a_chain_is_not_made_by_two_at_once(world: World) -> None:
    desk = (await world.exchange("at the desk", source=DESK)).turn.session
    third = (await world.exchange("at the third", source=dm("third"))).turn.session
    me = Principal(identities=ME.identities | {"telegram:third"})
    links = attach_phone(world, desk), _attach(third, key_of(DESK), me, world)
    outcomes = await asyncio.gather(*map(world.store.transact, links), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes if outcome is not None] == [BadArgument]
    assert await healthy(world)


async def test_messages_and_moves_at_once_leave_nothing_in_the_wrong_line(world: World) -> None:
    session = (await world.exchange("at the desk", source=DESK)).turn.session
    store = world.store

    async def move() -> None:
        await store.transact(attach_phone(world, session))
        await store.transact(attach.detach(key_of(PHONE), world.now))
        await store.transact(attach_phone(world, session))

    async def speak(number: int) -> None:
        source = dm("phone", message_id=f"n{number}")
        await store.transact(inbox.accept(Inbound(source=source, text="x", at=world.now), key_of(PHONE), world.now))

    await asyncio.gather(move(), *map(speak, range(12)))
    assert set(await waiting(world)) == {(key_of(DESK).text, key_of(PHONE).text)}
    assert len(await waiting(world)) == 12
    assert await healthy(world)


async def test_two_at_once_attach_a_place_to_one(world: World) -> None:
    first = (await world.exchange("one", source=DESK)).turn.session
    second = (await world.exchange("two", source=dm("third"))).turn.session
    me = Principal(identities=ME.identities | {"telegram:third"})
    await asyncio.gather(
        *(world.store.transact(attach_phone(world, session, me)) for session in (first, second)), return_exceptions=True
    )
    assert len(await world.store.read(rows("SELECT place FROM attached_chats"))) == 2, "that of somebody else, and one"
    standing = await world.store.read(rows("SELECT no FROM operations WHERE kind = 'attach' AND undone_at IS NULL"))
    assert len(standing) == 2


async def test_after_the_clock_was_set_back_nobody_reads_what_was_before_they_were_attached(world: World) -> None:
    await world.exchange("private", source=DESK)
    fresh = await world.store.transact(sessions.reset(key_of(DESK), DESK, world.now, by="me"))
    world.later(hours=-1)
    await world.store.transact(attach_phone(world, fresh.id))
    await world.store.transact(history.back(key_of(DESK), world.now, principal=ME))
    assert await world.store.read(attach.conversation_of(key_of(PHONE))) == key_of(PHONE)
    assert await healthy(world)


# Handing off


async def handed_off(world: World) -> tuple[Session, int]:
    begun = await world.exchange("at the desk", source=DESK)
    session = begun.opened.session
    opening = outbound_to(PHONE, "it comes")
    await world.store.transact(handoff.start(session, DESK, PHONE, opening, world.now, by="me"))
    (operation,) = await world.store.read(rows("SELECT no FROM operations WHERE kind = 'handoff'"))
    return session, operation[0]


def arrive(world: World, number: int) -> Transaction[Session | None]:
    told = outbound_to(DESK, "told")
    return handoff.complete(number, key_of(PHONE), PHONE, world.now, recalled=told, returned=told)


async def test_on_its_way_it_is_in_neither_place(world: World) -> None:
    session, number = await handed_off(world)
    assert await world.store.read(sessions.open_by_key(key_of(DESK))) is None
    fresh = await world.exchange("meanwhile", source=DESK)
    assert fresh.opened.session.id != session.id
    assert await world.store.transact(arrive(world, number))
    here = await world.store.read(sessions.open_by_key(key_of(PHONE)))
    assert here
    assert here.id == session.id
    assert await healthy(world)
    undone = await world.store.transact(history.back(key_of(DESK), world.now, principal=ME))
    assert undone
    back = await world.store.read(sessions.open_by_key(key_of(DESK)))
    assert back
    assert back.id == session.id
    assert await world.store.read(sessions.open_by_key(key_of(PHONE))) is None
    assert await healthy(world)


async def test_called_back_and_arriving_at_once_it_is_in_one_place(world: World) -> None:
    session, number = await handed_off(world)
    await asyncio.gather(
        world.store.transact(history.back(key_of(DESK), world.now, principal=ME)),
        world.store.transact(arrive(world, number)),
    )
    back = await world.store.read(sessions.open_by_key(key_of(DESK)))
    assert back
    assert back.id == session.id
    assert await healthy(world)


async def test_it_arrives_once(world: World) -> None:
    _, number = await handed_off(world)
    arrived = await asyncio.gather(*(world.store.transact(arrive(world, number)) for _ in range(3)))
    assert len([each for each in arrived if each]) == 1


async def test_what_was_taken_up_elsewhere_meanwhile_does_not_arrive(world: World) -> None:
    session, number = await handed_off(world)
    third = dm("third")
    await world.store.transact(sessions.switch(key_of(third), third, session.id, ME, world.now, by="me"))
    assert await world.store.transact(arrive(world, number)) is None
    assert await world.store.transact(handoff.cancel(number, world.now)) is None
    assert await healthy(world)


async def test_what_cannot_arrive_goes_on_where_it_was_unless_something_else_does(world: World) -> None:
    session, number = await handed_off(world)
    await world.exchange("meanwhile", source=DESK)
    assert await world.store.transact(handoff.cancel(number, world.now)) is False
    undone = await world.store.transact(history.back(key_of(DESK), world.now, principal=ME))
    assert undone
    assert undone.session == session.id
    again = await world.store.read(sessions.open_by_key(key_of(DESK)))
    assert again
    assert again.end_reason is not EndReason.HANDED_OFF
    assert await healthy(world)
