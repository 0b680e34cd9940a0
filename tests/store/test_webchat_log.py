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
    await deletion.prune(world.store.database, survey, OPERATOR, NOON)


async def _forget(world: World, session: str) -> None:  # noqa: ARG001
    erasures = world.store.erasures
    number = await world.store.transact(erasures.request("web:ann", NOON, by="operator"))
    assert (await erasures.run(number, NOON)).done


async def talk(store: Store, principal: Principal = ANN) -> list[WebchatMessage]:
    return await store.read(webchat_log.list_messages(key_of(PLACE), CHAT, principal))


@pytest.mark.parametrize("remove", [_delete, _prune, _forget])
async def test_of_what_was_removed_nothing_is_shown_and_the_chat_goes_on(store: Store, remove: Remove) -> None:
    world = World(store)
    begun = await world.exchange("the old plan", source=PLACE)
    (old,) = await talk(store)
    await remove(world, begun.turn.session)
    assert await talk(store) == []
    with pytest.raises(NotFound):
        await store.read(webchat_log.get_message(old.name, CHAT, ANN))
    await world.exchange("the new plan", source=PLACE)
    assert [line.text for line in await talk(store)] == ["the new plan"]


async def test_a_chat_is_read_by_whose_it_is(store: Store) -> None:
    await World(store).exchange("the plan", source=PLACE)
    (line,) = await talk(store)
    assert await store.read(webchat_log.get_message(line.name, CHAT, ANN)) == line
    for other in (BOB, OPERATOR):
        with pytest.raises(NotFound):
            await talk(store, other)
        with pytest.raises(NotFound):
            await store.read(webchat_log.get_message(line.name, CHAT, other))
