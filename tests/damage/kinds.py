"""Kinds of damage as statements, the words in which doctor names each, and what is there after a repair."""

from collections.abc import Sequence
from typing import NamedTuple

from palaver.db.transaction import Row, Statements, Value, transaction

SEQS = 1 << 24
LOST = "(This text was lost: its row in the database was damaged.)"
NO_JSON = b"\x00\xff no JSON at all"
NOTICE_AGAIN = (
    "INSERT INTO outbox (id, cause_kind, cause_id, cause_detail, part, account, chat, state, due, created, body)"
    " SELECT ?, cause_kind, cause_id, cause_detail, part, account, chat, ?, due, created, body FROM outbox"
    " WHERE id = -1"
)
Statement = str | tuple[str, tuple[Value, ...]]


class Kind(NamedTuple):
    name: str
    damage: Sequence[Statement]
    seen: str
    """In the name or the finding of a check that fails."""
    after: str = "SELECT 1"
    """A query after the repair."""
    gives: object = 1
    """Its first value, or all rows of it."""
    postgres: bool = False
    """It is tried on PostgreSQL as well."""
    usable: bool = True
    """Others go on before the repair."""
    store: int | None = None
    """Kinds with the same number are made in one store: they do not disturb each other, and it saves time."""


@transaction
def run(statement: Statement) -> Statements[list[Row]]:
    sql, values = (statement, ()) if isinstance(statement, str) else statement
    return (yield sql, values)


def entry(seq: int, session: int = 1) -> int:
    return session * SEQS + seq


def text_of(seq: int, session: int = 1) -> str:
    return f"SELECT body FROM entries WHERE id = {entry(seq, session)}"  # noqa: S608


def aside(table: str, row: str) -> str:
    return f"SELECT count(DISTINCT row_name) FROM set_aside WHERE from_table = '{table}' AND row_name = '{row}'"  # noqa: S608


SCHEMA = (
    Kind(
        "a unique index is dropped",
        ["DROP INDEX one_open_session_per_key"],
        "index sessions.one_open_session_per_key is missing",
        postgres=True,
        store=1,
    ),
    Kind(
        "another unique index is dropped",
        ["DROP INDEX inbox_received_once"],
        "inbox_received_once is missing",
        usable=False,
        store=10,
    ),
    Kind(
        "an index is dropped",
        ["DROP INDEX outbox_due"],
        "index outbox.outbox_due is missing",
        postgres=True,
        store=1,
    ),
    Kind(
        "an index has other columns",
        ["DROP INDEX sessions_by_key", "CREATE INDEX sessions_by_key ON sessions (owner)"],
        "index sessions.sessions_by_key differs",
        postgres=True,
        store=1,
    ),
    Kind(
        "an index has lost its condition",
        ["DROP INDEX outbox_due", "CREATE INDEX outbox_due ON outbox (account, due)"],
        "index outbox.outbox_due differs",
        store=3,
    ),
    Kind(
        "a table is dropped",
        ["DROP TABLE mentions"],
        "table mentions is missing",
        postgres=True,
        usable=False,
        store=9,
    ),
    Kind(
        "a column is dropped",
        ["ALTER TABLE inbox DROP COLUMN checksum"],
        "column inbox.checksum is missing",
        "SELECT min(CASE WHEN checksum IS NULL THEN 1 ELSE 0 END) FROM inbox",
        postgres=True,
        usable=False,
        store=9,
    ),
    Kind(
        "a column that must not be empty is dropped",
        ["ALTER TABLE usage DROP COLUMN turns"],
        "column usage.turns is missing",
        postgres=True,
        usable=False,
        store=9,
    ),
    Kind(
        "a trigger swallows what is sent",
        ["CREATE TRIGGER thief BEFORE INSERT ON outbox BEGIN SELECT RAISE(IGNORE); END"],
        "trigger outbox.thief is unexpected",
        aside("schema", "trigger outbox.thief is unexpected"),
        usable=False,
        store=9,
    ),
    Kind(
        "a unique index refuses what is received",
        ["CREATE UNIQUE INDEX jealous ON turns (started)"],
        "index turns.jealous is unexpected",
        aside("schema", "index turns.jealous is unexpected"),
        postgres=True,
        usable=False,
        store=9,
    ),
    Kind(
        "a conversation has two open sessions",
        [
            "DROP INDEX one_open_session_per_key",
            "UPDATE sessions SET ended = NULL, end_reason = NULL WHERE no = 3",
        ],
        "a conversation has at most one open session",
        "SELECT no FROM sessions WHERE key = 'agent:main:telegram:dm:10' AND ended IS NULL",
        4,
        postgres=True,
        store=2,
    ),
    Kind(
        "a conversation has two open turns",
        [
            "DROP INDEX one_open_turn_per_key",
            "UPDATE turns SET state = 'interrupted', ended = NULL, halted = 1 WHERE no IN (8, 9)",
            "UPDATE turns SET session_no = 4 WHERE no = 8",
            "DELETE FROM outbox WHERE id / 1024 IN (8, 9)",
        ],
        "a conversation has at most one open turn",
        "SELECT count(*) FROM turns WHERE key = 'agent:main:telegram:dm:10' AND state = 'interrupted'",
        store=5,
    ),
    Kind(
        "a message was received twice",
        [
            "DROP INDEX inbox_received_once",
            (
                "INSERT INTO inbox (platform, account, chat, message_id, key, state, received, identity, body)"
                " SELECT platform, account, chat, message_id, key, 'waiting', received, identity, body FROM inbox"
                " WHERE no = 1"
            ),
        ],
        "a message is received once",
        "SELECT state FROM inbox ORDER BY no DESC LIMIT 1",
        "done",
        usable=False,
        store=9,
    ),
    Kind(
        "a notice is owed twice",
        [
            "DROP INDEX outbox_sent_once",
            (NOTICE_AGAIN, (-9, "due")),
        ],
        "a notice is sent once",
        aside("outbox", "-9"),
        usable=False,
        store=10,
    ),
    Kind(
        "a notice that was sent is owed twice more",
        [
            "DROP INDEX outbox_sent_once",
            *((NOTICE_AGAIN, (id_, state)) for id_, state in ((-8, "delivered"), (-9, "due"))),
        ],
        "a notice is sent once",
        "SELECT id FROM outbox WHERE cause_kind = 'command' AND cause_id = '1'",
        [(-8,)],
        usable=False,
    ),
    Kind(
        "a title names two sessions",
        [
            "DROP INDEX title_unique_per_owner",
            "UPDATE sessions SET title = 'Fruit', owner = 'telegram:7' WHERE no = 5",
        ],
        "a title names one session of its owner",
        "SELECT title FROM sessions WHERE no = 5",
        "Fruit #2",
        postgres=True,
        store=3,
    ),
)

ENTRIES = (
    Kind(
        "what somebody said is no JSON",
        [("UPDATE entries SET body = ? WHERE id = ?", (NO_JSON, entry(1)))],
        "entry 1 of session",
        text_of(1),
        "apples",
        postgres=True,
        store=1,
    ),
    Kind(
        "an answer is cut off",
        [("UPDATE entries SET body = substr(body, 1, 20) WHERE id = ?", (entry(2),))],
        "entry 2 of session",
        text_of(2),
        "red apples",
        postgres=True,
        store=1,
    ),
    Kind(
        "a note is empty",
        [("UPDATE entries SET body = ? WHERE id = ?", (b"", entry(7)))],
        "entry 7 of session",
        aside("entries", "16777223"),
        postgres=True,
        store=1,
    ),
    Kind(
        "an entry is another form of JSON",
        [("UPDATE entries SET body = ? WHERE id = ?", (b"{}", entry(5)))],
        "entry 5 of session",
        text_of(5),
        "figs",
        store=3,
    ),
    Kind(
        "an entry is not UTF-8",
        [("UPDATE entries SET body = ? WHERE id = ?", (b'[3,"user","2026-03-01T12:00:00Z","\xff\xfe"]', entry(3)))],
        "entry 3 of session",
        text_of(3),
        "pears",
        store=4,
    ),
    Kind(
        "an entry is two entries",
        [("UPDATE entries SET body = CAST(body || ? AS BLOB) WHERE id = ?", (b",[9]", entry(3)))],
        "entry 3 of session",
        text_of(3),
        "pears",
        store=4,
    ),
    Kind(
        "a letter of what somebody said is another",
        [
            (
                "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'apples', 'bpples') AS BLOB) WHERE id = ?",
                (entry(1),),
            )
        ],
        "entry 1 of session",
        text_of(1),
        '"apples"',
        store=4,
    ),
    Kind(
        "an answer was changed",
        [
            (
                "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'red', 'bad') AS BLOB) WHERE id = ?",
                (entry(2),),
            )
        ],
        "entry 2 of session",
        aside("entries", "16777218"),
        store=4,
    ),
    Kind(
        "the bodies of two entries are swapped",
        [
            (
                "UPDATE entries SET body = (SELECT body FROM entries e WHERE e.id = ?) WHERE id = ?",
                (entry(3), entry(1)),
            ),
        ],
        "entry 1 of session",
        text_of(1),
        "apples",
        store=5,
    ),
    Kind(
        "an entry is in somebody else's session",
        [("UPDATE entries SET id = ? WHERE id = ?", (entry(900, 2), entry(2)))],
        "entry 900 of session",
        text_of(2),
        "red apples",
        postgres=True,
        store=3,
    ),
    Kind(
        "an entry has another place in its session",
        [("UPDATE entries SET id = ? WHERE id = ?", (entry(900), entry(2)))],
        "entry 900 of session",
        text_of(2),
        "red apples",
        store=5,
    ),
    Kind(
        "an entry has another role",
        [("UPDATE entries SET role = 'assistant' WHERE id = ?", (entry(1),))],
        "entry 1 of session",
        f"SELECT role FROM entries WHERE id = {entry(1)}",  # noqa: S608
        "user",
        postgres=True,
        store=2,
    ),
    Kind(
        "an entry belongs to another turn",
        [("UPDATE entries SET turn_no = 2 WHERE id = ?", (entry(1),))],
        "entry 1 of session",
        f"SELECT turn_no FROM entries WHERE id = {entry(1)}",  # noqa: S608
        1,
        store=6,
    ),
    Kind(
        "an answer is deleted",
        [("DELETE FROM entries WHERE id = ?", (entry(2),))],
        "1 is missing: entry 2 of session",
        text_of(2),
        "red apples",
        postgres=True,
        store=3,
    ),
    Kind(
        "what somebody said is deleted",
        [("DELETE FROM entries WHERE id = ?", (entry(3),))],
        "1 is missing: entry 3 of session",
        text_of(3),
        "pears",
        store=4,
    ),
    Kind(
        "a note is deleted",
        [("DELETE FROM entries WHERE id = ?", (entry(7),))],
        "1 is missing: entry 7 of session",
        aside("entries", "16777223"),
        store=6,
    ),
    Kind(
        "a whole turn is deleted from the transcript",
        [("DELETE FROM entries WHERE id IN (?, ?)", (entry(3), entry(4)))],
        "2 are missing: entry 3 of session",
        text_of(3),
        "pears",
        store=7,
    ),
    Kind(
        "the newest entries are deleted",
        [("DELETE FROM entries WHERE id > ? AND id < ?", (entry(9), entry(100)))],
        "are missing: entry 10 of session",
        text_of(10),
        "limes",
        store=8,
    ),
    Kind(
        "entries belong to no operation",
        ["DELETE FROM operations WHERE no = 1"],
        "every hidden entry was hidden by an operation on its session",
        "SELECT kind FROM operations WHERE no = 1",
        "undo",
        postgres=True,
        store=2,
    ),
    Kind(
        "reading starts too late",
        ["UPDATE sessions SET shown_from = 3 WHERE no = 1"],
        "no visible entry comes before the point",
        "SELECT shown_from FROM sessions WHERE no = 1",
        1,
        store=5,
    ),
    Kind(
        "the next entry would replace one",
        ["UPDATE sessions SET next_seq = 3 WHERE no = 1"],
        "has a number below its next",
        "SELECT next_seq FROM sessions WHERE no = 1",
        12,
        store=5,
    ),
)
