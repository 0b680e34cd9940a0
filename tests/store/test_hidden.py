"""What is hidden costs nothing: a conversation is read from where something is shown, however much came before."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from palaver.db.transaction import Transaction
from palaver.model.compaction import plan_compaction
from palaver.model.revision import RevisionPolicy
from palaver.model.turn import Inbound, Revision
from palaver.store.conversations import history, transcript
from palaver.store.opening import open_store
from palaver.store.queue import revisions
from palaver.store.results import Begun
from palaver.store.status import message_status
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.effort import steps_of
from tests.store.world import NOON, OPERATOR, World, dm, key_of

KEY = key_of(dm())


async def summarise(world: World, session: str) -> None:
    plan = plan_compaction(await world.store.read(transcript.load_visible(session, OPERATOR)), keep_exchanges=0)
    await world.store.transact(transcript.compact(KEY, plan, "short", world.now, by="agent"))


async def talk(world: World, length: int) -> Begun:
    """A long conversation that was summarised, and an exchange behind that."""
    for _ in range(length):
        begun = await world.exchange("words " * 50, reply="words " * 50)
        world.later(minutes=1)
        await summarise(world, begun.turn.session)
    return await world.exchange("hello")


def changed(message: str) -> Transaction[object]:
    source = replace(dm(), message_id=message)
    inbound = Inbound(source=source, text="hello!", at=NOON, revision=Revision(version="2"))
    return revisions.accept_revision(inbound, KEY, NOON, RevisionPolicy.NOTE)


READS: dict[str, Callable[[Begun], Transaction[object]]] = {
    "the view of a turn": lambda begun: transcript.load_shown(begun.turn.session_number),
    "what was answered": lambda begun: message_status.load_reply(begun.messages[0].number, OPERATOR),
    "a page": lambda begun: transcript.page(begun.turn.session, OPERATOR),
    "the newest message changed": lambda begun: changed(begun.messages[0].inbound.source.message_id or ""),
    "a summarised message changed": lambda _: changed("m1"),
}


async def effort(path: Path, length: int, read: Callable[[Begun], Transaction[object]]) -> int:
    """How many steps SQLite takes for it behind so much that was said before."""
    async with await open_store(str(path)) as store:
        begun = await talk(World(store), length)
    return steps_of(path, read(begun))


@pytest.mark.parametrize("name", READS)
async def test_no_step_is_taken_over_what_is_hidden(tmp_path: Path, name: str) -> None:
    short, long = [await effort(tmp_path / f"{length}.db", length, READS[name]) for length in (10, 40)]
    assert long <= short


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def test_what_is_shown_again_is_read_again(world: World) -> None:
    begun = await talk(world, 3)
    session, shown = begun.turn.session, await world.texts(begun.turn.session)
    for _ in range(3):
        assert await world.store.transact(history.back(KEY, world.now, principal=OPERATOR))
        assert await world.store.read(violations()) == []
    assert shown == ["short", "hello", "yes"]
    assert await world.texts(session) == ["words " * 50] * 6 + ["hello", "yes"]


async def test_an_answer_belongs_to_its_turn_until_it_is_undone(world: World) -> None:
    words = "words " * 50
    begun = await world.exchange(words, reply=words)
    await summarise(world, begun.turn.session)
    read = message_status.load_reply(begun.messages[0].number, OPERATOR)
    assert [entry.text for entry in (await world.store.read(read)).entries] == [words, words]
    assert await world.store.transact(transcript.undo(KEY, 1, world.now, principal=OPERATOR))
    assert (await world.store.read(read)).entries == ()


async def test_what_is_said_after_everything_was_undone_is_read(world: World) -> None:
    begun = await world.exchange("one")
    await world.exchange("two")
    assert await world.store.transact(transcript.undo(KEY, 9, world.now, principal=OPERATOR))
    assert await world.texts(begun.turn.session) == []
    await world.exchange("three")
    assert await world.texts(begun.turn.session) == ["three", "yes"]
    assert await world.store.transact(history.redo(KEY, world.now, principal=OPERATOR))
    assert await world.texts(begun.turn.session) == ["one", "yes", "two", "yes", "three", "yes"]
    assert await world.store.read(violations()) == []
