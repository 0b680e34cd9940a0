"""What became of a message is reported from any of its names, whole, and only to those whom it concerns."""

from dataclasses import replace
from datetime import timedelta

import pytest

from palaver.commands.trace_steps import trace_steps
from palaver.db.transaction import Statements, transaction
from palaver.model.access import AccessRole
from palaver.model.errors import BadArgument, NotFound
from palaver.model.session import Principal
from palaver.model.source import Source, account_text
from palaver.model.split import ReplyAccount, ReplyRoutes
from palaver.model.turn import Inbound, InboxState, Outbound, OutboxState, TurnState
from palaver.store.conversations import deletion, transcript
from palaver.store.queue import commands, inbox, outbox, turn_control, turns
from palaver.store.results import Begun
from palaver.store.status.trace import Trace, find_traces
from palaver.store.store import Store
from tests.store.world import (
    IDLE_HOUR,
    LEASE,
    NOON,
    OPERATOR,
    SHORT_MESSAGES,
    World,
    begin_sends,
    cause,
    dm,
    group,
    key_of,
)

ANN = Principal(identities=frozenset({"telegram:7"}))
BEN = Principal(identities=frozenset({"telegram:8"}))


async def told(store: Store, name: str, principal: Principal = OPERATOR) -> Trace:
    (trace,) = await store.read(find_traces(name, principal))
    return trace


async def deliver(world: World, receipt: str) -> None:
    for delivery in await world.store.transact(begin_sends("w1", world.now)):
        settled = outbox.settle_send(delivery, "w1", OutboxState.DELIVERED, receipt=receipt)
        await world.store.transact(settled)


@pytest.mark.parametrize(
    "name",
    ["in:1", "turn:1", "out:1024", "m1", "telegram:7:m1", "telegram::7:m1", "r-99", "telegram:7:r-99"],
)
async def test_one_story_under_every_name(store: Store, name: str) -> None:
    world = World(store)
    await world.exchange("hello")
    await deliver(world, "r-99")
    await world.exchange("other", source=dm("8"))
    trace = await told(store, name)
    assert [arrival.number for arrival in trace.messages] == [1]
    assert trace.messages[0].state is InboxState.DONE
    assert trace.turn
    assert (trace.turn.turn.number, trace.turn.turn.state, trace.turn.turn.worker) == (1, TurnState.DONE, "w1")
    assert [entry.text for entry in trace.turn.entries] == ["hello", "yes"]
    assert trace.turn.usage.input_tokens == 10
    assert [(each.delivery.state, each.delivery.receipt, each.why) for each in trace.deliveries] == [
        (OutboxState.DELIVERED, "r-99", "reply")
    ]


async def test_a_session_tells_its_newest_turns(store: Store) -> None:
    world = World(store)
    begun = await world.exchange("one")
    for text in ("two", "three"):
        await world.exchange(text)
    stories = await store.read(find_traces(begun.turn.session, OPERATOR, limit=2))
    assert [trace.turn.turn.number for trace in stories if trace.turn] == [2, 3]


async def test_ids_of_every_kind_are_found(store: Store) -> None:
    world = World(store)
    room = Source(platform="matrix", account="a:b", chat_id="!r%_:example.org", user_id="@x:example.org")
    await world.say("hello", room, id_="$1:example.org")
    await world.say("hello", replace(room, chat_id="!rxx:example.org"), id_="$1xexample.org")
    for name in ("$1:example.org", "matrix:!r%_:example.org:$1:example.org"):
        assert (await told(store, name)).messages[0].number == 1


async def test_what_several_have_in_common_names_none_of_them(store: Store) -> None:
    world = World(store)
    await world.exchange("one", source=dm("7"))
    await world.say("two", dm("8"), id_="m1")
    with pytest.raises(BadArgument, match="turn:1, in:2"):
        await store.read(find_traces("m1", OPERATOR))
    assert (await told(store, "telegram:8:m1")).messages[0].number == 2
    assert (await told(store, "m1", ANN)).messages[0].number == 1


@pytest.mark.parametrize("name", ["in:99", "out:99", "out:-99", "turn:99", "nothing", "telegram:7:99", "", "%", ":"])
async def test_what_is_not_there_is_not_found(store: Store, name: str) -> None:
    world = World(store)
    await world.exchange("hello")
    with pytest.raises(NotFound):
        await store.read(find_traces(name, OPERATOR))


async def test_only_those_who_took_part_get_a_notice(store: Store) -> None:
    world = World(store)
    await world.exchange("mine")
    await world.say("waits", dm("7"))
    await store.transact(outbox.enqueue(Outbound(platform="telegram", chat_id="7", text="x"), cause("gone:1"), NOON))
    await deliver(world, "r-1")
    for name in ("in:1", "turn:1", "out:1024", "m1", "r-1", "in:2"):
        with pytest.raises(NotFound):
            await store.read(find_traces(name, BEN))
        if name != "r-1":
            assert (await told(store, name, ANN)).messages
    assert (await told(store, "out:-1")).deliveries[0].why == "gone"
    with pytest.raises(NotFound):
        await store.read(find_traces("out:-1", ANN))


async def test_everybody_in_a_shared_turn_learns_all_of_it(store: Store) -> None:
    world = World(store)
    await world.exchange("one", source=group("7"))
    assert (await told(store, "in:1", ANN)).turn
    with pytest.raises(NotFound):
        await store.read(find_traces("in:1", BEN))


async def test_what_was_taken_back_and_how_it_failed_is_reported_to_the_operator_alone(store: Store) -> None:
    world = World(store)
    await world.exchange("canary", "canary it is")
    await store.transact(transcript.undo(key_of(dm()), 1, world.now, principal=ANN))
    await world.say("go on")
    begun = await world.begin()
    assert begun
    owed = Outbound(platform="telegram", chat_id="7", text="Sorry.")
    await store.transact(turns.settle(begun.turn, [], [owed], world.now, error="canary in a trace"))
    for delivery in await store.transact(begin_sends("w1", world.now)):
        dead = outbox.settle_send(delivery, "w1", OutboxState.DEAD, error="canary, said the platform")
        await store.transact(dead)
    assert str(await store.read(find_traces(begun.turn.session, OPERATOR))).count("canary") == 7
    undone, failed = await store.read(find_traces(begun.turn.session, ANN))
    assert "canary" not in f"{undone} {failed}"
    assert undone.turn
    assert failed.turn
    assert (undone.turn.taken_back, undone.turn.entries, undone.messages[0].state) == (True, (), InboxState.DONE)
    assert (failed.turn.turn.worker, failed.messages[0].reason, failed.deliveries[0].worker) == ("", None, None)
    assert failed.messages[0].inbound
    assert (failed.messages[0].inbound.text, failed.deliveries[0].delivery.outbound.text) == ("go on", "Sorry.")
    assert "by" not in trace_steps(failed, world.now)[-1].sentence


async def test_what_waits_says_for_what(store: Store) -> None:
    world = World(store)
    await world.say("one")
    await world.begin()
    await world.say("two")
    await world.say("three")
    (waiting,) = (await told(store, "in:3")).messages
    assert (waiting.state, waiting.behind_turn, waiting.behind) == (InboxState.WAITING, 1, 1)
    running = (await told(store, "in:1")).turn
    assert running
    assert (running.ended, running.turn.state) == (None, TurnState.RUNNING)


async def test_who_was_let_in_and_who_was_not(store: Store) -> None:
    inbound = Inbound(source=replace(dm(), message_id="m1"), text="hello", at=NOON)
    key = key_of(dm())
    await store.transact(inbox.accept(inbound, key, NOON, role=AccessRole.MEMBER, refused="a stranger"))
    (refused,) = (await told(store, "in:1")).messages
    assert (refused.state, refused.reason, refused.role) == (InboxState.REFUSED, "a stranger", AccessRole.MEMBER)


@transaction
def _say(text: str) -> Statements[str]:
    yield from ()
    return text


async def test_the_answer_to_a_command_belongs_to_it(store: Store) -> None:
    world = World(store)
    await world.say("/help")
    received = await store.read(inbox.get_message(1, OPERATOR))
    assert received
    await store.transact(commands.run_command(received, _say("one\n\ntwo"), SHORT_MESSAGES, NOON))
    for name in ("in:1", "out:-1", "out:-2"):
        trace = await told(store, name, ANN)
        assert [each.delivery.outbound.text.strip() for each in trace.deliveries] == ["one", "two"]
        assert {each.why for each in trace.deliveries} == {"command"}
        assert trace.messages[0].state is InboxState.DONE


async def test_words_around_a_turn_belong_to_it(store: Store) -> None:
    world = World(store)
    outbound = Outbound(platform="telegram", chat_id="7", text="notice")
    await world.exchange("zero")
    world.later(hours=2)
    await world.say("one")
    routes = ReplyRoutes(accounts={account_text("telegram", None): ReplyAccount()})
    begun = await store.transact(turns.begin(key_of(dm()), "w1", world.now, LEASE, IDLE_HOUR, routes))
    assert isinstance(begun, Begun)
    later = Inbound(source=replace(dm(), message_id="m9"), text="two", at=NOON)
    number = await store.transact(inbox.accept(later, key_of(dm()), NOON + timedelta(seconds=1)))
    await store.transact(turn_control.acknowledge_wait(begun.turn, number or 0, outbound, world.now))
    await store.transact(turn_control.request_stop(key_of(dm()), NOON, by="telegram:7"))
    trace = await told(store, "turn:2")
    assert [each.why for each in trace.deliveries] == ["welcome", "busy"]
    assert trace.turn
    assert (trace.turn.stop or "").startswith("telegram:7 at ")
    assert await told(store, "out:-2") == trace
    await store.transact(outbox.enqueue(outbound, cause("parked:2"), NOON + timedelta(seconds=2)))
    for name in ("turn:2", "out:-3"):
        assert [each.why for each in (await told(store, name)).deliveries] == ["welcome", "busy", "parked"]


async def test_a_second_attempt_is_reported(store: Store) -> None:
    world = World(store)
    await world.say("one")
    await world.begin()
    world.later(minutes=5)
    await store.transact(turns.reclaim("w2", world.now, LEASE))
    run = (await told(store, "in:1")).turn
    assert run
    assert (run.turn.attempt, run.turn.worker, run.turn.halted) == (2, "w2", NOON + LEASE)


async def test_a_claim_says_by_whom(store: Store) -> None:
    world = World(store)
    await world.exchange("one")
    await store.transact(begin_sends("w3", world.now))
    (sending,) = (await told(store, "out:1024")).deliveries
    assert (sending.delivery.state, sending.worker, sending.claim_until) == (OutboxState.SENDING, "w3", NOON + LEASE)


async def test_what_was_deleted_is_reported_without_its_words_and_to_the_operator_only(store: Store) -> None:
    world = World(store)
    begun = await world.exchange("secret")
    await store.transact(deletion.delete(begun.turn.session, OPERATOR, NOON))
    (deleted,) = (await told(store, "in:1")).messages
    assert (deleted.inbound, deleted.state) == (None, InboxState.DONE)
    with pytest.raises(NotFound):
        await store.read(find_traces("in:1", ANN))
    with pytest.raises(NotFound):
        await store.read(find_traces("turn:1", OPERATOR))
