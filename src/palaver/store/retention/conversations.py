"""Conversations that nobody has used for longer than they stay."""

from datetime import datetime

from palaver.db.transaction import Statements, transaction
from palaver.model.retention import RetentionClass
from palaver.store.conversations.visibility import Filter
from palaver.store.queue.cause import OF_TURN, kinds_in
from palaver.store.records import REPLIES, SEQS, micros
from palaver.store.retention.boundary import Kept

_OF_KIND = {
    RetentionClass.CHAT: Filter("s.schedule_no IS NULL AND s.platform <> 'api'"),
    RetentionClass.CRON: Filter("s.schedule_no IS NOT NULL"),
    RetentionClass.API: Filter("s.schedule_no IS NULL AND s.platform = 'api'"),
}
_BYTES = (
    "(SELECT coalesce(sum(length(e.body)), 0) FROM entries e"
    f" WHERE e.id >= s.no * {SEQS} AND e.id < (s.no + 1) * {SEQS})"
)
KEPT = {
    kind: Kept(f"sessions s WHERE {where.sql}", ("s.last_active", "s.no"), "s.last_active", _BYTES)
    for kind, where in _OF_KIND.items()
}


def expired(kind: RetentionClass, cutoff: datetime) -> Filter:
    """Return the condition for `sessions s` that go: none that is still needed."""
    time = micros(cutoff)
    return Filter(
        f"s.last_active < ? AND {_OF_KIND[kind].sql} AND NOT EXISTS ({_PINNED}) AND NOT EXISTS ({_NEWER_VERSION})"
        f" AND NOT EXISTS ({_OPEN_TURN}) AND NOT EXISTS ({_UNSENT}) AND NOT EXISTS ({_UNSENT_BY_TURN})"
        f" AND NOT EXISTS ({_NEXT_RUN}) AND NOT EXISTS ({_PROCESS}) AND NOT EXISTS ({_WAITING})",
        (time, time),
    )


_PINNED = (
    "SELECT 1 FROM session_marks m WHERE m.session_no IN (s.no, coalesce(s.version_root, s.no))"
    " AND m.pinned IS NOT NULL"
)
_NEWER_VERSION = (
    "SELECT 1 FROM sessions v WHERE (v.no = s.version_root OR v.version_root = s.version_root"
    " OR v.version_root = s.no) AND v.last_active >= ?"
)
_OPEN_TURN = "SELECT 1 FROM turns t WHERE t.session_no = s.no AND t.ended IS NULL"
_UNSENT = (
    f"SELECT 1 FROM turns t JOIN outbox o ON o.id >= t.no * {REPLIES} AND o.id < (t.no + 1) * {REPLIES}"
    " WHERE t.session_no = s.no AND o.state NOT IN ('delivered', 'dead')"
)
_UNSENT_BY_TURN = (
    f"SELECT 1 FROM turns t JOIN outbox o ON o.cause_kind IN ({kinds_in(OF_TURN)}) AND o.cause_id = CAST(t.no AS TEXT)"
    " WHERE t.session_no = s.no AND o.state NOT IN ('delivered', 'dead')"
)
"""What a turn sent besides its replies, for example to another chat."""
_NEXT_RUN = "SELECT 1 FROM schedules j WHERE j.no = s.schedule_no AND s.ended IS NULL AND j.next_due IS NOT NULL"
"""The next run of its job continues an open conversation."""
_PROCESS = "SELECT 1 FROM processes p WHERE p.session_no = s.no AND p.ended IS NULL"
_WAITING = "SELECT 1 FROM ready_queue q WHERE q.key = s.key AND s.ended IS NULL"


@transaction
def count_bytes(where: Filter) -> Statements[int]:
    rows = yield f"SELECT coalesce(sum({_BYTES}), 0) FROM sessions s WHERE {where.sql}", where.values
    return int(rows[0][0])
