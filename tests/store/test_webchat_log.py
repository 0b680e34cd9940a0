"""The web chat as rows: what was said in it, by whom it is read, and what is left of what was removed."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from palaver.model.errors import NotFound
from palaver.model.session import EndReason, Principal
from palaver.model.source import Source
from palaver.model.turn import OutboxState, outbound_to
from palaver.store.conversations import deletion, sessions
from palaver.store.conversations.deletion import PruneRule
from palaver.store.queue import outbox
from palaver.store.status import webchat_log
from palaver.store.status.webchat_log import WebchatMessage
from palaver.store.store import Store
from tests.store.world import NOON, OPERATOR, World, begin_sends, cause, key_of

CHAT = "ann/plans"
PLACE = Source(platform="web", chat_id=CHAT, user_id="ann")
ANN, BOB = Principal(identities=frozenset({"web:ann"})), Principal(identities=frozenset({"web:bob"}))

Remove = Callable[[World, str], Awaitable[object]]


async def _delete(world: World, session: str) -> None:
    await world.store.transact(deletion.delete(session, ANN, NOON))


async def _prune(world: World, session: str) -> None:
    found = await world.store.read(sessions.get_visible(session, OPERATOR))
    await world.store.transact(sessions.end(found.number, EndReason.IDLE, NOON))
    survey = await world.store.read(deletion.survey(PruneRule(before=NOON + timedelta(days=1)), OPERATOR))
    await deletion.prune(world.store.database, survey.where, NOON)


async def _forget(world: World, session: str) -> None:  # noqa: ARG001
    erasures = world.store.erasures
    number = await world.store.transact(erasures.request("web:ann", NOON, by="operator"))
    assert (await erasures.run(number, NOON)).done


async def talk(store: Store, principal: Principal = ANN) -> list[WebchatMessage]:
    return await store.read(webchat_log.list_asides(key_of(PLACE), CHAT, principal, since=NOON))


async def read_message(store: Store, number: int, principal: Principal = ANN) -> WebchatMessage:
    return await store.read(webchat_log.get_message(f"in-{number}", CHAT, principal))


async def test_a_message_is_read_in_its_own_chat_by_its_own_sender(store: Store) -> None:
    world, other = World(store), replace(PLACE, chat_id="ann/other")
    mine, elsewhere = await world.say("mine", PLACE), await world.say("elsewhere", other)
    forged = await world.say("forged", replace(PLACE, user_id="bob"))
    assert (await read_message(store, mine or 0)).text == "mine"
    for number in (elsewhere, forged):
        with pytest.raises(NotFound):
            await read_message(store, number or 0)
    for number, place in enumerate((PLACE, other)):
        await store.transact(outbox.enqueue(outbound_to(place, f"sent {number}"), cause(f"{number}"), NOON))
    for sent in await store.transact(begin_sends("w1", NOON)):
        await store.transact(outbox.settle_send(sent, "w1", OutboxState.DELIVERED))
    assert (await store.read(webchat_log.get_message("out--1", CHAT, ANN))).text == "sent 0"
    with pytest.raises(NotFound):
        await store.read(webchat_log.get_message("out--2", CHAT, ANN))


@pytest.mark.parametrize("remove", [_delete, _prune, _forget])
async def test_of_what_was_removed_nothing_is_shown(store: Store, remove: Remove) -> None:
    world = World(store)
    begun = await world.exchange("the old plan", source=PLACE)
    assert (await read_message(store, begun.messages[0].number)).text == "the old plan"
    await remove(world, begun.turn.session)
    with pytest.raises(NotFound):
        await read_message(store, begun.messages[0].number)


async def test_beside_the_transcript_stands_what_waits_and_its_owner_alone_reads_it(store: Store) -> None:
    world = World(store)
    answered = await world.exchange("the plan", source=PLACE)
    assert await talk(store) == [], "what the transcript has is not said twice"
    await world.say("and then?", source=PLACE)
    (line,) = await talk(store)
    assert (line.text, line.waits, line.is_mine) == ("and then?", True, True)
    for other in (BOB, OPERATOR):
        with pytest.raises(NotFound):
            await talk(store, other)
        with pytest.raises(NotFound):
            await read_message(store, answered.messages[0].number, other)
