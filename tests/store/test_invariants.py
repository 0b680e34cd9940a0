"""Each invariant finds what breaks it, and a healthy store breaks none."""

import pytest

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.store.conversations import history, transcript
from palaver.store.status.invariants import violations
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
    "every received message has a known state": "UPDATE inbox SET state = 'lost' WHERE no = 1",
    "every message in a turn points to a turn of its conversation": "UPDATE inbox SET turn_no = 99 WHERE no = 1",
    "a conversation is in the ready queue exactly while messages wait in it": "DELETE FROM ready_queue",
    "a message with a turn has the state in-turn": "UPDATE inbox SET turn_no = 1 WHERE state = 'waiting'",
    "every send has a known state": "UPDATE outbox SET state = 'lost'",
    "a claimed send has a worker and a deadline, and no other send has": "UPDATE outbox SET state = 'claimed'",
    "a conversation has at most one open session": "DROP INDEX one_open_session_per_key;"
    "UPDATE sessions SET key = 'agent:main:telegram:dm:7'",
    "a conversation has at most one open turn": "DROP INDEX one_open_turn_per_key;"
    "UPDATE turns SET key = 'agent:main:telegram:dm:7', state = 'running'",
    "only finished turns have replies in the outbox": "UPDATE turns SET state = 'interrupted' WHERE no = 1",
    "the replies of a turn are numbered without gaps": "UPDATE outbox SET id = id + 1 WHERE id = 1024",
    "every firing of a job has a message, or says why it did not run": "INSERT INTO firings"
    " (schedule_no, at) VALUES (9, 0)",
    "every message belongs to at most one firing of a job": "INSERT INTO firings"
    " (schedule_no, at, inbox_no) VALUES (9, 0, 1), (9, 1, 1)",
    "every firing belongs to a job that exists": "INSERT INTO firings (schedule_no, at, inbox_no) VALUES (9, 0, 1)",
    "a turn has an end time exactly when it is done or failed": "UPDATE turns SET ended = NULL WHERE no = 1",
    "the session of an open turn belongs to the turn's conversation": "UPDATE turns SET state = 'running',"
    " key = 'elsewhere' WHERE no = 1",
    "every turn belongs to a session that exists": "UPDATE turns SET session_no = 99 WHERE no = 1",
    "every entry belongs to a session that exists and has a number below its next": "UPDATE sessions SET"
    " next_seq = 2 WHERE no = 1",
    "every participant belongs to a session that exists": "UPDATE participants SET session_no = 99",
    "every waiting message was sent in its own conversation or in a chat attached to it": "UPDATE inbox"
    " SET place = 'agent:main:telegram:dm:9' WHERE state = 'waiting'",
    "no chat is attached to a conversation that is itself attached elsewhere": "INSERT INTO attached_chats"
    " (place, key, since, operation) VALUES ('a', 'b', 0, 1), ('b', 'c', 0, 1)",
    "every hidden entry was hidden by an operation on its session": "UPDATE operations SET session_no = 99",
    "no visible entry comes before the point where reading its session starts": "UPDATE sessions SET"
    " shown_from = 2 WHERE no = 1",
    "every route points to a session that exists": "UPDATE routes SET session_no = 99",
    "the route of a conversation points to its open session": "UPDATE routes SET session_no = 1",
}


def statements(sql: str) -> list[Transaction[None]]:
    return [run(statement) for statement in sql.split(";") if statement]


@pytest.mark.parametrize("sentence", list(BREAKS))
async def test_a_break_is_found(store: Store, sentence: str) -> None:
    await busy_world(store)
    for statement in statements(BREAKS[sentence]):
        await store.transact(statement)
    assert sentence in await broken(store)
