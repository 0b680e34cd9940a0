"""What is going on: turns in flight with what they ask, messages in and out, and passages of transcripts."""

import pytest

from palaver.model.errors import NotFound
from palaver.model.session import Principal
from palaver.model.transcript import ToolCall
from palaver.model.turn import InboxState, Outbound, OutboxState, TurnState
from palaver.store.conversations import transcript
from palaver.store.queue import outbox, turns
from palaver.store.status import overview
from palaver.store.store import Store
from tests.store.world import OPERATOR, World, answer, cause, dm, key_of

ANN, BEN = Principal(identities=frozenset({"telegram:7"})), Principal(identities=frozenset({"telegram:8"}))


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def test_a_turn_in_flight_is_shown_with_what_it_asks_to_those_who_can_see_it(world: World) -> None:
    await world.exchange("done")
    await world.say("go")
    await world.say("and then?")
    begun = await world.begin()
    assert begun
    call = ToolCall("c1", "pay", '{"amount": 3}')
    await world.store.transact(turns.append_to_turn(begun.turn, [answer("", calls=(ToolCall("c0", "x"), call))]))
    await world.store.transact(turns.halt(begun.turn, TurnState.PARKED, world.now, asked="c1"))
    for principal in (OPERATOR, ANN):
        (flight,) = await world.store.read(overview.list_open_turns(principal, 10))
        assert (flight.turn.number, flight.turn.state, flight.asked) == (begun.turn.number, TurnState.PARKED, call)
        assert (flight.session.id, flight.waiting, flight.stop) == (begun.turn.session, 1, None)
        assert await world.store.read(overview.list_open_turns(principal, 10, session=begun.turn.session))
    assert not await world.store.read(overview.list_open_turns(OPERATOR, 10, session="other"))
    assert not await world.store.read(overview.list_open_turns(BEN, 10))
    for number, states, count in (
        (begun.turn.number, (), 1),
        (begun.turn.number + 1, (), 0),
        (None, (TurnState.PARKED,), 1),
        (None, (TurnState.RUNNING, TurnState.INTERRUPTED), 0),
    ):
        found = await world.store.read(overview.list_open_turns(ANN, 10, number=number, states=states))
        assert len(found) == count, (number, states)


async def test_messages_in_and_out_are_listed_newest_first_and_by_state(world: World) -> None:
    await world.exchange("one")
    world.later(seconds=1)
    await world.store.transact(
        outbox.enqueue(Outbound(platform="telegram", chat_id="8", text="psst"), cause("n1"), world.now)
    )
    world.later(seconds=1)
    await world.exchange("two", source=dm("8"))
    await world.say("three")
    found = await world.store.read(overview.list_inbound(OPERATOR))
    assert [each.inbound.text for each in found if each.inbound] == ["three", "two", "one"]
    older = await world.store.read(overview.list_inbound(OPERATOR, before=found[1].number))
    assert [each.number for each in older] == [found[2].number]
    waiting = await world.store.read(overview.list_inbound(OPERATOR, states={InboxState.WAITING}))
    assert [each.number for each in waiting] == [found[0].number]
    sent = await world.store.read(overview.list_outbound(OPERATOR))
    assert [each.delivery.outbound.text for each in sent] == ["yes", "psst", "yes"]
    assert [each.why for each in sent] == ["reply", "unclear", "reply"]
    assert len(await world.store.read(overview.list_outbound(OPERATOR, states={OutboxState.DUE}, limit=2))) == 2
    assert not await world.store.read(overview.list_outbound(OPERATOR, states={OutboxState.DEAD}))


async def test_lists_of_messages_are_the_operators(world: World) -> None:
    await world.exchange("one")
    assert not await world.store.read(overview.list_inbound(ANN))
    assert not await world.store.read(overview.list_outbound(ANN))


async def test_a_passage_is_read_from_its_end_or_on_from_an_entry(world: World) -> None:
    for text in ("a", "b", "c"):
        begun = await world.exchange(text, text.upper())
    session = begun.turn.session

    async def texts(principal: Principal = ANN, **place: int | bool) -> list[str]:
        read = transcript.page(session, principal, **place)  # pyright: ignore[reportArgumentType]
        return [entry.text for entry in await world.store.read(read)]

    assert await texts(limit=3) == ["B", "c", "C"]
    assert await texts(limit=2, before=4) == ["A", "b"]
    assert await texts(limit=2, after=2) == ["b", "B"]
    assert await texts(limit=10, after=1, before=4) == ["A", "b"]
    with pytest.raises(NotFound):
        await texts(BEN)
    await world.store.transact(transcript.undo(key_of(dm()), 1, world.now, principal=ANN))
    assert await texts(limit=2) == ["b", "B"]
    assert await texts(limit=2, hidden=True) == ["c", "C"]
    (last,) = await world.store.read(transcript.page(session, ANN, limit=1, hidden=True))
    assert last.hidden_by
