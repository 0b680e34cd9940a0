"""Kinds of damage to received messages, turns and sends."""

from tests.damage.kinds import NO_JSON, Kind

MESSAGES = (
    Kind(["DELETE FROM inbox WHERE no = 2"], "the message of entry 3 in turn:2", postgres=True, store=6),
    Kind(["UPDATE outbox SET cause_id = '9999' WHERE id = -1"], "in:9999, of which out:-1 tells", store=6),
    Kind(["UPDATE firings SET inbox_no = 9998 WHERE schedule_no = 2"], "in:9998, of which job:2 tells", store=6),
    Kind([("UPDATE inbox SET body = ? WHERE no = 1", (NO_JSON,))], "in:1 cannot be read", postgres=True, store=2),
    Kind([("UPDATE inbox SET body = ? WHERE no = 13", (NO_JSON,))], "cannot be read", postgres=True, store=1),
    Kind([("UPDATE inbox SET body = ? WHERE no = 13", (b"",))], "every waiting message has content", store=4),
    Kind([("UPDATE inbox SET body = ? WHERE no = 2", (b"",))], "in:2 cannot be read", store=3),
    Kind(
        ["UPDATE inbox SET body = CAST(replace(CAST(body AS TEXT), ':\"pears', ':\"beers') AS BLOB) WHERE no = 2"],
        "in:2 was changed",
        store=4,
    ),
    Kind(
        ["UPDATE inbox SET identity = 'telegram:8' WHERE no = 1"],
        "in:1 contradicts its own columns",
        postgres=True,
        store=1,
    ),
    Kind(["UPDATE inbox SET identity = CAST(x'ff41' AS TEXT) WHERE no = 3"], "inbox.identity", store=11),
    Kind(["UPDATE inbox SET chat = '700' WHERE no = 1"], "in:1 contradicts its own columns", store=3),
    Kind(
        ["UPDATE inbox SET key = 'agent:main:telegram:dm:8' WHERE no = 13"],
        "contradicts its own columns",
        postgres=True,
        store=2,
    ),
    Kind(
        ["UPDATE inbox SET place = 'agent:main:telegram:dm:8' WHERE no = 13"],
        "every waiting message was sent in its own conversation",
        store=5,
    ),
    Kind(["UPDATE inbox SET key = 'nonsense' WHERE no = 1"], "in:1 cannot be read", postgres=True, store=2),
    Kind(["UPDATE inbox SET received = 4000000000000000000 WHERE no = 1"], "in:1 cannot be read", store=6),
    Kind(
        ["UPDATE inbox SET state = 'lost' WHERE no = 13"],
        "every received message has a known state",
        postgres=True,
        store=2,
    ),
    Kind(["UPDATE inbox SET state = 'lost' WHERE no = 1"], "every received message has a known state", store=4),
    Kind(
        ["UPDATE inbox SET turn_no = 99 WHERE no = 1"],
        "every message in a turn points to a turn of its conversation",
        postgres=True,
        store=3,
    ),
    Kind(["UPDATE inbox SET turn_no = 1 WHERE no = 13"], "a message with a turn has the state in-turn", store=4),
    Kind(
        ["DELETE FROM ready_queue"],
        "a conversation is in the ready queue exactly while messages wait in it",
        postgres=True,
        store=3,
    ),
    Kind(
        ["INSERT INTO ready_queue (key, position) VALUES ('agent:main:telegram:dm:8', 9)"],
        "a conversation is in the ready queue exactly while messages wait in it",
        store=5,
    ),
    Kind(
        ["INSERT INTO ready_queue (key, position) VALUES ('nonsense', 0)"],
        "ready conversation nonsense cannot be read",
        postgres=True,
        store=2,
    ),
)

TURNS = (
    Kind(
        ["UPDATE turns SET session_no = 2 WHERE no = 1"],
        "the entries of a turn are in its session",
        postgres=True,
        store=1,
    ),
    Kind(["UPDATE turns SET session_no = 99 WHERE no = 1"], "every turn belongs to a session that exists", store=2),
    Kind(
        ["DELETE FROM turns WHERE no = 1"],
        "every message in a turn points to a turn of its conversation",
        postgres=True,
        store=2,
    ),
    Kind(
        ["UPDATE turns SET state = 'running' WHERE no = 4"],
        "a turn has an end time exactly when it is done or failed",
        postgres=True,
        store=1,
    ),
    Kind(
        ["UPDATE turns SET state = 'interrupted', ended = NULL WHERE no = 11"],
        "only finished turns have replies in the outbox",
        store=3,
    ),
    Kind(
        ["UPDATE turns SET ended = NULL WHERE no = 2"],
        "a turn has an end time exactly when it is done or failed",
        store=3,
    ),
    Kind(["UPDATE turns SET state = 'asleep' WHERE no = 2"], "turn:2 cannot be read", postgres=True, store=1),
    Kind(["UPDATE turns SET key = 'nonsense' WHERE no = 2"], "turn:2 cannot be read", store=4),
    Kind(["UPDATE turns SET approvals = '{' WHERE no = 2"], "turn:2 cannot be read", store=4),
    Kind(
        [
            (
                "UPDATE turns SET state = 'interrupted', ended = NULL, halted = 1, key = 'agent:main:telegram:dm:44'"
                " WHERE no = 9"
            ),
            "DELETE FROM outbox WHERE id / 1024 = 9",
        ],
        "the session of an open turn belongs to the turn's conversation",
        store=4,
    ),
    Kind(
        ["DELETE FROM meta WHERE name = 'summed'"],
        "usage: every turn that ended is counted or waits to be",
        postgres=True,
        store=2,
    ),
    Kind(
        ["UPDATE sessions SET input_tokens = 1, cost_micros = 0 WHERE no = 1"],
        "a session has counted what its turns used",
        postgres=True,
        store=3,
    ),
)

SENDS = (
    Kind(
        ["UPDATE outbox SET chat = '8' WHERE id = 11264"],
        "out:11264 contradicts its own columns",
        postgres=True,
        store=1,
    ),
    Kind(
        ["UPDATE outbox SET account = 'telegram:other' WHERE id = 11264"],
        "out:11264 contradicts its own columns",
        store=3,
    ),
    Kind(
        [("UPDATE outbox SET body = ? WHERE id = 11264", (NO_JSON,))],
        "out:11264 cannot be read",
        postgres=True,
        store=2,
    ),
    Kind([("UPDATE outbox SET body = ? WHERE id = -1", (NO_JSON,))], "out:-1 cannot be read", postgres=True, store=1),
    Kind(
        ["UPDATE outbox SET body = CAST(replace(CAST(body AS TEXT), 'sour', 'sold') AS BLOB) WHERE id = 11264"],
        "out:11264 was changed",
        store=4,
    ),
    Kind(
        [
            (
                """UPDATE outbox SET body = CAST(replace(CAST(body AS TEXT), '"7"', '"8"') AS BLOB), chat = '8'"""
                " WHERE id = -1"
            )
        ],
        "out:-1 was changed",
        store=3,
    ),
    Kind(
        ["UPDATE outbox SET created = 9223372036854775807, due = -9223372036854775808 WHERE id = 11264"],
        "out:11264 cannot be read",
        store=11,
    ),
    Kind(
        ["UPDATE outbox SET state = 'lost' WHERE id IN (1024, 11264)"],
        "out:1024 cannot be read",
        postgres=True,
        store=2,
    ),
    Kind(
        ["UPDATE outbox SET state = 'claimed' WHERE id = 1024", "UPDATE outbox SET state = 'sending' WHERE id = 11264"],
        "a send that is claimed or under way has a worker and a deadline",
        store=4,
    ),
    Kind(["DELETE FROM outbox WHERE id = 2048"], "1 is missing: out:2048", postgres=True, store=2),
    Kind(
        [
            (
                "INSERT INTO outbox (id, account, chat, state, due, created, body, checksum)"
                " SELECT 99 * 1024, account, chat, state, due, created, body, checksum FROM outbox WHERE id = 1024"
            )
        ],
        "every reply belongs to a turn that exists",
        store=4,
    ),
    Kind(
        ["UPDATE outbox SET cause_kind = 'tool', cause_id = '1', cause_detail = '', part = 0 WHERE id = 1024"],
        "a reply of a turn has no other cause",
        store=4,
    ),
)
