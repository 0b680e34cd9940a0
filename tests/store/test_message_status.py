"""What programs that wait learn: how far a message is, what came of it, and nothing of anybody else's."""

from dataclasses import replace

import pytest

from palaver.model.errors import NotFound
from palaver.model.session import Principal
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import ClientTool, Inbound, Turn, TurnState
from palaver.store.queue import commands, inbox, turn_control, turns
from palaver.store.status import message_status
from palaver.store.status.message_status import Progress, Reply
from palaver.store.store import Store
from tests.store.world import LEASE, OPERATOR, SHORT_MESSAGES, World, answer, dm, key_of

MINE = Principal(identities=frozenset({"api:7"}))
OTHERS = Principal(identities=frozenset({"api:8", "telegram:7"}))
PLACE = dm(platform="api")
CALLS = (ToolCall("c1", "weather"), ToolCall("c2", "clock"), ToolCall("c3", "ours"))


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def offer(world: World, *names: str) -> int:
    source = replace(PLACE, message_id="m1")
    inbound = Inbound(source=source, text="go", at=world.now, client_tools=tuple(map(ClientTool, names)))
    number = await world.store.transact(inbox.accept(inbound, key_of(source), world.now))
    assert number
    return number


async def reply(world: World, number: int, principal: Principal = MINE) -> Reply:
    return await world.store.read(message_status.load_reply(number, principal))


async def progress(world: World, number: int) -> Progress:
    (found,) = await world.store.read(message_status.progress([number]))
    return found


async def begun(world: World) -> Turn:
    begun = await world.begin(PLACE)
    assert begun
    return begun.turn


async def parked(world: World) -> Turn:
    turn = await begun(world)
    called = answer("", calls=CALLS)
    await world.store.transact(turns.append_to_turn(turn, [called]))
    await world.store.transact(turns.halt(turn, TurnState.PARKED, world.now, asked="c1"))
    return turn


async def test_a_message_is_known_by_its_id_to_its_sender(world: World) -> None:
    number = await offer(world)
    names = [replace(PLACE, message_id=name) for name in ("m0", "m1")]
    found = await world.store.read(message_status.find_received(names, MINE))
    assert found
    assert (found.number, found.inbound.text) == (number, "go")
    assert await world.store.read(message_status.find_received(names, OTHERS)) is None
    assert await world.store.read(message_status.find_received(names[:1], OPERATOR)) is None
    with pytest.raises(NotFound):
        await reply(world, number, OTHERS)
    with pytest.raises(NotFound):
        await reply(world, number + 1)


async def test_from_waiting_to_answered(world: World) -> None:
    number = await offer(world)
    assert await progress(world, number) == Progress(number=number, turn=None, is_settled=False)
    turn = await begun(world)
    assert await progress(world, number) == Progress(number=number, turn=turn.number, is_settled=False)
    await world.store.transact(turns.settle(turn, [answer("yes")], [], world.now))
    assert (await progress(world, number)).is_settled
    told = await reply(world, number)
    assert [entry.text for entry in told.entries] == ["go", "yes"]
    assert told.ended == world.now


async def test_a_command_is_answered_beside_the_transcript(world: World) -> None:
    number = await offer(world)
    received = await world.store.read(inbox.get_message(number, MINE))
    assert received
    work = commands.answer_only("one\n\ntwo")
    await world.store.transact(commands.run_command(received, work, SHORT_MESSAGES, world.now))
    assert (await progress(world, number)).is_settled
    assert [notice.strip() for notice in (await reply(world, number)).notices] == ["one", "two"]


async def test_results_of_what_was_offered_let_a_parked_turn_go_on(world: World) -> None:
    number = await offer(world, "weather", "clock")
    turn = await parked(world)
    assert (await progress(world, number)).is_settled
    assert (await reply(world, number)).pending_tool_calls == CALLS[:2], "what nobody offered is not theirs to do"
    results = {"c1": "rain", "c3": "forged", "c9": "unknown"}
    assert not await world.store.transact(message_status.submit_tool_results(turn.number, results, world.now, OTHERS))
    assert not await world.store.transact(message_status.submit_tool_results(turn.number, {"c3": "x"}, world.now, MINE))
    assert await world.store.transact(message_status.submit_tool_results(turn.number, results, world.now, MINE))
    assert not await world.store.transact(message_status.submit_tool_results(turn.number, results, world.now, MINE)), (
        "once"
    )
    (taken,) = await world.store.transact(turns.reclaim("w2", world.now, LEASE))
    assert (taken.number, taken.attempt) == (turn.number, 1)
    tools = [entry for entry in (await reply(world, number)).entries if entry.role is Role.TOOL]
    assert [(entry.answers, entry.text) for entry in tools] == [("c1", "rain")]
    assert await world.store.read(turn_control.read_approvals(taken)) == {"c1": True}, "the rest is still open"


async def test_sessions_are_found_by_their_conversations(world: World) -> None:
    first = (await world.exchange("one", source=PLACE)).opened.session
    other = dm("8", "api")
    await world.exchange("two", source=other)
    keys = [key_of(PLACE), key_of(other)]
    found = await world.store.read(message_status.sessions_by_key(keys, MINE))
    assert [session.id for session in found] == [first.id]
    assert len(await world.store.read(message_status.sessions_by_key(keys, OPERATOR))) == 2
    for chat in ("chat", "chat-0a", "chat-ff", "chat-plans", "chat0a", "chats"):
        await world.exchange("three", source=replace(PLACE, chat_id=chat))
    alike = message_status.sessions_by_key([key_of(replace(PLACE, chat_id="chat"))], MINE, with_suffixes=True)
    assert {session.key.chat for session in await world.store.read(alike)} == {"chat", "chat-0a", "chat-ff"}
