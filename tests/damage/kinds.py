"""Kinds of damage as statements, and the words in which doctor names each."""

from collections.abc import Sequence
from typing import NamedTuple

from palaver.db.transaction import Row, Statements, Value, transaction

SEQS = 1 << 24
NO_JSON = b"\x00\xff no JSON at all"
NOTICE_AGAIN = (
    "INSERT INTO outbox (id, cause_kind, cause_id, cause_detail, part, account, chat, state, due, created, body)"
    " SELECT ?, cause_kind, cause_id, cause_detail, part, account, chat, ?, due, created, body FROM outbox"
    " WHERE id = -1"
)
Statement = str | tuple[str, tuple[Value, ...]]


class Kind(NamedTuple):
    damage: Sequence[Statement]
    seen: str
    """In the name or the finding of a check that fails."""
    postgres: bool = False
    """It is tried on PostgreSQL as well."""
    usable: bool = True
    """Others go on with it."""
    store: int | None = None
    """Kinds with the same number are made in one store: they do not disturb each other, and it saves time."""


@transaction
def run(statement: Statement) -> Statements[list[Row]]:
    sql, values = (statement, ()) if isinstance(statement, str) else statement
    return (yield sql, values)


def entry(seq: int, session: int = 1) -> int:
    return session * SEQS + seq


SCHEMA = (
    Kind(
        ["DROP INDEX one_open_session_per_key"],
        "index sessions.one_open_session_per_key is missing",
        postgres=True,
        store=1,
    ),
    Kind(["DROP INDEX inbox_received_once"], "inbox_received_once is missing", usable=False, store=10),
    Kind(["DROP INDEX outbox_due"], "index outbox.outbox_due is missing", postgres=True, store=1),
    Kind(
        ["DROP INDEX sessions_by_key", "CREATE INDEX sessions_by_key ON sessions (owner)"],
        "index sessions.sessions_by_key differs",
        postgres=True,
        store=1,
    ),
    Kind(
        ["DROP INDEX outbox_due", "CREATE INDEX outbox_due ON outbox (account, due)"],
        "index outbox.outbox_due differs",
        store=3,
    ),
    Kind(["DROP TABLE mentions"], "table mentions is missing", postgres=True, usable=False, store=9),
    Kind(
        ["ALTER TABLE inbox DROP COLUMN checksum"],
        "column inbox.checksum is missing",
        postgres=True,
        usable=False,
        store=9,
    ),
    Kind(
        ["ALTER TABLE usage DROP COLUMN turns"], "column usage.turns is missing", postgres=True, usable=False, store=9
    ),
    Kind(
        ["CREATE TRIGGER thief BEFORE INSERT ON outbox BEGIN SELECT RAISE(IGNORE); END"],
        "trigger outbox.thief is unexpected",
        usable=False,
        store=9,
    ),
    Kind(
        ["CREATE UNIQUE INDEX jealous ON turns (started)"],
        "index turns.jealous is unexpected",
        postgres=True,
        usable=False,
        store=9,
    ),
    Kind(
        ["DROP INDEX one_open_session_per_key", "UPDATE sessions SET ended = NULL, end_reason = NULL WHERE no = 3"],
        "index sessions.one_open_session_per_key is missing",
        postgres=True,
        store=2,
    ),
    Kind(
        [
            "DROP INDEX one_open_turn_per_key",
            "UPDATE turns SET state = 'interrupted', ended = NULL, halted = 1 WHERE no IN (8, 9)",
            "UPDATE turns SET session_no = 4 WHERE no = 8",
            "DELETE FROM outbox WHERE id / 1024 IN (8, 9)",
        ],
        "index turns.one_open_turn_per_key is missing",
        store=5,
    ),
    Kind(
        [
            "DROP INDEX inbox_received_once",
            (
                "INSERT INTO inbox (platform, account, chat, message_id, key, state, received, identity, body)"
                " SELECT platform, account, chat, message_id, key, 'waiting', received, identity, body FROM inbox"
                " WHERE no = 1"
            ),
        ],
        "index inbox.inbox_received_once is missing",
        usable=False,
        store=8,
    ),
    Kind(
        ["DROP INDEX outbox_sent_once", (NOTICE_AGAIN, (-9, "due"))],
        "index outbox.outbox_sent_once is missing",
        usable=False,
        store=10,
    ),
    Kind(
        [
            "DROP INDEX outbox_sent_once",
            *((NOTICE_AGAIN, (id_, state)) for id_, state in ((-8, "delivered"), (-9, "due"))),
        ],
        "index outbox.outbox_sent_once is missing",
        usable=False,
    ),
    Kind(
        ["DROP INDEX title_unique_per_owner", "UPDATE sessions SET title = 'Fruit', owner = 'telegram:7' WHERE no = 5"],
        "index sessions.title_unique_per_owner is missing",
        postgres=True,
        store=3,
    ),
)

ENTRIES = (
    Kind(
        [("UPDATE entries SET body = ? WHERE id = ?", (NO_JSON, entry(1)))],
        "entry 1 of session",
        postgres=True,
        store=1,
    ),
    Kind(
        [("UPDATE entries SET body = substr(body, 1, 20) WHERE id = ?", (entry(2),))],
        "entry 2 of session",
        postgres=True,
        store=1,
    ),
    Kind([("UPDATE entries SET body = ? WHERE id = ?", (b"", entry(7)))], "entry 7 of session", postgres=True, store=1),
    Kind([("UPDATE entries SET body = ? WHERE id = ?", (b"{}", entry(5)))], "entry 5 of session", store=3),
    Kind(
        [("UPDATE entries SET body = ? WHERE id = ?", (b'[3,"user","2026-03-01T12:00:00Z","\xff\xfe"]', entry(3)))],
        "entry 3 of session",
        store=4,
    ),
    Kind(
        [("UPDATE entries SET body = CAST(body || ? AS BLOB) WHERE id = ?", (b",[9]", entry(3)))],
        "entry 3 of session",
        store=4,
    ),
    Kind(
        [
            (
                "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'apples', 'bpples') AS BLOB) WHERE id = ?",
                (entry(1),),
            )
        ],
        "entry 1 of session",
        store=4,
    ),
    Kind(
        [
            (
                "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'red', 'bad') AS BLOB) WHERE id = ?",
                (entry(2),),
            )
        ],
        "entry 2 of session",
        store=4,
    ),
    Kind(
        [("UPDATE entries SET body = (SELECT body FROM entries e WHERE e.id = ?) WHERE id = ?", (entry(3), entry(1)))],
        "entry 1 of session",
        store=5,
    ),
    Kind(
        [("UPDATE entries SET id = ? WHERE id = ?", (entry(900, 2), entry(2)))],
        "entry 900 of session",
        postgres=True,
        store=3,
    ),
    Kind([("UPDATE entries SET id = ? WHERE id = ?", (entry(900), entry(2)))], "entry 900 of session", store=5),
    Kind(
        [("UPDATE entries SET role = 'assistant' WHERE id = ?", (entry(1),))],
        "entry 1 of session",
        postgres=True,
        store=2,
    ),
    Kind([("UPDATE entries SET turn_no = 2 WHERE id = ?", (entry(1),))], "entry 1 of session", store=6),
    Kind(
        [("DELETE FROM entries WHERE id = ?", (entry(2),))], "1 is missing: entry 2 of session", postgres=True, store=3
    ),
    Kind([("DELETE FROM entries WHERE id = ?", (entry(3),))], "1 is missing: entry 3 of session", store=4),
    Kind([("DELETE FROM entries WHERE id = ?", (entry(7),))], "1 is missing: entry 7 of session", store=6),
    Kind(
        [("DELETE FROM entries WHERE id IN (?, ?)", (entry(3), entry(4)))], "2 are missing: entry 3 of session", store=7
    ),
    Kind(
        [("DELETE FROM entries WHERE id > ? AND id < ?", (entry(9), entry(100)))],
        "are missing: entry 10 of session",
        store=8,
    ),
    Kind(
        ["DELETE FROM operations WHERE no = 1"],
        "every hidden entry was hidden by an operation on its session",
        postgres=True,
        store=2,
    ),
    Kind(["UPDATE sessions SET shown_from = 3 WHERE no = 1"], "no visible entry comes before the point", store=5),
    Kind(["UPDATE sessions SET next_seq = 3 WHERE no = 1"], "has a number below the next one", store=5),
)
