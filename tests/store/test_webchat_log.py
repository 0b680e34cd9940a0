"""The web chat as rows: what was said in it, by whom it is read, and what is left of what was removed."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from palaver.model.errors import NotFound
from palaver.model.session import EndReason, Principal
from palaver.model.source import Source
from palaver.store.conversations import deletion, sessions
from palaver.store.conversations.deletion import PruneRule
from palaver.store.status import webchat_log
from palaver.store.status.webchat_log import WebchatMessage
from palaver.store.store import Store
from tests.store.world import NOON, OPERATOR, World, key_of

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
