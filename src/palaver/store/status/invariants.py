"""What must be done in time while a gateway runs, beside what must hold in every database."""

from palaver.db.transaction import Statements, transaction
from palaver.store.damage.invariants import INVARIANTS, Invariant, Violation, find_broken
from palaver.store.queue.outbox import OPEN_SEND
from palaver.store.records import OPEN_TURN

_MINUTE_MICROS = 60_000_000
_GATEWAY_RUNS = "EXISTS (SELECT 1 FROM accounts WHERE lease_until > ?)"
_RESTART = "restart the gateway, which resumes interrupted work; then read its log"
DEADLINES = (
    Invariant(
        "while a gateway runs, no message waits longer than ten minutes unless a turn is open before it",
        f"SELECT 'in:' || i.no FROM inbox i WHERE i.state = 'waiting' AND i.received + {10 * _MINUTE_MICROS} < ?"
        f" AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.key = i.key AND t.state IN {OPEN_TURN}) AND {_GATEWAY_RUNS}",
        "raise limits.concurrent_turns if the gateway is overloaded; otherwise " + _RESTART,
    ),
    Invariant(
        "while a gateway runs, no turn is without a live worker for more than five minutes",
        f"SELECT 'turn:' || t.no FROM turns t WHERE ((t.state = 'running' AND t.lease_until + {5 * _MINUTE_MICROS} < ?)"
        f" OR (t.state = 'interrupted' AND t.halted + {5 * _MINUTE_MICROS} < ?)) AND {_GATEWAY_RUNS}",
        _RESTART,
    ),
    Invariant(
        "while a gateway runs, no background process is without one for more than five minutes",
        f"SELECT 'p' || no FROM processes WHERE ended IS NULL AND lease_until + {5 * _MINUTE_MICROS} < ?"
        f" AND {_GATEWAY_RUNS}",
        "start the gateway on the machine that palaver processes list names; after a day the process counts as lost",
    ),
    Invariant(
        "while a gateway runs, the end of every background process is reported within five minutes",
        f"SELECT 'p' || no FROM processes WHERE exit_notice = 'due' AND ended + {5 * _MINUTE_MICROS} < ?"
        f" AND {_GATEWAY_RUNS}",
        _RESTART,
    ),
    Invariant(
        "while a gateway runs, no send stays claimed for more than five minutes by a dead worker",
        "SELECT 'out:' || o.id FROM outbox o WHERE o.state IN ('claimed', 'sending')"
        f" AND o.claim_until + {5 * _MINUTE_MICROS} < ? AND {_GATEWAY_RUNS}",
        _RESTART,
    ),
    Invariant(
        "while a gateway serves an account, the first send of each chat is at most ten minutes overdue",
        f"SELECT 'out:' || o.id FROM outbox o WHERE o.state = 'due' AND o.due + {10 * _MINUTE_MICROS} < ?"
        " AND EXISTS (SELECT 1 FROM accounts a WHERE a.platform || ':' || a.account = o.account AND a.lease_until > ?)"
        " AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.account = o.account AND e.chat = o.chat"
        f"  AND e.state IN {OPEN_SEND} AND (e.created, e.id) < (o.created, o.id))",
        _RESTART,
    ),
    Invariant(
        "while a gateway runs, no job is more than ten minutes overdue",
        "SELECT 'job:' || s.no FROM schedules s WHERE s.paused IS NULL AND s.next_due IS NOT NULL"
        f" AND s.next_due + {10 * _MINUTE_MICROS} < ? AND {_GATEWAY_RUNS}",
        _RESTART,
    ),
    Invariant(
        "no send is unclear",
        "SELECT 'out:' || id FROM outbox WHERE state = 'unclear'",
        "check the chat, then run palaver trace out:N --delivered if it arrived, or palaver trace out:N --again",
        promise="P2",
    ),
)
"""What must be done in time while a gateway runs, or needs a person."""


@transaction
def violations() -> Statements[list[Violation]]:
    return (yield from find_broken(INVARIANTS))
