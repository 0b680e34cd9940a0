"""Each invariant finds what breaks it, and a healthy store breaks none."""

import pytest

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.store.conversations import history, transcript
from palaver.store.status.invariants import INVARIANTS, violations
from palaver.store.store import Store
from tests.store.world import OPERATOR, World, dm, key_of


@transaction
def run(sql: str) -> Statements[None]:
    yield sql, ()


async def broken(store: Store) -> set[str]:
    return {violation.invariant.sentence for violation in await store.read(violations())}


async def busy_world(store: Store) -> World:
    world = World(store)
    await world.exchange("one")
    await world.exchange("two")
    await store.transact(transcript.undo(key_of(dm()), 1, world.now, principal=OPERATOR))
    await store.transact(history.back(key_of(dm()), world.now, principal=OPERATOR))
    await store.transact(transcript.undo(key_of(dm()), 1, world.now, principal=OPERATOR))
    await world.say("waiting")
    await world.exchange("other", source=dm("8"))
    return world


async def test_a_healthy_store_breaks_nothing(store: Store) -> None:
    await busy_world(store)
    assert await broken(store) == set()


BREAKS = {
    "every message is waiting, in a turn, done, refused or failed": "UPDATE inbox SET state = 'lost' WHERE no = 1",
    "a message in a turn has that turn": "UPDATE inbox SET turn_no = 99 WHERE no = 1",
    "a conversation stands in line exactly while messages wait in it": "DELETE FROM lines",
    "a message of a turn has no state of its own: the turn's state counts": "UPDATE inbox SET turn_no = 1"
    " WHERE state = 'waiting'",
    "every send is due, claimed, delivered, dead or unclear": "UPDATE outbox SET state = 'lost'",
    "a claimed send has an owner and an end": "UPDATE outbox SET state = 'claimed'",
    "a conversation has at most one open session": "DROP INDEX one_open_session_per_key;"
    "UPDATE sessions SET key = 'agent:main:telegram:dm:7'",
    "a conversation has at most one open turn": "DROP INDEX one_open_turn_per_key;"
    "UPDATE turns SET key = 'agent:main:telegram:dm:7', state = 'running'",
    "only a settled turn owes replies": "UPDATE turns SET state = 'interrupted' WHERE no = 1",
    "the replies of a turn are owed once, without a gap": "UPDATE outbox SET id = id + 1 WHERE id = 1024",
    "a turn is over exactly when it has an end": "UPDATE turns SET ended = NULL WHERE no = 1",
    "a session does not change hands in the middle of a turn": "UPDATE turns SET state = 'running', key = 'elsewhere'"
    " WHERE no = 1",
    "every turn runs in a session that exists": "UPDATE turns SET session_no = 99 WHERE no = 1",
    "every entry belongs to a session and stands before its end": "UPDATE sessions SET next_seq = 2 WHERE no = 1",
    "who may read a session is known for sessions that exist": "UPDATE participants SET session_no = 99",
    "what waits in a conversation was said in its own place, or in one that is attached to it": "UPDATE inbox"
    " SET place = 'agent:main:telegram:dm:9' WHERE state = 'waiting'",
    "no place is attached by way of another": "INSERT INTO attached (place, key, since, operation)"
    " VALUES ('a', 'b', 0, 1), ('b', 'c', 0, 1)",
    "what is hidden was hidden by an operation on its session": "UPDATE operations SET session_no = 99",
    "nothing is shown before where its session is read from": "UPDATE sessions SET shown_from = 2 WHERE no = 1",
    "every route leads to a session": "UPDATE routes SET session_no = 99",
    "the open session of a key is where its route leads": "UPDATE routes SET session_no = 1",
}


def statements(sql: str) -> list[Transaction[None]]:
    return [run(statement) for statement in sql.split(";") if statement]


@pytest.mark.parametrize("sentence", [invariant.sentence for invariant in INVARIANTS])
async def test_a_break_is_found(store: Store, sentence: str) -> None:
    await busy_world(store)
    for statement in statements(BREAKS[sentence]):
        await store.transact(statement)
    assert sentence in await broken(store)
