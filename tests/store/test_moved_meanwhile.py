"""A transaction that waited for a conversation decides by what is there then, not by what it read before."""

from collections.abc import Callable
from typing import Any

import pytest

from palaver.db.transaction import Lock, Statements, Transaction, transaction
from palaver.model.errors import NotFound, SessionBusy
from palaver.model.key import SessionKey
from palaver.model.session import Session
from palaver.model.turn import Outbound
from palaver.store.conversations import deletion, handoff
from palaver.store.conversations.visibility import hold
from palaver.store.privacy.digests import Digests
from palaver.store.privacy.erase_steps import erase_session, erase_share
from palaver.store.records import SEQS
from palaver.store.retention import observed
from palaver.store.store import Store
from tests.store.world import NOON, OPERATOR, World, dm, key_of

THERE = key_of(dm("8"))


@transaction
def while_it_moves(work: Transaction[Any], session: Session, to: SessionKey) -> Statements[Any]:
    """Do what `work` does. While it waits for its first lock, another transaction moves the session with its turn."""
    steps, sent, moved = iter(work), None, False
    while True:
        try:
            statement = next(steps) if sent is None else steps.send(sent)
        except StopIteration as end:
            return end.value
        sent = yield statement
        if isinstance(statement, Lock) and not moved:
            moved = True
            yield "UPDATE sessions SET key = ? WHERE no = ?", (to.text, session.number)
            yield "UPDATE turns SET key = ? WHERE session_no = ?", (to.text, session.number)


async def running(store: Store) -> Session:
    world = World(store)
    await world.say("hello")
    begun = await world.begin()
    assert begun
    return begun.opened.session


REFUSED: list[Callable[[Session], Transaction[Any]]] = [
    lambda session: erase_share(1, session.number, [], Digests(b"key"), NOON),
    lambda session: erase_session(1, session.id, Digests(b"key"), NOON),
    lambda session: deletion.delete(session.id, OPERATOR, NOON),
]


@pytest.mark.parametrize("work", REFUSED)
async def test_nothing_is_erased_under_a_turn_that_runs_elsewhere_by_now(
    store: Store, work: Callable[[Session], Transaction[Any]]
) -> None:
    session = await running(store)
    with pytest.raises(SessionBusy):
        await store.transact(while_it_moves(work(session), session, THERE))


async def test_retention_leaves_a_conversation_that_is_busy_elsewhere_by_now(store: Store) -> None:
    session = await running(store)
    work = observed.remove([(1, session.number * SEQS + 1)], NOON)
    assert await store.transact(while_it_moves(work, session, THERE)) == 0


async def test_a_session_that_has_left_is_not_handed_off(store: Store) -> None:
    session = await running(store)
    opening = Outbound(platform="telegram", chat_id="9", text="hi")
    work = handoff.start(session, dm(), dm("9"), opening, NOON, by="me")
    with pytest.raises(NotFound):
        await store.transact(while_it_moves(work, session, THERE))


async def test_what_is_held_is_where_the_session_is_now(store: Store) -> None:
    session = await running(store)
    assert (await store.transact(while_it_moves(hold(session.number), session, THERE))).key == THERE
