"""Kinds of damage to received messages, turns and sends."""

from tests.damage.kinds import LOST, NO_JSON, Kind, aside

STATE_OF_WAITING = "SELECT state FROM inbox WHERE message_id = 'm%20waits'"

MESSAGES = (
    Kind(
        "a message that was answered is no JSON",
        [("UPDATE inbox SET body = ? WHERE no = 1", (NO_JSON,))],
        "in:1 cannot be read",
        "SELECT state FROM inbox WHERE no = 1",
        "in-turn",
        postgres=True,
    ),
    Kind(
        "a message that waits is no JSON",
        [("UPDATE inbox SET body = ? WHERE no = 13", (NO_JSON,))],
        "cannot be read",
        STATE_OF_WAITING,
        "failed",
        postgres=True,
    ),
    Kind(
        "a message that waits is empty",
        [("UPDATE inbox SET body = ? WHERE no = 13", (b"",))],
        "every waiting message has content",
        STATE_OF_WAITING,
        "failed",
    ),
    Kind(
        "a message was emptied",
        [("UPDATE inbox SET body = ? WHERE no = 2", (b"",))],
        "in:2 cannot be read",
        aside("inbox", "2"),
    ),
    Kind(
        "the text of a message was changed",
        ["UPDATE inbox SET body = CAST(replace(CAST(body AS TEXT), ':\"pears', ':\"beers') AS BLOB) WHERE no = 2"],
        "in:2 was changed",
        aside("inbox", "2"),
    ),
    Kind(
        "a message is from somebody else",
        ["UPDATE inbox SET identity = 'telegram:8' WHERE no = 1"],
        "in:1 contradicts its own columns",
        "SELECT identity FROM inbox WHERE no = 1",
        "telegram:7",
        postgres=True,
    ),
    Kind(
        "a redelivery would not be recognised",
        ["UPDATE inbox SET chat = '700' WHERE no = 1"],
        "in:1 contradicts its own columns",
        "SELECT chat FROM inbox WHERE no = 1",
        "7",
    ),
    Kind(
        "a message waits in somebody else's conversation",
        ["UPDATE inbox SET key = 'agent:main:telegram:dm:8' WHERE no = 13"],
        "contradicts its own columns",
        "SELECT key FROM inbox WHERE message_id = 'm%20waits'",
        "agent:main:telegram:dm:7",
        postgres=True,
    ),
    Kind(
        "a message came from a place that is attached nowhere",
        ["UPDATE inbox SET place = 'agent:main:telegram:dm:8' WHERE no = 13"],
        "every waiting message was sent in its own conversation",
        "SELECT place FROM inbox WHERE message_id = 'm%20waits'",
        None,
    ),
    Kind(
        "the key of a message is no key",
        ["UPDATE inbox SET key = 'nonsense' WHERE no = 1"],
        "in:1 cannot be read",
        "SELECT key FROM inbox WHERE no = 1",
        "agent:main:telegram:dm:7",
        postgres=True,
    ),
    Kind(
        "a message was received in another age",
        ["UPDATE inbox SET received = 4000000000000000000 WHERE no = 1"],
        "in:1 cannot be read",
        "SELECT count(*) FROM inbox WHERE received < 4000000000000000 AND no = 1",
    ),
    Kind(
        "a message has an unknown state",
        ["UPDATE inbox SET state = 'lost' WHERE no = 13"],
        "every received message has a known state",
        STATE_OF_WAITING,
        "waiting",
        postgres=True,
    ),
    Kind(
        "an answered message has an unknown state",
        ["UPDATE inbox SET state = 'lost' WHERE no = 1"],
        "every received message has a known state",
        "SELECT state FROM inbox WHERE no = 1",
        "in-turn",
    ),
    Kind(
        "a message points to no turn",
        ["UPDATE inbox SET turn_no = 99 WHERE no = 1"],
        "every message in a turn points to a turn of its conversation",
        "SELECT turn_no FROM inbox WHERE no = 1",
        1,
        postgres=True,
    ),
    Kind(
        "a waiting message points to a turn",
        ["UPDATE inbox SET turn_no = 1 WHERE no = 13"],
        "a message with a turn has the state in-turn",
        "SELECT turn_no FROM inbox WHERE message_id = 'm%20waits'",
        None,
    ),
    Kind(
        "the ready queue is empty",
        ["DELETE FROM ready_queue"],
        "a conversation is in the ready queue exactly while messages wait in it",
        "SELECT key FROM ready_queue",
        "agent:main:telegram:dm:7",
        postgres=True,
    ),
    Kind(
        "a conversation is ready without a message",
        ["INSERT INTO ready_queue (key, position) VALUES ('agent:main:telegram:dm:8', 9)"],
        "a conversation is in the ready queue exactly while messages wait in it",
        "SELECT count(*) FROM ready_queue",
    ),
    Kind(
        "what is ready is no conversation",
        ["INSERT INTO ready_queue (key, position) VALUES ('nonsense', 0)"],
        "ready conversation nonsense cannot be read",
        "SELECT count(*) FROM ready_queue",
        postgres=True,
    ),
)

TURNS = (
    Kind(
        "a turn is in another session",
        ["UPDATE turns SET session_no = 2 WHERE no = 1"],
        "the entries of a turn are in its session",
        "SELECT session_no FROM turns WHERE no = 1",
        1,
        postgres=True,
    ),
    Kind(
        "a turn is in no session",
        ["UPDATE turns SET session_no = 99 WHERE no = 1"],
        "every turn belongs to a session that exists",
        "SELECT session_no FROM turns WHERE no = 1",
        1,
    ),
    Kind(
        "a turn is deleted",
        ["DELETE FROM turns WHERE no = 1"],
        "every message in a turn points to a turn of its conversation",
        "SELECT state FROM turns WHERE no = 1",
        "done",
        postgres=True,
    ),
    Kind(
        "a turn that is over runs again",
        ["UPDATE turns SET state = 'running' WHERE no = 4"],
        "a turn has an end time exactly when it is done or failed",
        "SELECT state FROM turns WHERE no = 4",
        "done",
        postgres=True,
    ),
    Kind(
        "a turn with replies is not over",
        ["UPDATE turns SET state = 'interrupted', ended = NULL WHERE no = 11"],
        "only finished turns have replies in the outbox",
        "SELECT state FROM turns WHERE no = 11",
        "done",
    ),
    Kind(
        "a turn is over without an end",
        ["UPDATE turns SET ended = NULL WHERE no = 2"],
        "a turn has an end time exactly when it is done or failed",
        "SELECT count(*) FROM turns WHERE no = 2 AND ended = started",
    ),
    Kind(
        "a turn has an unknown state",
        ["UPDATE turns SET state = 'asleep' WHERE no = 2"],
        "turn:2 cannot be read",
        "SELECT state FROM turns WHERE no = 2",
        "failed",
        postgres=True,
    ),
    Kind(
        "the key of a turn is no key",
        ["UPDATE turns SET key = 'nonsense' WHERE no = 2"],
        "turn:2 cannot be read",
        "SELECT key FROM turns WHERE no = 2",
        "agent:main:telegram:dm:7",
    ),
    Kind(
        "the approvals of a turn are no JSON",
        ["UPDATE turns SET approvals = '{' WHERE no = 2"],
        "turn:2 cannot be read",
        "SELECT approvals FROM turns WHERE no = 2",
        None,
    ),
    Kind(
        "an open turn is in another conversation than its session",
        [
            (
                "UPDATE turns SET state = 'interrupted', ended = NULL, halted = 1, key = 'agent:main:telegram:dm:44'"
                " WHERE no = 9"
            ),
            "DELETE FROM outbox WHERE id / 1024 = 9",
        ],
        "the session of an open turn belongs to the turn's conversation",
        "SELECT key FROM turns WHERE no = 9",
        "agent:main:telegram:dm:10",
    ),
    Kind(
        "the usage of turns is counted nowhere",
        ["DELETE FROM meta WHERE name = 'summed'"],
        "the usage of every turn that ended is counted or waits to be",
        "SELECT count(*) FROM meta WHERE name = 'summed'",
        postgres=True,
    ),
    Kind(
        "a session has counted too little",
        ["UPDATE sessions SET input_tokens = 1, cost_micros = 0 WHERE no = 1"],
        "a session has counted what its turns used",
        "SELECT input_tokens FROM sessions WHERE no = 1",
        50,
        postgres=True,
    ),
)

SENDS = (
    Kind(
        "a reply goes to another chat",
        ["UPDATE outbox SET chat = '8' WHERE id = 11264"],
        "out:11264 contradicts its own columns",
        "SELECT chat FROM outbox WHERE id = 11264",
        "7",
        postgres=True,
    ),
    Kind(
        "a reply goes through another account",
        ["UPDATE outbox SET account = 'telegram:other' WHERE id = 11264"],
        "out:11264 contradicts its own columns",
        "SELECT account FROM outbox WHERE id = 11264",
        "telegram:",
    ),
    Kind(
        "a reply is no JSON",
        [("UPDATE outbox SET body = ? WHERE id = 11264", (NO_JSON,))],
        "out:11264 cannot be read",
        "SELECT state FROM outbox WHERE id = 11264",
        "due",
        postgres=True,
    ),
    Kind(
        "a notice is no JSON",
        [("UPDATE outbox SET body = ? WHERE id = -1", (NO_JSON,))],
        "out:-1 cannot be read",
        "SELECT body FROM outbox WHERE id = -1",
        LOST,
        postgres=True,
    ),
    Kind(
        "the text of a reply was changed",
        ["UPDATE outbox SET body = CAST(replace(CAST(body AS TEXT), 'sour', 'sold') AS BLOB) WHERE id = 11264"],
        "out:11264 was changed",
        "SELECT body FROM outbox WHERE id = 11264",
        "sour limes",
    ),
    Kind(
        "a reply is addressed to somebody else",
        [
            (
                """UPDATE outbox SET body = CAST(replace(CAST(body AS TEXT), '"7"', '"8"') AS BLOB), chat = '8'"""
                " WHERE id = -1"
            )
        ],
        "out:-1 was changed",
        "SELECT state FROM outbox WHERE id = -1",
        "unclear",
    ),
    Kind(
        "a send has an unknown state",
        ["UPDATE outbox SET state = 'lost' WHERE id IN (1024, 11264)"],
        "out:1024 cannot be read",
        "SELECT state FROM outbox WHERE id IN (1024, 11264) ORDER BY id",
        [("delivered",), ("due",)],
        postgres=True,
    ),
    Kind(
        "a send is claimed by nobody",
        ["UPDATE outbox SET state = 'claimed' WHERE id = 11264"],
        "a claimed send has a worker and a deadline",
        "SELECT state FROM outbox WHERE id = 11264",
        "unclear",
    ),
    Kind(
        "a part of a reply is deleted",
        ["DELETE FROM outbox WHERE id = 2048"],
        "the replies of a turn are numbered without gaps",
        "SELECT state FROM outbox WHERE id = 2048",
        "dead",
        postgres=True,
    ),
    Kind(
        "a reply belongs to no turn",
        [
            (
                "INSERT INTO outbox (id, account, chat, state, due, created, body, checksum)"
                " SELECT 99 * 1024, account, chat, state, due, created, body, checksum FROM outbox WHERE id = 1024"
            )
        ],
        "only finished turns have replies in the outbox",
        aside("outbox", "101376"),
    ),
    Kind(
        "a reply has a cause",
        ["UPDATE outbox SET cause_kind = 'tool', cause_id = '1', cause_detail = '', part = 0 WHERE id = 1024"],
        "the replies of a turn are numbered without gaps",
        "SELECT cause_kind FROM outbox WHERE id = 1024",
        None,
    ),
)
