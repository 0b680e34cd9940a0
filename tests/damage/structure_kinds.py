"""Kinds of damage to sessions, routes, operations and people."""

from tests.damage.kinds import NO_JSON, SEQS, Kind, entry

SESSIONS = (
    Kind(["UPDATE sessions SET origin = '{' WHERE no = 1"], "session", postgres=True, store=1),
    Kind(["UPDATE sessions SET key = 'nonsense' WHERE no = 3"], "cannot be read", postgres=True, store=1),
    Kind(["UPDATE sessions SET end_reason = 'boredom' WHERE no = 3"], "cannot be read", postgres=True, store=1),
    Kind(["UPDATE sessions SET override = '{\"key\": 1}' WHERE no = 1"], "cannot be read", store=3),
    Kind(["UPDATE sessions SET started = 4000000000000000000 WHERE no = 1"], "cannot be read", store=3),
    Kind(["UPDATE sessions SET title = CAST(x'ff41' AS TEXT) WHERE no = 1"], "sessions.title", store=11),
    Kind(["UPDATE routes SET key = CAST(x'ff41' AS TEXT) WHERE session_no = 1"], "routes.key", store=11),
    Kind(["UPDATE sessions SET next_seq = 4611686018427387904 WHERE no = 1"], "contradicts its own columns", store=11),
    Kind(["UPDATE sessions SET profile = 'work' WHERE no = 1"], "contradicts its own columns", store=3),
    Kind(["UPDATE sessions SET platform = 'irc' WHERE no = 1"], "contradicts its own columns", store=3),
    Kind(["DELETE FROM sessions WHERE no = 1"], "every entry belongs to a session that exists", postgres=True, store=2),
    Kind(
        [
            "DELETE FROM sessions WHERE no = 5",
            ("DELETE FROM entries WHERE id / ? = 5", (SEQS,)),
            "DELETE FROM turns WHERE session_no = 5",
            "DELETE FROM routes WHERE session_no = 5",
            "DELETE FROM participants WHERE session_no = 5",
            "DELETE FROM inbox WHERE turn_no = 10",
            "DELETE FROM outbox WHERE id / 1024 = 10",
        ],
        "1 is missing: session 5",
        store=5,
    ),
    Kind(
        ["DELETE FROM routes WHERE key = 'agent:main:telegram:dm:7'"],
        "every open session has a route",
        postgres=True,
        store=3,
    ),
    Kind(
        ["UPDATE routes SET session_no = 99 WHERE key = 'agent:main:telegram:dm:7'"],
        "every route points to a session that exists",
        store=4,
    ),
    Kind(
        ["UPDATE routes SET session_no = 2 WHERE key = 'agent:main:telegram:dm:7'"],
        "the route of a conversation points to its open session",
        store=5,
    ),
    Kind(
        ["INSERT INTO routes (key, session_no, address) VALUES ('agent:main:telegram:dm:77', 99, '{}')"],
        "route agent:main:telegram:dm:77 cannot be read",
        store=4,
    ),
    Kind(
        ["UPDATE routes SET address = 'x' WHERE key = 'agent:main:telegram:dm:7'"],
        "route agent:main:telegram:dm:7 cannot be read",
        postgres=True,
        store=2,
    ),
    Kind(
        ["UPDATE routes SET settings = 'x' WHERE key = 'agent:main:telegram:dm:7'"],
        "route agent:main:telegram:dm:7 cannot be read",
        store=4,
    ),
    Kind(
        ["INSERT INTO routes (key, session_no, address) VALUES ('nonsense', 1, '{}')"],
        "route nonsense cannot be read",
        store=4,
    ),
    Kind(
        ["INSERT INTO participants (identity, session_no) VALUES ('telegram:7', 99)"],
        "every participant belongs to a session that exists",
        postgres=True,
        store=2,
    ),
    Kind(["UPDATE operations SET details = '{' WHERE no = 2"], "operation 2 cannot be read", postgres=True, store=2),
    Kind(["UPDATE operations SET kind = 'magic' WHERE no = 1"], "operation 1 cannot be read", store=4),
    Kind(
        ["UPDATE operations SET session_no = 99 WHERE no = 1"],
        "every operation belongs to a session that exists",
        postgres=True,
        store=3,
    ),
    Kind(
        [("UPDATE entries SET hidden_by = 2 WHERE id = ?", (entry(8),))],
        "every hidden entry was hidden by an operation on its session",
        store=5,
    ),
    Kind(
        ["DELETE FROM operations WHERE kind = 'attach'"],
        "every attached chat was attached by an operation that exists",
        postgres=True,
        store=3,
    ),
    Kind(
        [
            (
                "INSERT INTO outbox (id, cause_kind, cause_id, cause_detail, part, account, chat, state, due, created,"
                " body, checksum) SELECT -7, 'handed-off', '99', '', 0, account, chat, 'delivered', due, created, body,"
                " checksum FROM outbox WHERE id = -1"
            )
        ],
        "every notice about an operation belongs to one that exists",
        postgres=True,
        store=3,
    ),
    Kind(
        ["INSERT INTO mentions (inbox_no, session_no) VALUES (999, 1)"],
        "every mention belongs to a message that exists",
        store=5,
    ),
    Kind(
        ["INSERT INTO mentions (inbox_no, session_no) VALUES (1, 99)"],
        "every mentioned session belongs to a session that exists",
        store=5,
    ),
    Kind(
        ["INSERT INTO session_marks (identity, session_no, pinned) VALUES ('web:owner', 99, 1)"],
        "every mark belongs to a session that exists",
        store=5,
    ),
    Kind(
        [
            (
                "INSERT INTO memory_notes (no, profile, identity, text, created, replaced_by)"
                " VALUES (9, 'main', 'telegram:7', 'tea', 1, 99)"
            )
        ],
        "every replaced note belongs to a note that exists",
        store=5,
    ),
    Kind(
        ["INSERT INTO result_requests (identity, request_key, digest, inbox_no) VALUES ('api:owner', '/k', 'd', 999)"],
        "every request with results belongs to a message that exists",
        store=5,
    ),
    Kind(
        [
            (
                "INSERT INTO attached_chats (place, key, since, operation)"
                " VALUES ('agent:main:telegram:dm:78', 'agent:main:telegram:dm:12', 0, 1)"
            )
        ],
        "no chat is attached to a conversation that is itself attached elsewhere",
        store=5,
    ),
    Kind(
        ["UPDATE attached_chats SET key = 'nonsense'"],
        "attached chat agent:main:telegram:dm:12 cannot be read",
        postgres=True,
        store=2,
    ),
)

PEOPLE = (
    Kind(
        ["DELETE FROM people WHERE id = (SELECT person FROM identities WHERE identity = 'telegram:7')"],
        "every identity belongs to a person that exists",
        store=2,
    ),
    Kind(
        ["DELETE FROM identities WHERE identity = 'matrix:ben'"],
        "every other linked account belongs to an identity that exists",
        postgres=True,
        store=1,
    ),
    Kind(
        ["DELETE FROM identities WHERE identity IN ('matrix:ben', 'telegram:8')"],
        "every linked account belongs to an identity that exists",
        store=3,
    ),
    Kind(
        ["UPDATE grants SET effect = 'perhaps' WHERE user_id = '7'"], "grant 2 cannot be read", postgres=True, store=1
    ),
    Kind(["UPDATE grants SET role = 'king' WHERE user_id = '7'"], "grant 2 cannot be read", store=3),
    Kind(
        ["UPDATE access_log SET details = '{' WHERE no = 1"], "access log row 1 cannot be read", postgres=True, store=1
    ),
    Kind(
        ["UPDATE home_channels SET address = '{'"], "home channel main telegram cannot be read", postgres=True, store=1
    ),
    Kind(["UPDATE api_tokens SET rights = 'fly'"], "token 1 cannot be read", postgres=True, store=2),
    Kind(["UPDATE pairings SET inbox_no = 999"], "every request for access belongs to a message that exists", store=4),
    Kind(
        ["INSERT INTO erasures (subject, requested, actor) VALUES ('{', 1, 'operator')"],
        "erasure 1 cannot be read",
        postgres=True,
        store=2,
    ),
    Kind(
        ["INSERT INTO erased_digests (erasure, kind, digest) VALUES (99, 'entry', 'x')"],
        "every digest of an erasure belongs to an erasure that exists",
        store=4,
    ),
)

JOBS = (
    Kind(["UPDATE schedules SET rule = 'sometimes' WHERE no = 1"], "job 1 cannot be read", postgres=True, store=1),
    Kind(["UPDATE schedules SET origin = '{' WHERE no = 2"], "job 2 cannot be read", store=3),
    Kind(["DELETE FROM schedules WHERE no = 2"], "every firing belongs to a job that exists", postgres=True, store=1),
    Kind(
        ["UPDATE firings SET inbox_no = NULL WHERE schedule_no = 1"],
        "every firing of a job has a message, or says why it did not run",
        postgres=True,
        store=2,
    ),
    Kind(
        ["INSERT INTO firings (schedule_no, at, inbox_no) VALUES (1, 9, 5)"],
        "every message belongs to at most one firing of a job",
        postgres=True,
        store=1,
    ),
    Kind([("UPDATE processes SET origin = ? WHERE no = 1", (NO_JSON,))], "p1 cannot be read", postgres=True, store=1),
    Kind(["UPDATE processes SET started = 4000000000000000000 WHERE no = 2"], "p2 cannot be read", store=3),
    Kind(
        ["UPDATE processes SET session_no = 99 WHERE no = 2"],
        "every process belongs to a session that exists",
        postgres=True,
        store=2,
    ),
)
