"""A chat that has another id: its conversations go on there, and anything that is owed goes there."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from palaver.db.transaction import key_topic
from palaver.model.access import AccessRole, Grant
from palaver.model.memory import MemoryLimits, MemoryScope
from palaver.model.source import Source
from palaver.model.turn import Outbound, OutboxState, outbound_to
from palaver.store import accounts
from palaver.store.conversations import attach, chat_migration, deletion, sessions
from palaver.store.people import grants, memory
from palaver.store.people.grants import ChangeKind, GrantTable
from palaver.store.queue import inbox, outbox, turn_control, turns
from palaver.store.status import trace
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.world import NOON, OPERATOR, World, answer, begin_sends, cause, dm, group, key_of

OLD, NEW = group("7", chat="-1"), group("7", chat="-1001")
LEASE = timedelta(minutes=1)


async def move(store: Store, old: str = "-1", new: str = "-1001", server: str | None = None) -> bool:
    return await store.transact(chat_migration.move("telegram", None, old, new, NOON, server=server))


def to(chat: str, text: str = "hi", *, reply_to: str | None = None, edits: str | None = None) -> Outbound:
    return Outbound(platform="telegram", chat_id=chat, text=text, reply_to=reply_to, edits=edits)


async def claimed(store: Store) -> list[Outbound]:
    return [each.outbound for each in await store.transact(begin_sends("w1", NOON))]


async def test_a_conversation_goes_on_under_the_new_id(store: Store) -> None:
    world = World(store)
    begun = await world.exchange("before", source=OLD)
    assert await move(store)
    assert not await move(store)
    again = await world.exchange("after", source=NEW)
    assert again.turn.session == begun.turn.session
    session = await store.read(sessions.get_visible(begun.turn.session, OPERATOR))
    assert (session.key, session.origin.chat_id) == (key_of(NEW), "-1001")
    assert await store.read(chat_migration.moved()) == {("telegram:", None): {"-1": "-1001"}}
    assert await store.read(violations()) == []
    assert await store.read(trace.find_traces(f"turn:{begun.turn.number}", OPERATOR))


async def test_a_turn_at_work_learns_of_it_and_hears_what_is_said_under_the_new_id(store: Store) -> None:
    world = World(store)
    await world.say("before", source=OLD)
    begun = await world.begin(OLD)
    assert begun
    with store.listen(key_topic(key_of(OLD))) as told:
        await move(store)
        await asyncio.wait_for(told.wait(), 60)
    number = await world.say("after", source=NEW)
    said = await store.read(turn_control.read_signals(begun.turn))
    assert (said.key, [each.number for each in said.waiting]) == (key_of(NEW), [number])
    held = await store.transact(turn_control.take_waiting(begun.turn, {number or 0}, NOON))
    assert [each.inbound.text for each in held] == ["before", "after"]
    assert await store.read(violations()) == []


async def test_every_member_and_thread_goes_along_and_no_other_chat(store: Store) -> None:
    world = World(store)
    thread = replace(OLD, thread_id="42")
    others = [group("7", chat="-10"), replace(OLD, account="second"), replace(OLD, platform="web"), dm("-1")]
    mine = [await world.exchange("mine", source=source) for source in (OLD, group("8", chat="-1"), thread)]
    theirs = [await world.exchange("theirs", source=source) for source in others[:3]]
    await move(store)
    now_at = [(await store.read(sessions.get_visible(each.turn.session, OPERATOR))).key.chat for each in mine]
    assert now_at == ["-1001"] * 3
    kept = [(await store.read(sessions.get_visible(each.turn.session, OPERATOR))).key for each in theirs]
    assert kept == [key_of(source) for source in others[:3]]


async def test_what_waits_and_a_turn_at_work_go_along(store: Store) -> None:
    world = World(store)
    await world.say("before", OLD)
    begun = await world.begin(OLD)
    await world.say("waits", OLD)
    assert begun
    await move(store)
    assert await world.begin(NEW) is None
    reply = replace(to("-1", "the answer", reply_to="m1", edits="draft"), thread_id="42")
    await store.transact(turns.settle(begun.turn, [answer()], [reply], NOON))
    again = await world.begin(NEW)
    assert again
    assert [each.inbound.text for each in again.messages] == ["waits"]
    # Neither what it answers nor the draft is in the new chat.
    assert await claimed(store) == [replace(to("-1001", "the answer"), thread_id="42")]
    assert await store.read(violations()) == []


async def test_a_message_is_known_again_by_the_id_its_chat_had(store: Store) -> None:
    world = World(store)
    assert await world.say("once", OLD, id_="5")
    await move(store)
    assert await world.say("once", OLD, id_="5") is None
    assert await world.say("another, as numbers begin anew", NEW, id_="5")


async def test_where_the_new_chat_has_a_conversation_neither_is_lost(store: Store) -> None:
    world = World(store)
    old = await world.exchange("in the old", source=OLD)
    new = await world.exchange("in the new", source=NEW)
    await world.say("waits", OLD)
    await move(store)
    again = await world.begin(NEW)
    assert again
    assert (again.turn.session, [each.inbound.text for each in again.messages]) == (new.turn.session, ["waits"])
    assert (await store.read(sessions.get_visible(old.turn.session, OPERATOR))).id == old.turn.session
    assert await store.read(violations()) == []


async def test_the_notes_of_a_chat_go_along_whether_or_not_there_is_a_conversation(store: Store) -> None:
    world, held = World(store), list[str]()
    for source, text in ((OLD, "old"), (NEW, "new")):
        place = MemoryScope(profile="main", identity="telegram:7", place=key_of(source))
        await world.say("remember", source)
        noting = await world.begin(source)
        assert noting
        await store.transact(memory.remember(noting.turn, place, text, MemoryLimits(), NOON))
        await store.transact(turns.settle(noting.turn, [answer()], [], NOON))
        held.append(noting.turn.session)

    async def noted(source: Source) -> list[str]:
        place = MemoryScope(profile="main", identity=None, place=key_of(source))
        return [note.text for note in await store.read(memory.list_notes(place))]

    await move(store)
    assert (await noted(OLD), await noted(NEW)) == ([], ["old", "new"])
    for session in held:
        await store.transact(deletion.delete(session, OPERATOR, NOON))
    await move(store, "-1001", "-1002")
    assert await noted(replace(NEW, chat_id="-1002")) == ["old", "new"]


async def test_homes_addresses_and_grants_name_the_new_chat(store: Store) -> None:
    world = World(store)
    await world.exchange("before", source=OLD)
    grant = Grant(platform="telegram", chat_id="-1", role=AccessRole.MEMBER)
    other = replace(grant, account="second")
    for each in (grant, other):
        await store.transact(grants.add(each, NOON, by="test"))
    await store.transact(accounts.set_home("main", OLD, NOON, by="test"))
    await store.transact(accounts.mark_chat_gone(to("-1"), NOON, "gone"))
    await move(store)
    assert await store.read(accounts.list_configured_homes()) == [replace(OLD, chat_id="-1001", message_id=None)]
    table = await store.read(grants.load_table(GrantTable()))
    assert list(table.grants.values()) == [replace(grant, chat_id="-1001"), other]
    assert (await store.read(grants.list_changes(1)))[0].kind is ChangeKind.MOVED
    assert await store.transact(accounts.mark_chat_gone(to("-1"), NOON, "gone"))


async def test_the_same_chat_id_on_another_server_is_another_chat(store: Store) -> None:
    world = World(store)
    here, there = replace(OLD, scope_id="a:b"), replace(OLD, scope_id="c")
    begun = [await world.exchange("before", source=source) for source in (here, there, OLD)]
    grant = Grant(platform="telegram", chat_id="-1", role=AccessRole.MEMBER)
    for each in (grant, replace(grant, scope_id="a:b"), replace(grant, scope_id="c")):
        await store.transact(grants.add(each, NOON, by="test"))
    await store.transact(accounts.set_home("main", there, NOON, by="test"))
    for number, source in enumerate((here, there, OLD)):
        await store.transact(accounts.mark_chat_gone(outbound_to(source, ""), NOON, "gone"))
        await store.transact(outbox.enqueue(outbound_to(source, "before"), cause(f"before {number}"), NOON))
    assert await move(store, server="a:b")
    assert await store.read(chat_migration.moved()) == {("telegram:", "a:b"): {"-1": "-1001"}}
    now_at = [(await store.read(sessions.get_visible(each.turn.session, OPERATOR))).key for each in begun]
    assert now_at == [key_of(replace(here, chat_id="-1001")), key_of(there), key_of(OLD)]
    assert await store.read(accounts.list_configured_homes()) == [replace(there, message_id=None)]
    table = await store.read(grants.load_table(GrantTable()))
    assert [(each.scope_id, each.chat_id) for each in table.grants.values()] == [
        (None, "-1"),
        ("a:b", "-1001"),
        ("c", "-1"),
        ("a:b", "-1001"),
    ]
    gone = [await store.read(accounts.is_chat_gone(outbound_to(source, ""))) for source in (here, there, OLD)]
    assert gone == [False, True, True]
    for number, source in enumerate((here, there, OLD)):
        await store.transact(outbox.enqueue(outbound_to(source, "after"), cause(f"after {number}"), NOON))
    sent = await store.transact(begin_sends("w1", NOON))
    for delivery in sent:
        await store.transact(outbox.settle_send(delivery, "w1", OutboxState.DELIVERED, receipt="p1"))
    for each in (*(delivery.outbound for delivery in sent), *await claimed(store)):
        assert each.text == "yes" or each.chat_id == ("-1001" if each.scope_id == "a:b" else "-1")
    assert await store.read(violations()) == []


async def test_attached_places_go_along_with_what_waits_in_them(store: Store) -> None:
    world = World(store)
    there = Source(platform="web", chat_id="there", user_id="7")
    begun = await world.exchange("at home", source=there)
    await world.exchange("here", source=OLD)
    session = await store.read(sessions.get_visible(begun.turn.session, OPERATOR))
    await store.transact(attach.attach(key_of(OLD), session, NOON, by="test", farewell=to("-1")))
    await world.say("said in the place", OLD)
    await move(store)
    assert await store.read(attach.conversation_of(key_of(NEW))) == key_of(there)
    assert await store.read(violations()) == []
    waiting = await world.begin(there)
    assert waiting
    assert (waiting.turn.session, waiting.messages[0].place) == (begun.turn.session, key_of(NEW))


async def test_what_is_owed_goes_to_the_new_chat_no_matter_when_it_was_owed(store: Store) -> None:
    await store.transact(outbox.enqueue(to("-1", "before"), cause("a"), NOON))
    await store.transact(outbox.enqueue(to("-10", "elsewhere"), cause("b"), NOON))
    await move(store)
    await store.transact(outbox.enqueue(to("-1", "after", reply_to="m1"), cause("c"), NOON))
    sent = await store.transact(begin_sends("w1", NOON))
    assert {each.outbound.text: each.outbound.chat_id for each in sent} == {"before": "-1001", "elsewhere": "-10"}
    for delivery in sent:
        await store.transact(outbox.settle_send(delivery, "w1", OutboxState.DELIVERED, receipt="p1"))
    assert await claimed(store) == [to("-1001", "after")]


async def test_what_fails_at_the_old_id_while_the_chat_moves_is_due_at_the_new_one(store: Store) -> None:
    await store.transact(outbox.enqueue(to("-1"), cause("a"), NOON))
    (sent,) = await store.transact(begin_sends("w1", NOON))
    await move(store)
    became = await store.transact(outbox.settle_send(sent, "w1", OutboxState.DEAD, error="gone"))
    assert became is OutboxState.DUE
    (again,) = await store.transact(begin_sends("w1", NOON))
    assert (again.number, again.outbound.chat_id, again.attempts) == (sent.number, "-1001", 2)
    became = await store.transact(outbox.settle_send(again, "w1", OutboxState.DEAD, error="gone"))
    assert became is OutboxState.DEAD


@pytest.mark.parametrize("steps", [[("-1", "-2"), ("-2", "-1001")], [("-2", "-1001"), ("-1", "-2")]])
async def test_a_chat_that_moves_twice_is_where_it_is_last(store: Store, steps: list[tuple[str, str]]) -> None:
    world = World(store)
    await world.say("waits", OLD)
    for old, new in steps:
        await move(store, old, new)
    await store.transact(outbox.enqueue(to("-1"), cause("a"), NOON))
    assert await claimed(store) == [to("-1001")]
    assert (await store.read(inbox.list_ready(5))) == [key_of(NEW)]


async def test_what_stayed_unclear_and_is_sent_once_more_goes_to_the_new_chat(store: Store) -> None:
    await store.transact(outbox.enqueue(replace(to("-1"), opens="Plans"), cause("a"), NOON))
    (sent,) = await store.transact(begin_sends("w1", NOON))
    await store.transact(outbox.mark_unclear(sent, "w1", NOON, safe=False, error="no answer"))
    await move(store)
    assert await store.transact(outbox.settle_unclear(sent.number, OutboxState.DUE, NOON))
    assert [each.chat_id for each in await claimed(store)] == ["-1001"]
