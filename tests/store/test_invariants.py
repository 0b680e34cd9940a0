"""Each invariant finds what breaks it, and a healthy store breaks none."""

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.store.conversations import history, transcript
from palaver.store.status.invariants import INVARIANTS, violations
from palaver.store.store import Store
from tests.store.world import OPERATOR, World, dm, key_of


@transaction
def run(sql: str) -> Statements[None]:
    for statement in sql.split(";"):
        yield statement, ()


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


LINK = "INSERT INTO links (one, other, since, actor) VALUES ('matrix:zoe', 'signal:zoe', 0, 'operator')"
BREAKS = {
    "every received message has a known state": "UPDATE inbox SET state = 'lost' WHERE no = 1",
    "every message in a turn points to a turn of its conversation": "UPDATE inbox SET turn_no = 99 WHERE no = 1",
    "a conversation is in the ready queue exactly while messages wait in it": "DELETE FROM ready_queue",
    "every mark belongs to a session that exists": "INSERT INTO session_marks (identity, session_no)"
    " VALUES ('web:owner', 99)",
    "every request with results belongs to a message that exists": "INSERT INTO result_requests"
    " (identity, request_key, digest, inbox_no) VALUES ('api:owner', 'k', 'd', 99)",
    "every attached chat was attached by an operation that exists": "INSERT INTO attached_chats"
    " (place, key, since, operation, actor) VALUES ('a', 'b', 0, 99, 'operator')",
    "every notice about an operation belongs to one that exists": "UPDATE outbox SET cause_kind = 'handoff',"
    " cause_id = '99', cause_detail = '', part = id",
    "every waiting message has content": "UPDATE inbox SET body = substr(body, 1, 0) WHERE state = 'waiting'",
    "the entries of a turn are in its session": "UPDATE turns SET session_no = 2 WHERE no = 1",
    "a session has counted what its turns used": "UPDATE turns SET input_tokens = 99 WHERE no = 1",
    "a message with a turn has the state in-turn": "UPDATE inbox SET turn_no = 1 WHERE state = 'waiting'",
    "a send that is claimed or under way has a worker and a deadline, and no other send has": (
        "UPDATE outbox SET state = 'claimed'"
    ),
    "only finished turns have replies in the outbox": "UPDATE turns SET state = 'interrupted' WHERE no = 1",
    "every firing of a job has a message, or says why it did not run": "INSERT INTO firings"
    " (schedule_no, at) VALUES (9, 0)",
    "every message belongs to at most one firing of a job": "INSERT INTO firings"
    " (schedule_no, at, inbox_no) VALUES (9, 0, 1), (9, 1, 1)",
    "every firing belongs to a job that exists": "INSERT INTO firings (schedule_no, at, inbox_no) VALUES (9, 0, 1)",
    "a turn has an end time exactly when it is done or failed": "UPDATE turns SET ended = NULL WHERE no = 1",
    "the session of an open turn belongs to the turn's conversation": "UPDATE turns SET state = 'running',"
    " key = 'elsewhere' WHERE no = 1",
    "every turn belongs to a session that exists": "UPDATE turns SET session_no = 99 WHERE no = 1",
    "every participant belongs to a session that exists": "UPDATE participants SET session_no = 99",
    "every identity belongs to a person that exists": "CREATE TABLE without_rules AS SELECT * FROM identities;"
    "DROP TABLE identities; ALTER TABLE without_rules RENAME TO identities;"
    "INSERT INTO identities (identity, person, created) VALUES ('matrix:zoe', 'nobody', 0)",
    "every linked account belongs to an identity that exists": LINK,
    "every other linked account belongs to an identity that exists": LINK,
    "every mention belongs to a message that exists": "INSERT INTO mentions (inbox_no, session_no) VALUES (99, 1)",
    "every mentioned session belongs to a session that exists": "INSERT INTO mentions"
    " (inbox_no, session_no) VALUES (1, 99)",
    "every request for access belongs to a message that exists": "INSERT INTO pairings (identity, account, code_hash,"
    " first_requested, requested, expires, inbox_no, kept) VALUES ('matrix:zoe', 'matrix:', 'x', 0, 0, 0, 99, 0)",
    "every operation belongs to a session that exists": "UPDATE operations SET session_no = 99",
    "every process belongs to a session that exists": "INSERT INTO processes (id, session_no, place, origin, backend,"
    " command, folder, terminal, home, host, worker, lease_until, started, exit_notice) SELECT 'p', 99, '', body, '',"
    " '', '', 0, '', '', '', 0, 0, 'off' FROM inbox WHERE no = 1",
    "every replaced note belongs to a note that exists": "INSERT INTO memory_notes"
    " (profile, identity, text, created, replaced_by) VALUES ('main', 'telegram:7', 'likes tea', 0, 99)",
    "every digest of an erasure belongs to an erasure that exists": "INSERT INTO erased_digests"
    " (erasure, kind, digest) VALUES (99, 'entry', 'x')",
    "every file belongs to an entry or a message": "INSERT INTO attachments"
    " (sha256, kind, holder) VALUES ('x', 'entry', 99)",
    "every waiting message was sent in its own conversation or in a chat attached to it": "UPDATE inbox"
    " SET place = 'agent:main:telegram:dm:9' WHERE state = 'waiting'",
    "no chat is attached to a conversation that is itself attached elsewhere": "INSERT INTO attached_chats"
    " (place, key, since, operation) VALUES ('a', 'b', 0, 1), ('b', 'c', 0, 1)",
    "every hidden entry was hidden by an operation on its session": "UPDATE operations SET session_no = 99",
    "no visible entry comes before the point where reading its session starts": "UPDATE sessions SET"
    " shown_from = 2 WHERE no = 1",
    "every route points to a session that exists": "UPDATE routes SET session_no = 99",
    "the route of a conversation points to its open session": "UPDATE routes SET session_no = 1",
    "every reply belongs to a turn that exists": "UPDATE outbox SET id = 99 * 1024 WHERE id = 1024",
    "a reply of a turn has no other cause": "UPDATE outbox SET cause_kind = 'tool', cause_id = '1', cause_detail = '',"
    " part = 0 WHERE id = 1024",
    "every entry belongs to a session that exists": "DELETE FROM sessions WHERE no = 1",
    "every entry has a number below the next one of its session": "UPDATE sessions SET next_seq = 2 WHERE no = 1",
    "every open session has a route": "DELETE FROM routes",
}


class Undone(Exception):
    """What was found, raised so that nothing of the damage stays."""

    def __init__(self, found: set[str]) -> None:
        super().__init__(found)
        self.found = found


@transaction
def damage_and_look(sql: str) -> Statements[None]:
    yield from run(sql)
    found = yield from violations()
    raise Undone({violation.invariant.sentence for violation in found})


async def test_a_break_of_every_rule_is_found(store: Store) -> None:
    await busy_world(store)
    assert BREAKS.keys() == {invariant.sentence for invariant in INVARIANTS}
    for sentence, sql in BREAKS.items():
        with pytest.raises(Undone) as undone:
            await store.transact(damage_and_look(sql))
        assert sentence in undone.value.found
    assert await broken(store) == set()
