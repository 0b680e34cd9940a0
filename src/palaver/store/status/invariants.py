"""What must hold in every database, as queries for the rows that break it."""

from collections.abc import Sequence
from typing import NamedTuple

from palaver.db.transaction import Statements, transaction
from palaver.model.turn import InboxState, OutboxState, TurnState
from palaver.store.damage.health_check import REPORT_A_BUG
from palaver.store.queue.cause import CAUSE_COLUMNS, OF_OPERATION
from palaver.store.queue.inbox import ADDRESS_COLUMNS, OPEN_TURN
from palaver.store.records import REPLIES, SEQS, USAGE_COLUMNS


class Invariant(NamedTuple):
    promise: str
    sentence: str
    offenders: str
    """SQL that returns one value for each row that breaks it. Every `?` in it is the current time."""
    fix: str = f"keep a copy of the database and report a bug: {REPORT_A_BUG}"


class Violation(NamedTuple):
    invariant: Invariant
    times: int
    examples: tuple[str, ...]


PROMISES = {
    "P1": "nothing accepted is lost",
    "P2": "nothing is done twice",
    "P3": "nobody sees another's conversation",
    "P4": "nothing is irreversible",
}
RELATIONS = (
    ("identity", "a person that exists", ("identities", "identity", "person"), ("people", "id")),
    ("linked account", "an identity that exists", ("links", "no", "one"), ("identities", "identity")),
    ("other linked account", "an identity that exists", ("links", "no", "other"), ("identities", "identity")),
    ("mention", "a message that exists", ("mentions", "inbox_no", "inbox_no"), ("inbox", "no")),
    ("mentioned session", "a session that exists", ("mentions", "session_no", "session_no"), ("sessions", "no")),
    ("request with results", "a message that exists", ("result_requests", "inbox_no", "inbox_no"), ("inbox", "no")),
    ("request for access", "a message that exists", ("pairings", "identity", "inbox_no"), ("inbox", "no")),
    ("mark", "a session that exists", ("session_marks", "session_no", "session_no"), ("sessions", "no")),
    ("operation", "a session that exists", ("operations", "no", "session_no"), ("sessions", "no")),
    ("process", "a session that exists", ("processes", "no", "session_no"), ("sessions", "no")),
    ("digest of an erasure", "an erasure that exists", ("erased_digests", "erasure", "erasure"), ("erasures", "no")),
    ("firing", "a job that exists", ("firings", "schedule_no", "schedule_no"), ("schedules", "no")),
)
"""What refers to what, where neither the schema nor another rule says it: table, name and column; table and key."""
UNKNOWN_MESSAGE, UNKNOWN_TURN, UNKNOWN_SEND = (
    f"state NOT IN {tuple(each.value for each in states)}" for states in (InboxState, TurnState, OutboxState)
)
_ADDRESS = f"{ADDRESS_COLUMNS}, version, retried_in"
_TURN_SUMS = ", ".join(f"sum({name}) AS {name}" for name in USAGE_COLUMNS)
_OF_OPERATION = ", ".join(f"'{kind.value}'" for kind in sorted(OF_OPERATION))
_RULES = {
    "P1": {
        "every received message has a known state": f"SELECT no FROM inbox WHERE {UNKNOWN_MESSAGE}",
        "every message in a turn points to a turn of its conversation": (
            "SELECT i.no FROM inbox i WHERE i.state = 'in-turn'"
            " AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.no = i.turn_no AND t.key = i.key)"
        ),
        "a message with a turn has the state in-turn": (
            "SELECT no FROM inbox WHERE state <> 'in-turn' AND turn_no IS NOT NULL"
        ),
        "a conversation is in the ready queue exactly while messages wait in it": (
            "SELECT key FROM ready_queue q WHERE NOT EXISTS"
            " (SELECT 1 FROM inbox i WHERE i.key = q.key AND i.state = 'waiting')"
            " UNION ALL SELECT DISTINCT key FROM inbox i WHERE i.state = 'waiting'"
            " AND NOT EXISTS (SELECT 1 FROM ready_queue q WHERE q.key = i.key)"
        ),
        "every waiting message has content": "SELECT no FROM inbox WHERE state = 'waiting' AND length(body) = 0",
        "every turn has a known state": f"SELECT no FROM turns WHERE {UNKNOWN_TURN}",
        "every send has a known state": f"SELECT id FROM outbox WHERE {UNKNOWN_SEND}",
        "a claimed send has a worker and a deadline, and no other send has": (
            "SELECT id FROM outbox WHERE (state = 'claimed') <> (worker IS NOT NULL AND claim_until IS NOT NULL)"
        ),
        "every firing of a job has a message, or says why it did not run": (
            "SELECT schedule_no FROM firings WHERE (inbox_no IS NULL) <> (reason IS NOT NULL)"
        ),
        "the usage of every turn that ended is counted or waits to be": (
            "SELECT name FROM (SELECT 'summed' AS name) w WHERE coalesce((SELECT CAST(value AS BIGINT) FROM meta"
            " WHERE name = 'summed'), -1) NOT BETWEEN 0 AND (SELECT coalesce(max(pos), 0) FROM journal)"
        ),
    },
    "P2": {
        "a conversation has at most one open session": (
            "SELECT key FROM sessions WHERE ended IS NULL GROUP BY key HAVING count(*) > 1"
        ),
        "a conversation has at most one open turn": (
            f"SELECT key FROM turns WHERE state IN {OPEN_TURN} GROUP BY key HAVING count(*) > 1"
        ),
        "a message is received once": (
            f"SELECT max(no) FROM inbox WHERE message_id IS NOT NULL GROUP BY {_ADDRESS} HAVING count(*) > 1"
        ),
        "a notice is sent once": (
            f"SELECT max(id) FROM outbox WHERE cause_kind IS NOT NULL GROUP BY {CAUSE_COLUMNS} HAVING count(*) > 1"
        ),
        "a title names one session of its owner": (
            "SELECT max(no) FROM sessions WHERE title IS NOT NULL GROUP BY owner, title HAVING count(*) > 1"
        ),
        "an id names one session": "SELECT max(no) FROM sessions GROUP BY id HAVING count(*) > 1",
        "the entries of a turn are in its session": (
            f"SELECT DISTINCT t.no FROM entries e JOIN turns t ON t.no = e.turn_no"
            f" JOIN sessions s ON s.no = e.id / {SEQS}"
            f" WHERE s.no <> t.session_no AND e.id % {SEQS} > coalesce(s.parent_seq, 0)"
        ),
        "a session has counted what its turns used": (
            f"SELECT s.no FROM sessions s JOIN (SELECT session_no, {_TURN_SUMS} FROM turns GROUP BY session_no) t"
            f" ON t.session_no = s.no WHERE {' OR '.join(f's.{name} < t.{name}' for name in USAGE_COLUMNS)}"
        ),
        "only finished turns have replies in the outbox": (
            f"SELECT o.id FROM outbox o LEFT JOIN turns t ON t.no = o.id / {REPLIES}"
            f" WHERE o.id > 0 AND (t.no IS NULL OR t.state IN {OPEN_TURN})"
        ),
        "the replies of a turn are numbered without gaps": (
            f"SELECT o.id FROM outbox o WHERE o.id > 0 AND (o.cause_kind IS NOT NULL OR (o.id % {REPLIES} > 0"
            " AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.id = o.id - 1)))"
        ),
        "every message belongs to at most one firing of a job": (
            "SELECT inbox_no FROM firings WHERE inbox_no IS NOT NULL GROUP BY inbox_no HAVING count(*) > 1"
        ),
        "a turn has an end time exactly when it is done or failed": (
            f"SELECT no FROM turns WHERE (state IN {OPEN_TURN}) <> (ended IS NULL)"
        ),
        "the session of an open turn belongs to the turn's conversation": (
            "SELECT t.no FROM turns t JOIN sessions s ON s.no = t.session_no"
            f" WHERE t.state IN {OPEN_TURN} AND s.key <> t.key"
        ),
    },
    "P3": {
        "every turn belongs to a session that exists": (
            "SELECT no FROM turns WHERE session_no NOT IN (SELECT no FROM sessions)"
        ),
        "every entry belongs to a session that exists and has a number below its next": (
            f"SELECT e.id FROM entries e LEFT JOIN sessions s ON s.no = e.id / {SEQS}"
            f" WHERE s.no IS NULL OR e.id % {SEQS} >= s.next_seq"
        ),
        "every participant belongs to a session that exists": (
            "SELECT session_no FROM participants WHERE session_no NOT IN (SELECT no FROM sessions)"
        ),
        "every waiting message was sent in its own conversation or in a chat attached to it": (
            "SELECT i.no FROM inbox i LEFT JOIN attached_chats a ON a.place = coalesce(i.place, i.key)"
            " WHERE i.state = 'waiting' AND i.key <> coalesce(a.key, i.place, i.key)"
        ),
        **{
            f"every {what} belongs to {whose}": f"SELECT {name} FROM {table} r WHERE {column} IS NOT NULL"
            f" AND NOT EXISTS (SELECT 1 FROM {target} x WHERE x.{key} = r.{column})"
            for what, whose, (table, name, column), (target, key) in RELATIONS
        },
        "every file belongs to an entry or a message": (
            "SELECT DISTINCT sha256 FROM attachments a WHERE (kind = 'entry' AND NOT EXISTS (SELECT 1 FROM entries e"
            " WHERE e.id = a.holder)) OR (kind = 'in' AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.no = a.holder))"
            " OR kind NOT IN ('entry', 'in', 'out')"
        ),
        "no chat is attached to a conversation that is itself attached elsewhere": (
            "SELECT a.place FROM attached_chats a JOIN attached_chats b ON b.place = a.key"
        ),
    },
    "P4": {
        "every hidden entry was hidden by an operation on its session": (
            "SELECT e.id FROM entries e LEFT JOIN operations o ON o.no = e.hidden_by"
            f" WHERE e.hidden_by IS NOT NULL AND (o.no IS NULL OR o.session_no <> e.id / {SEQS})"
        ),
        # A session that was deleted took its operations along, and the journal tells no more than that.
        "every attached chat was attached by an operation that exists": (
            "SELECT place FROM attached_chats a WHERE NOT EXISTS (SELECT 1 FROM operations o WHERE o.no = a.operation)"
            " AND NOT EXISTS (SELECT 1 FROM journal d LEFT JOIN sessions s ON s.no = d.session_no"
            " WHERE d.kind = 'delete' AND s.no IS NULL)"
        ),
        "every notice about an operation belongs to one that exists": (
            f"SELECT id FROM outbox c WHERE cause_kind IN ({_OF_OPERATION})"
            " AND NOT EXISTS (SELECT 1 FROM operations o WHERE CAST(o.no AS TEXT) = c.cause_id)"
        ),
        "no visible entry comes before the point where reading its session starts": (
            f"SELECT e.id FROM entries e JOIN sessions s ON s.no = e.id / {SEQS}"
            f" WHERE e.hidden_by IS NULL AND e.id % {SEQS} < s.shown_from"
        ),
        "every route points to a session that exists": (
            "SELECT key FROM routes WHERE session_no NOT IN (SELECT no FROM sessions)"
        ),
        "the route of a conversation points to its open session": (
            "SELECT s.key FROM sessions s LEFT JOIN routes r ON r.key = s.key WHERE s.ended IS NULL"
            " AND (r.session_no IS NULL OR r.session_no <> s.no)"
        ),
    },
}
INVARIANTS = tuple(
    Invariant(promise, sentence, sql) for promise, rules in _RULES.items() for sentence, sql in rules.items()
)

_MINUTE_MICROS = 60_000_000
_GATEWAY_RUNS = "EXISTS (SELECT 1 FROM accounts WHERE lease_until > ?)"
_RESTART = "restart the gateway, which resumes interrupted work; then read its log"
DEADLINES = (
    Invariant(
        "P1",
        "while a gateway runs, no message waits longer than ten minutes unless a turn is open before it",
        f"SELECT 'in:' || i.no FROM inbox i WHERE i.state = 'waiting' AND i.received + {10 * _MINUTE_MICROS} < ?"
        f" AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.key = i.key AND t.state IN {OPEN_TURN}) AND {_GATEWAY_RUNS}",
        "raise limits.concurrent_turns if the gateway is overloaded; otherwise " + _RESTART,
    ),
    Invariant(
        "P1",
        "while a gateway runs, no turn is without a live worker for more than five minutes",
        f"SELECT 'turn:' || t.no FROM turns t WHERE ((t.state = 'running' AND t.lease_until + {5 * _MINUTE_MICROS} < ?)"
        f" OR (t.state = 'interrupted' AND t.halted + {5 * _MINUTE_MICROS} < ?)) AND {_GATEWAY_RUNS}",
        _RESTART,
    ),
    Invariant(
        "P1",
        "while a gateway runs, no background process is without one for more than five minutes",
        f"SELECT 'p' || no FROM processes WHERE ended IS NULL AND lease_until + {5 * _MINUTE_MICROS} < ?"
        f" AND {_GATEWAY_RUNS}",
        "start the gateway on the machine that palaver processes list names; after a day the process counts as lost",
    ),
    Invariant(
        "P1",
        "while a gateway runs, the end of every background process is reported within five minutes",
        f"SELECT 'p' || no FROM processes WHERE exit_notice = 'due' AND ended + {5 * _MINUTE_MICROS} < ?"
        f" AND {_GATEWAY_RUNS}",
        _RESTART,
    ),
    Invariant(
        "P1",
        "while a gateway runs, no send stays claimed for more than five minutes by a dead worker",
        f"SELECT 'out:' || o.id FROM outbox o WHERE o.state = 'claimed' AND o.claim_until + {5 * _MINUTE_MICROS} < ?"
        f" AND {_GATEWAY_RUNS}",
        _RESTART,
    ),
    Invariant(
        "P1",
        "while a gateway serves an account, the first send of each chat is at most ten minutes overdue",
        f"SELECT 'out:' || o.id FROM outbox o WHERE o.state = 'due' AND o.due + {10 * _MINUTE_MICROS} < ?"
        " AND EXISTS (SELECT 1 FROM accounts a WHERE a.platform || ':' || a.account = o.account AND a.lease_until > ?)"
        " AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.account = o.account AND e.chat = o.chat"
        "  AND e.state IN ('due', 'claimed') AND (e.created, e.id) < (o.created, o.id))",
        _RESTART,
    ),
    Invariant(
        "P1",
        "while a gateway runs, no job is more than ten minutes overdue",
        "SELECT 'job:' || s.no FROM schedules s WHERE s.paused IS NULL AND s.next_due IS NOT NULL"
        f" AND s.next_due + {10 * _MINUTE_MICROS} < ? AND {_GATEWAY_RUNS}",
        _RESTART,
    ),
    Invariant(
        "P2",
        "no send is unclear",
        "SELECT 'out:' || id FROM outbox WHERE state = 'unclear'",
        "check the chat, then run palaver trace out:N --delivered if it arrived, or palaver trace out:N --again",
    ),
)
"""What must be done in time while a gateway runs, or needs a person."""
_MAX_EXAMPLES = 5


@transaction
def violations() -> Statements[list[Violation]]:
    """Return every broken invariant, with the number of rows and a few of them."""
    return (yield from find_broken(INVARIANTS))


@transaction
def find_broken(invariants: Sequence[Invariant], now_micros: int = 0) -> Statements[list[Violation]]:
    found: list[Violation] = []
    for invariant in invariants:
        values = (now_micros,) * invariant.offenders.count("?")
        rows = yield f"SELECT count(*) FROM ({invariant.offenders}) AS broken", values
        if rows[0][0]:
            examples = yield f"{invariant.offenders} LIMIT {_MAX_EXAMPLES}", values
            found.append(Violation(invariant, rows[0][0], tuple(str(row[0]) for row in examples)))
    return found
