"""Invariants: what must hold in every database, as queries for whatever breaks it."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from palaver.db.transaction import Statements, transaction
from palaver.store.records import REPLIES, micros

__all__ = [
    "DEADLINES",
    "INVARIANTS",
    "PROMISES",
    "Invariant",
    "Violation",
    "overdue_work",
    "violations",
]


class Invariant(NamedTuple):
    promise: str
    sentence: str
    offenders: str
    """SQL that gives one value for each row that breaks it. Every `?` in it is the present."""
    mend: str = "keep a copy of the database and report this: it should not be possible"


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
INVARIANTS = (
    Invariant(
        "P1",
        "every message is waiting, in a turn, done, refused or failed",
        "SELECT no FROM inbox WHERE state NOT IN ('waiting', 'in-turn', 'done', 'refused', 'failed')",
    ),
    Invariant(
        "P1",
        "a message in a turn has that turn",
        "SELECT i.no FROM inbox i WHERE i.state = 'in-turn'"
        " AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.no = i.turn_no AND t.key = i.key)",
    ),
    Invariant(
        "P1",
        "a message of a turn has no state of its own: the turn's state counts",
        "SELECT no FROM inbox WHERE state <> 'in-turn' AND turn_no IS NOT NULL",
    ),
    Invariant(
        "P1",
        "a conversation stands in line exactly while messages wait in it",
        "SELECT key FROM lines l WHERE NOT EXISTS (SELECT 1 FROM inbox i WHERE i.key = l.key AND i.state = 'waiting')"
        " UNION ALL SELECT DISTINCT key FROM inbox i WHERE i.state = 'waiting'"
        " AND NOT EXISTS (SELECT 1 FROM lines l WHERE l.key = i.key)",
    ),
    Invariant(
        "P1",
        "every send is due, claimed, delivered, dead or unclear",
        "SELECT id FROM outbox WHERE state NOT IN ('due', 'claimed', 'delivered', 'dead', 'unclear')",
    ),
    Invariant(
        "P1",
        "a claimed send has an owner and an end",
        "SELECT id FROM outbox WHERE (state = 'claimed') <> (worker IS NOT NULL AND claim_until IS NOT NULL)",
    ),
    Invariant(
        "P2",
        "a conversation has at most one open session",
        "SELECT key FROM sessions WHERE ended IS NULL GROUP BY key HAVING count(*) > 1",
    ),
    Invariant(
        "P2",
        "a conversation has at most one open turn",
        "SELECT key FROM turns WHERE state IN ('running', 'parked', 'interrupted') GROUP BY key HAVING count(*) > 1",
    ),
    Invariant(
        "P2",
        "only a settled turn owes replies",
        f"SELECT o.id FROM outbox o LEFT JOIN turns t ON t.no = o.id / {REPLIES}"
        " WHERE o.id > 0 AND (t.no IS NULL OR t.state NOT IN ('done', 'failed'))",
    ),
    Invariant(
        "P2",
        "the replies of a turn are owed once, without a gap",
        f"SELECT o.id FROM outbox o WHERE o.id > 0 AND (o.dedup IS NOT NULL OR (o.id % {REPLIES} > 0"
        " AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.id = o.id - 1)))",
    ),
    Invariant(
        "P2",
        "a turn is over exactly when it has an end",
        "SELECT no FROM turns WHERE (state IN ('done', 'failed')) <> (ended IS NOT NULL)",
    ),
    Invariant(
        "P2",
        "a session does not change hands in the middle of a turn",
        "SELECT t.no FROM turns t JOIN sessions s ON s.no = t.session_no"
        " WHERE t.state IN ('running', 'parked', 'interrupted') AND s.key <> t.key",
    ),
    Invariant(
        "P3",
        "every turn runs in a session that exists",
        "SELECT t.no FROM turns t WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.no = t.session_no)",
    ),
    Invariant(
        "P3",
        "every entry belongs to a session and stands before its end",
        "SELECT e.id FROM entries e LEFT JOIN sessions s ON s.no = e.id / 16777216"
        " WHERE s.no IS NULL OR e.id % 16777216 >= s.next_seq",
    ),
    Invariant(
        "P3",
        "who may read a session is known for sessions that exist",
        "SELECT p.session_no FROM participants p WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.no = p.session_no)",
    ),
    Invariant(
        "P3",
        "what waits in a conversation was said in its own place, or in one that is attached to it",
        "SELECT i.no FROM inbox i LEFT JOIN attached a ON a.place = coalesce(i.place, i.key)"
        " WHERE i.state = 'waiting' AND i.key <> coalesce(a.key, i.place, i.key)",
    ),
    Invariant(
        "P3",
        "no place is attached by way of another",
        "SELECT a.place FROM attached a JOIN attached b ON b.place = a.key",
    ),
    Invariant(
        "P4",
        "what is hidden was hidden by an operation on its session",
        "SELECT e.id FROM entries e LEFT JOIN operations o ON o.no = e.hidden_by"
        " WHERE e.hidden_by IS NOT NULL AND (o.no IS NULL OR o.session_no <> e.id / 16777216)",
    ),
    Invariant(
        "P4",
        "nothing is shown before where its session is read from",
        "SELECT e.id FROM entries e JOIN sessions s ON s.no = e.id / 16777216"
        " WHERE e.hidden_by IS NULL AND e.id % 16777216 < s.shown_from",
    ),
    Invariant(
        "P4",
        "every route leads to a session",
        "SELECT r.key FROM routes r WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.no = r.session_no)",
    ),
    Invariant(
        "P4",
        "the open session of a key is where its route leads",
        "SELECT s.key FROM sessions s LEFT JOIN routes r ON r.key = s.key WHERE s.ended IS NULL"
        " AND (r.session_no IS NULL OR r.session_no <> s.no)",
    ),
)

_MINUTES = 60_000_000
_SOMEBODY_WORKS = "EXISTS (SELECT 1 FROM accounts WHERE lease_until > ?)"
_RESTART = "restart the gateway, which takes up everything that was cut off; then look into its log"
DEADLINES = (
    Invariant(
        "P1",
        "while a gateway is at work, no message waits for ten minutes without a turn before it",
        f"SELECT 'in:' || i.no FROM inbox i WHERE i.state = 'waiting' AND i.received + {10 * _MINUTES} < ?"
        " AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.key = i.key AND t.state IN"
        f" ('running', 'parked', 'interrupted')) AND {_SOMEBODY_WORKS}",
        "if the gateway has more to do than it can, let it do more at once; else " + _RESTART,
    ),
    Invariant(
        "P1",
        "while a gateway is at work, no turn is for five minutes without a living worker",
        f"SELECT 'turn:' || t.no FROM turns t WHERE ((t.state = 'running' AND t.lease_until + {5 * _MINUTES} < ?)"
        f" OR (t.state = 'interrupted' AND t.halted + {5 * _MINUTES} < ?)) AND {_SOMEBODY_WORKS}",
        _RESTART,
    ),
    Invariant(
        "P1",
        "while a gateway is at work, no send stays claimed for five minutes by one that is gone",
        f"SELECT 'out:' || o.id FROM outbox o WHERE o.state = 'claimed' AND o.claim_until + {5 * _MINUTES} < ?"
        f" AND {_SOMEBODY_WORKS}",
        _RESTART,
    ),
    Invariant(
        "P1",
        "while a gateway serves an account, nothing that is first in its chat is overdue by ten minutes",
        f"SELECT 'out:' || o.id FROM outbox o WHERE o.state = 'due' AND o.due + {10 * _MINUTES} < ?"
        " AND EXISTS (SELECT 1 FROM accounts a WHERE a.platform || ':' || a.account = o.account AND a.lease_until > ?)"
        " AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.account = o.account AND e.chat = o.chat"
        "  AND e.state IN ('due', 'claimed') AND (e.created, e.id) < (o.created, o.id))",
        _RESTART,
    ),
    Invariant(
        "P2",
        "no send is left of which nobody knows whether it arrived",
        "SELECT 'out:' || id FROM outbox WHERE state = 'unclear'",
        "look into the chat, then say what you saw: palaver trace out:N --delivered, or palaver trace out:N --again",
    ),
)
"""What holds while a gateway is at work and people do their part; a promise that takes time."""
_EXAMPLES = 5


@transaction
def violations() -> Statements[list[Violation]]:
    """Everything that is broken, each with how often and where."""
    return (yield from _broken(INVARIANTS, 0))


@transaction
def overdue_work(now: datetime) -> Statements[list[Violation]]:
    """Everything that should have happened by now."""
    return (yield from _broken(DEADLINES, micros(now)))


def _broken(invariants: Sequence[Invariant], present: int) -> Statements[list[Violation]]:
    found: list[Violation] = []
    for invariant in invariants:
        values = (present,) * invariant.offenders.count("?")
        rows = yield f"SELECT count(*) FROM ({invariant.offenders}) AS broken", values
        if rows[0][0]:
            examples = yield f"{invariant.offenders} LIMIT {_EXAMPLES}", values
            found.append(Violation(invariant, rows[0][0], tuple(str(row[0]) for row in examples)))
    return found
