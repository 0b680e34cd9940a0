"""Every message is accepted once and ends in a named state."""

import asyncio
from dataclasses import replace

import pytest

from palaver.db.transaction import INBOX, Statements, key_topic, transaction
from palaver.model.access import AccessRole
from palaver.model.errors import NotFound
from palaver.model.session import Principal
from palaver.model.source import GROUP, Source, identity_of
from palaver.model.split import ReplyPlace, ReplyRoutes
from palaver.model.turn import Cause, Inbound, InboxState, OutboxState, Received, TurnState, outbound_to
from palaver.store import accounts
from palaver.store.queue import commands, inbox, outbox, turn_control, turns
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.status import message_status
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.world import NOON, OPERATOR, World, begin_sends, cause, dm, key_of

NOTICE = ReplyPlace(source=dm()).notices("Still answering.")[0]


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def row(world: World, number: int | None) -> Received:
    assert number is not None
    found = await world.store.read(inbox.get_message(number, OPERATOR))
    assert found
    return found


async def test_somebody_was_told_that_they_lost_access_only_if_it_was_them_there_and_since(world: World) -> None:
    mine, theirs = (
        Source(platform="telegram", chat_kind=GROUP, chat_id="-1", thread_id="5", user_id=user) for user in "78"
    )
    told = await row(world, await world.say("hello", mine))
    others = [await world.say("hello", source) for source in (dm("7"), theirs)]
    world.later(minutes=1)
    lost = SendCause(CauseKind.ACCESS_LOST, told.number)
    await world.store.transact(outbox.enqueue(outbound_to(dm("7"), "no more"), lost, world.now))
    world.later(minutes=1)
    later = await world.say("again", mine)
    assert await world.store.read(inbox.was_told_of_lost_access(told))
    for number in (*others, later):
        assert not await world.store.read(inbox.was_told_of_lost_access(await row(world, number)))


async def accept(world: World, id_: str, *, refused: str | None = None, cause: Cause = Cause.HUMAN) -> int | None:
    source = dm(message_id=id_)
    inbound = Inbound(source=source, text="hello", at=NOON, cause=cause)
    return await world.store.transact(
        inbox.accept(inbound, key_of(source), NOON, role=AccessRole.ADMIN, refused=refused)
    )


async def test_a_redelivery_cannot_enter_however_many_try_at_once(world: World) -> None:
    numbers = await asyncio.gather(*(accept(world, "m1") for _ in range(10)))
    assert len([number for number in numbers if number is not None]) == 1


HOSTILE = ("general", "a", "a:b", "b", "%3A", "", " ")
CHATS = [
    *(Source(platform="fake", chat_kind=GROUP, chat_id=chat or None, user_id="u") for chat in HOSTILE),
    *(
        Source(platform="fake", chat_kind=GROUP, chat_id="general", scope_id=server or "s", user_id="u")
        for server in HOSTILE
    ),
    *(
        Source(platform="fake", chat_kind=GROUP, chat_id="general", account=name or "n", user_id="u")
        for name in HOSTILE
    ),
    *(Source(platform="fake", chat_kind=GROUP, chat_id_alt=alt or "x", user_id="u") for alt in HOSTILE),
    *(Source(platform="fake", user_id=user or "y") for user in HOSTILE),
    Source(platform="fake", chat_kind=GROUP, chat_id="a", account="a:b", scope_id="b", user_id="u"),
    Source(platform="fake", chat_kind=GROUP, chat_id="a", account="a", scope_id="b:b", user_id="u"),
    Source(platform="web", chat_kind=GROUP, chat_id="general", user_id="u"),
]
"""Chats that are distinguished by their platform, account, server, id, alternate id or person."""


async def test_the_same_message_id_in_another_chat_is_no_redelivery(world: World) -> None:
    for chat in CHATS:
        assert await world.say("hello", chat, id_="1"), chat
    for chat in CHATS:
        assert await world.say("hello", chat, id_="1") is None, chat


async def test_a_request_is_one_message_of_its_sender_in_any_chat(world: World) -> None:
    async def request(source: Source, id_: str, *, refused: str | None = None) -> int | None:
        named = replace(source, message_id=id_)
        inbound = Inbound(source=named, text="hello", at=NOON, cause=Cause.CALL, request_key="r1")
        return await world.store.transact(inbox.accept(inbound, key_of(named), NOON, refused=refused))

    chats = [Source(platform="fake", chat_kind=GROUP, chat_id=chat, user_id="u") for chat in "abcd"]
    assert await request(chats[0], "1", refused="no grant")
    numbers = await asyncio.gather(*(request(chat, str(place)) for place, chat in enumerate(chats)))
    [number] = [number for number in numbers if number is not None]
    found = await world.store.read(message_status.find_request(chats[0], "r1", OPERATOR))
    assert (found and found.number) == number
    assert await request(replace(chats[0], user_id="v"), "9"), "a key is the sender's own"


async def test_one_message_continues_an_entry(world: World) -> None:
    async def continue_(entry: int, chat: str, *, refused: str | None = None) -> int | None:
        source = dm(chat, message_id=chat)
        inbound = Inbound(source=source, text="hello", at=NOON, continues=entry)
        return await world.store.transact(inbox.accept(inbound, key_of(source), NOON, refused=refused))

    assert await continue_(7, "0", refused="no grant"), "what is refused continues nothing"
    numbers = await asyncio.gather(*(continue_(7, chat) for chat in "1234"))
    assert len([number for number in numbers if number is not None]) == 1
    assert await continue_(8, "5")


async def test_an_answer_goes_to_the_server_of_its_question(world: World) -> None:
    general = Source(platform="fake", chat_kind=GROUP, chat_id="general", user_id="u")
    for server in ("a", "b"):
        to = outbound_to(replace(general, scope_id=server), server)
        await world.store.transact(outbox.enqueue(to, cause(server), NOON))
    sent = await world.store.transact(begin_sends("w1", NOON))
    assert [each.outbound.scope_id for each in sent] == ["b", "a"], "neither waits for the other"
    await world.store.transact(accounts.mark_chat_gone(sent[1].outbound, NOON, "kicked"))
    for each in sent:
        await world.store.transact(outbox.settle_send(each, "w1", OutboxState.DUE, due=NOON))
    again = await world.store.transact(begin_sends("w1", NOON))
    assert [(each.outbound.scope_id, each.is_gone) for each in again] == [("b", False), ("a", True)]


async def test_messages_without_an_id_are_all_different(world: World) -> None:
    inbound = Inbound(source=dm(), text="hello", at=NOON)
    for _ in range(2):
        assert await world.store.transact(inbox.accept(inbound, key_of(dm()), NOON)) is not None


async def test_what_is_refused_is_kept_with_its_reason_and_wakes_nobody(world: World) -> None:
    with world.store.listen(INBOX) as arrived:
        number = await accept(world, "m1", refused="a stranger")
        assert not arrived.is_set()
    found = await row(world, number)
    assert (found.state, found.reason, found.role) == (InboxState.REFUSED, "a stranger", AccessRole.ADMIN)
    assert await world.store.read(inbox.list_ready(10)) == []


async def test_a_call_that_was_refused_is_unknown_once_it_is_let_in(world: World) -> None:
    assert await accept(world, "m1", refused="a stranger", cause=Cause.CALL)
    assert await accept(world, "m1", refused="a stranger", cause=Cause.CALL) is None
    numbers = await asyncio.gather(*(accept(world, "m1", cause=Cause.CALL) for _ in range(5)))
    assert len([number for number in numbers if number is not None]) == 1


async def test_a_running_turn_hears_of_what_arrives_and_its_sender_gets_one_notice(world: World) -> None:
    assert await accept(world, "m1")
    begun = await world.begin()
    assert begun
    with world.store.listen(key_topic(key_of(dm()))) as signal:
        waits = await accept(world, "m2")
        await asyncio.wait_for(signal.wait(), 60)
    answered = begun.messages[0].number
    for number in (answered, waits, waits, await accept(world, "m3")):
        await world.store.transact(turn_control.acknowledge_wait(begun.turn, number or 0, NOTICE, NOON))
    await world.store.transact(turns.settle(begun.turn, [], [], NOON))
    await world.store.transact(turn_control.acknowledge_wait(begun.turn, waits or 0, NOTICE, NOON))
    owed = await world.store.transact(begin_sends("w1", world.now))
    assert [each.outbound.text for each in owed] == ["Still answering."]


async def test_a_message_is_shown_to_its_sender_and_to_nobody_else(world: World) -> None:
    number = await accept(world, "m1")
    assert number is not None
    mine = Principal(identities=frozenset({identity_of(dm()) or ""}))
    other = Principal(identities=frozenset({identity_of(dm("8")) or ""}))
    assert await world.store.read(inbox.get_message(number, mine))
    assert await world.store.read(inbox.get_message(number, other)) is None


async def test_who_has_much_to_say_comes_after_who_came_later(world: World) -> None:
    for _ in range(3):
        await world.say("much", dm("1"))
    await world.say("little", dm("2"))
    begun = await world.begin(dm("1"))
    assert begun
    await world.store.transact(turns.settle(begun.turn, [], [], world.now))
    assert await world.store.read(inbox.list_ready(10)) == [key_of(dm("2")), key_of(dm("1"))]


async def test_who_is_new_comes_after_who_waits_already(world: World) -> None:
    await world.exchange("hello", source=dm("1"))
    world.later(days=1)
    await world.say("again", dm("1"))
    await world.say("new here", dm("2"))
    assert await world.store.read(inbox.list_ready(10)) == [key_of(dm("1")), key_of(dm("2"))]


async def test_a_command_or_a_refusal_of_the_last_that_waits_leaves_nothing_to_claim(world: World) -> None:
    numbers = [await world.say("one", dm("1")), await world.say("/new", dm("2"))]
    assert len(await world.store.read(inbox.list_ready(10))) == 2
    assert await world.store.transact(inbox.refuse(numbers[0] or 0, "erased"))
    assert await world.store.transact(
        commands.run_command(await row(world, numbers[1]), _does("done"), ReplyRoutes(), NOON)
    )
    assert await world.store.read(inbox.list_ready(10)) == []


async def test_in_front_is_who_had_a_turn_longest_ago(world: World) -> None:
    for user in ("1", "2", "3"):
        await world.say("hello", dm(user))
    for user in ("2", "1"):
        world.later(seconds=1)
        begun = await world.begin(dm(user))
        assert begun
        await world.store.transact(turns.settle(begun.turn, [], [], world.now))
        await world.say("again", dm(user))
    keys = await world.store.read(inbox.list_ready(10))
    assert keys == [key_of(dm(user)) for user in ("3", "2", "1")]
    assert await world.store.read(inbox.list_ready(1)) == keys[:1]


async def test_however_many_accept_and_take_at_once_nobody_who_waits_is_out_of_the_line(world: World) -> None:
    async def take() -> None:
        begun = await world.begin(collects=True)
        if begun:
            await world.store.transact(turns.settle(begun.turn, [], [], world.now))

    for _ in range(5):
        await asyncio.gather(*(each for _ in range(8) for each in (world.say("hello"), take())))
        assert await world.store.read(violations()) == []


async def test_a_conversation_with_an_open_turn_is_not_claimable(world: World) -> None:
    await world.say("one")
    await world.begin()
    await world.say("two")
    assert await world.store.read(inbox.list_ready(10)) == []


@transaction
def _does(text: str) -> Statements[str]:
    yield from ()
    return text


@transaction
def _fails() -> Statements[str]:
    yield from ()
    raise NotFound("session", "x")


async def test_a_command_is_done_and_answered_once(world: World) -> None:
    received = await row(world, await world.say("/new"))
    assert await world.store.transact(commands.run_command(received, _does("done"), ReplyRoutes(), NOON))
    assert not await world.store.transact(commands.run_command(received, _does("done"), ReplyRoutes(), NOON))
    owed = await world.store.transact(begin_sends("w1", world.now))
    assert [each.outbound.text for each in owed] == ["done"]
    assert (await row(world, received.number)).state is InboxState.DONE


async def test_a_command_that_cannot_be_done_leaves_no_trace(world: World) -> None:
    received = await row(world, await world.say("/resume x"))
    with pytest.raises(NotFound):
        await world.store.transact(commands.run_command(received, _fails(), ReplyRoutes(), NOON))
    assert (await row(world, received.number)).state is InboxState.WAITING


async def test_only_what_is_urgent_comes_before_the_turn_that_runs(world: World) -> None:
    await world.say("hello")
    await world.begin()
    received = await row(world, await world.say("/stop"))
    assert not await world.store.transact(commands.run_command(received, _does("done"), ReplyRoutes(), NOON))
    assert await world.store.transact(commands.run_command(received, _does("done"), ReplyRoutes(), NOON, urgent=True))


async def test_no_command_comes_after_a_turn_that_waits_for_a_person(world: World) -> None:
    await world.say("hello")
    begun = await world.begin()
    assert begun
    received = await row(world, await world.say("/title x"))
    assert await world.store.read(inbox.list_behind_turns()) == {(received.number, None)}
    await world.store.transact(turns.halt(begun.turn, TurnState.PARKED, NOON))
    assert await world.store.read(inbox.list_behind_turns()) == {(received.number, begun.turn.fence)}
    assert await world.store.transact(commands.run_command(received, _does("done"), ReplyRoutes(), NOON))
    assert await world.store.read(inbox.list_behind_turns()) == set()


async def test_a_command_comes_after_what_was_said_before_it(world: World) -> None:
    await world.say("hello")
    received = await row(world, await world.say("/new"))
    assert not await world.store.transact(commands.run_command(received, _does("done"), ReplyRoutes(), NOON))
    begun = await world.begin()
    assert begun
    await world.store.transact(turns.settle(begun.turn, [], [], NOON))
    assert await world.store.transact(commands.run_command(received, _does("done"), ReplyRoutes(), NOON))


async def test_what_waits_can_be_refused_and_what_is_answered_cannot(world: World) -> None:
    number = await world.say("hello")
    assert number is not None
    assert await world.store.transact(inbox.refuse(number, "erased"))
    assert not await world.store.transact(inbox.refuse(number, "erased"))
    assert (await row(world, number)).reason == "erased"


async def test_what_a_message_replies_to_is_kept_with_it(world: World) -> None:
    for answered in ("m0", None):
        source = dm(message_id=f"reply to {answered}")
        inbound = Inbound(source=source, text="hello", at=NOON, reply_to=answered)
        number = await world.store.transact(inbox.accept(inbound, key_of(source), NOON))
        assert (await row(world, number)).inbound == inbound
