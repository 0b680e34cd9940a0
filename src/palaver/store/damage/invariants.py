"""What must hold in every database and no schema states: which rows break it, and what a salvage does with them."""

from collections.abc import Sequence
from typing import NamedTuple

from palaver.db.transaction import Database, Statements, transaction
from palaver.model.text import counted
from palaver.model.turn import InboxState
from palaver.store.damage.health_check import RESTORE_OR_SALVAGE, HealthCheck
from palaver.store.queue.cause import OF_OPERATION, kinds_in
from palaver.store.records import OPEN_TURN, REPLIES, SEQS, USAGE_COLUMNS

PROMISES = {
    "P1": "nothing accepted is lost",
    "P2": "nothing is done twice",
    "P3": "nobody sees another's conversation",
    "P4": "nothing is irreversible",
}
_MAX_EXAMPLES = 5


class Invariant(NamedTuple):
    sentence: str
    offenders: str
    """SQL that returns a row for each row that breaks it: its key. Every `?` in it is the current time."""
    fix: str = RESTORE_OR_SALVAGE
    table: str = ""
    """Whose rows the offenders are. A salvage names them. It leaves them behind if there is nothing to `settle`."""
    settle: tuple[str, ...] = ()
    """Statements with which a salvage leaves out a relation, or counts again."""
    action: str = ""
    """What they do."""
    promise: str = "P1"

    @property
    def name(self) -> str:
        return f"{self.promise}, {PROMISES[self.promise]}: {self.sentence}"


class Violation(NamedTuple):
    invariant: Invariant
    times: int
    examples: tuple[str, ...]


@transaction
def find_broken(invariants: Sequence[Invariant], now_micros: int = 0) -> Statements[list[Violation]]:
    """Return every broken invariant, with the number of rows and a few of them."""
    found: list[Violation] = []
    for invariant in invariants:
        values = (now_micros,) * invariant.offenders.count("?")
        rows = yield f"SELECT count(*) FROM ({invariant.offenders}) AS broken", values
        if rows[0][0]:
            examples = yield f"{invariant.offenders} LIMIT {_MAX_EXAMPLES}", values
            named = tuple(" ".join(map(str, row)) for row in examples)
            found.append(Violation(invariant, rows[0][0], named))
    return found


async def check_rule(database: Database, invariant: Invariant, now_micros: int = 0) -> HealthCheck:
    broken = await database.read(find_broken((invariant,), now_micros))
    count = counted(broken[0].times, "row breaks", "rows break") if broken else ""
    return HealthCheck(
        name=invariant.name,
        ok=not broken,
        found=f"{count} it, such as {', '.join(broken[0].examples)}" if broken else "holds",
        public=f"{count} it" if broken else "holds",
        fix=invariant.fix,
    )


def _keeping(promise: str, *invariants: Invariant) -> tuple[Invariant, ...]:
    """Return the invariants that together keep a promise."""
    return tuple(invariant._replace(promise=promise) for invariant in invariants)


def _relation(what: str, whose: str, table: str, key: str, column: str, target: str, target_key: str) -> Invariant:
    """Every row belongs to a row of another table, if it says so."""
    return Invariant(
        f"every {what} belongs to {whose} that exists",
        f"SELECT {key} FROM {table} r WHERE {column} IS NOT NULL"
        f" AND NOT EXISTS (SELECT 1 FROM {target} x WHERE x.{target_key} = r.{column})",
        table=table,
    )


# Messages, turns and sends

_WITHOUT_TURN = (
    "state = 'in-turn' AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.no = inbox.turn_no AND t.key = inbox.key)"
)
_NOTHING_WAITS = "NOT EXISTS (SELECT 1 FROM inbox i WHERE i.key = ready_queue.key AND i.state = 'waiting')"
_NOT_READY = "i.state = 'waiting' AND NOT EXISTS (SELECT 1 FROM ready_queue q WHERE q.key = i.key)"
_HELD_SEND = "state IN ('claimed', 'sending')"
_NOTHING_LOST = _keeping(
    "P1",
    Invariant(
        "every received message has a known state",
        f"SELECT no FROM inbox WHERE state NOT IN {tuple(each.value for each in InboxState)}",
        table="inbox",
    ),
    Invariant(
        "every message in a turn points to a turn of its conversation",
        f"SELECT no FROM inbox WHERE {_WITHOUT_TURN}",
        table="inbox",
        settle=(
            "UPDATE inbox SET state = 'failed', turn_no = NULL, reason = 'its turn was left behind'"
            f" WHERE {_WITHOUT_TURN}",
        ),
        action="its turn was left behind, so it counts as failed",
    ),
    Invariant(
        "a message with a turn has the state in-turn",
        "SELECT no FROM inbox WHERE state <> 'in-turn' AND turn_no IS NOT NULL",
        table="inbox",
    ),
    Invariant(
        "a conversation is in the ready queue exactly while messages wait in it",
        f"SELECT key FROM ready_queue WHERE {_NOTHING_WAITS} UNION ALL SELECT DISTINCT key FROM inbox i"
        f" WHERE {_NOT_READY}",
        settle=(
            f"DELETE FROM ready_queue WHERE {_NOTHING_WAITS}",
            "INSERT INTO ready_queue (key, position) SELECT DISTINCT i.key, (SELECT coalesce(max(position), 0) + 1"
            f" FROM ready_queue) FROM inbox i WHERE {_NOT_READY}",
        ),
    ),
    Invariant(
        "every waiting message has content",
        "SELECT no FROM inbox WHERE state = 'waiting' AND length(body) = 0",
        table="inbox",
    ),
    Invariant(
        "a send that is claimed or under way has a worker and a deadline, and no other send has",
        f"SELECT id FROM outbox WHERE ({_HELD_SEND}) <> (worker IS NOT NULL AND claim_until IS NOT NULL)",
        table="outbox",
    ),
    Invariant(
        "every firing of a job has a message, or says why it did not run",
        "SELECT schedule_no, at FROM firings WHERE (inbox_no IS NULL) <> (reason IS NOT NULL)",
        table="firings",
    ),
)
_TURN_SUMS = ", ".join(f"sum({name}) AS {name}" for name in USAGE_COLUMNS)
_SUM = "(SELECT sum(t.{0}) FROM turns t WHERE t.session_no = sessions.no)"
_NOTHING_TWICE = _keeping(
    "P2",
    Invariant(
        "the entries of a turn are in its session",
        "SELECT DISTINCT t.no FROM entries e JOIN turns t ON t.no = e.turn_no"
        f" JOIN sessions s ON s.no = e.id / {SEQS}"
        f" WHERE s.no <> t.session_no AND e.id % {SEQS} > coalesce(s.parent_seq, 0)",
        table="turns",
    ),
    Invariant(
        "a session has counted what its turns used",
        f"SELECT s.no FROM sessions s JOIN (SELECT session_no, {_TURN_SUMS} FROM turns GROUP BY session_no) t"
        f" ON t.session_no = s.no WHERE {' OR '.join(f's.{name} < t.{name}' for name in USAGE_COLUMNS)}",
        settle=tuple(
            f"UPDATE sessions SET {name} = {_SUM.format(name)} WHERE {name} < {_SUM.format(name)}"
            for name in USAGE_COLUMNS
        ),
    ),
    Invariant(
        "every reply belongs to a turn that exists",
        f"SELECT id FROM outbox o WHERE id > 0 AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.no = o.id / {REPLIES})",
        table="outbox",
    ),
    Invariant(
        "only finished turns have replies in the outbox",
        f"SELECT DISTINCT t.no FROM outbox o JOIN turns t ON t.no = o.id / {REPLIES}"
        f" WHERE o.id > 0 AND t.state IN {OPEN_TURN}",
        table="turns",
    ),
    Invariant(
        "a reply of a turn has no other cause",
        "SELECT id FROM outbox WHERE id > 0 AND cause_kind IS NOT NULL",
        table="outbox",
    ),
    Invariant(
        "every message belongs to at most one firing of a job",
        "SELECT schedule_no, at FROM firings f WHERE EXISTS (SELECT 1 FROM firings e WHERE e.inbox_no = f.inbox_no"
        " AND (e.at, e.schedule_no) < (f.at, f.schedule_no))",
        table="firings",
    ),
    Invariant(
        "a turn has an end time exactly when it is done or failed",
        f"SELECT no FROM turns WHERE (state IN {OPEN_TURN}) <> (ended IS NULL)",
        table="turns",
    ),
    Invariant(
        "the session of an open turn belongs to the turn's conversation",
        "SELECT t.no FROM turns t JOIN sessions s ON s.no = t.session_no"
        f" WHERE t.state IN {OPEN_TURN} AND s.key <> t.key",
        table="turns",
    ),
)

# Relations

_SENT_FROM = "attached_chats a WHERE a.place = coalesce(inbox.place, inbox.key)"
_LAST_SEQ = (
    f"(SELECT max(e.id) - sessions.no * {SEQS} FROM entries e"
    f" WHERE e.id >= sessions.no * {SEQS} AND e.id < (sessions.no + 1) * {SEQS})"
)
_NOBODY_SEES_ANOTHERS = _keeping(
    "P3",
    Invariant(
        "every entry belongs to a session that exists",
        f"SELECT e.id FROM entries e WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.no = e.id / {SEQS})",
        table="entries",
    ),
    Invariant(
        "every entry has a number below the next one of its session",
        f"SELECT s.no FROM sessions s JOIN entries e ON e.id >= s.no * {SEQS} + s.next_seq"
        f" AND e.id < (s.no + 1) * {SEQS} GROUP BY s.no",
        settle=(f"UPDATE sessions SET next_seq = {_LAST_SEQ} + 1 WHERE next_seq <= {_LAST_SEQ}",),
    ),
    Invariant(
        "every waiting message was sent in its own conversation or in a chat attached to it",
        "SELECT i.no FROM inbox i LEFT JOIN attached_chats a ON a.place = coalesce(i.place, i.key)"
        " WHERE i.state = 'waiting' AND i.key <> coalesce(a.key, i.place, i.key)",
        table="inbox",
        settle=(
            f"UPDATE inbox SET key = coalesce((SELECT a.key FROM {_SENT_FROM}), place, key),"
            f" place = (SELECT a.place FROM {_SENT_FROM}) WHERE state = 'waiting'",
        ),
        action="its chat is no longer attached, so it waits where it was sent",
    ),
    *(
        _relation(*each)
        for each in (
            ("turn", "a session", "turns", "no", "session_no", "sessions", "no"),
            ("participant", "a session", "participants", "identity, session_no", "session_no", "sessions", "no"),
            ("identity", "a person", "identities", "identity", "person", "people", "id"),
            ("linked account", "an identity", "links", "no", "one", "identities", "identity"),
            ("other linked account", "an identity", "links", "no", "other", "identities", "identity"),
            ("operation", "a session", "operations", "no", "session_no", "sessions", "no"),
            ("mention", "a message", "mentions", "inbox_no, session_no", "inbox_no", "inbox", "no"),
            ("mentioned session", "a session", "mentions", "inbox_no, session_no", "session_no", "sessions", "no"),
            (
                "request with results",
                "a message",
                "result_requests",
                "identity, request_key",
                "inbox_no",
                "inbox",
                "no",
            ),
            ("request for access", "a message", "pairings", "identity, account", "inbox_no", "inbox", "no"),
            ("mark", "a session", "session_marks", "identity, session_no", "session_no", "sessions", "no"),
            ("process", "a session", "processes", "no", "session_no", "sessions", "no"),
            (
                "digest of an erasure",
                "an erasure",
                "erased_digests",
                "erasure, kind, digest",
                "erasure",
                "erasures",
                "no",
            ),
            ("firing", "a job", "firings", "schedule_no, at", "schedule_no", "schedules", "no"),
            ("replaced note", "a note", "memory_notes", "no", "replaced_by", "memory_notes", "no"),
        )
    ),
    Invariant(
        "every file belongs to an entry or a message",
        "SELECT kind, holder, sha256 FROM attachments a"
        " WHERE (kind = 'entry' AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.id = a.holder))"
        " OR (kind = 'in' AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.no = a.holder))"
        " OR kind NOT IN ('entry', 'in', 'out')",
        table="attachments",
    ),
    Invariant(
        "no chat is attached to a conversation that is itself attached elsewhere",
        "SELECT a.place FROM attached_chats a JOIN attached_chats b ON b.place = a.key",
        table="attached_chats",
    ),
)
_WITHOUT_OPERATION = (
    "hidden_by IS NOT NULL AND NOT EXISTS (SELECT 1 FROM operations o"
    f" WHERE o.no = entries.hidden_by AND o.session_no = entries.id / {SEQS})"
)
_OF_NO_OPERATION = (
    f"cause_kind IN ({kinds_in(OF_OPERATION)})"
    " AND NOT EXISTS (SELECT 1 FROM operations o WHERE CAST(o.no AS TEXT) = outbox.cause_id)"
)
_FIRST_SHOWN = (
    f"(SELECT min(e.id) - sessions.no * {SEQS} FROM entries e WHERE e.id >= sessions.no * {SEQS}"
    f" AND e.id < (sessions.no + 1) * {SEQS} AND e.hidden_by IS NULL)"
)
_WITHOUT_ROUTE = "ended IS NULL AND NOT EXISTS (SELECT 1 FROM routes r WHERE r.key = sessions.key)"
_NOTHING_IRREVERSIBLE = _keeping(
    "P4",
    Invariant(
        "every hidden entry was hidden by an operation on its session",
        f"SELECT id FROM entries WHERE {_WITHOUT_OPERATION}",
        table="entries",
        settle=(f"UPDATE entries SET hidden_by = NULL WHERE {_WITHOUT_OPERATION}",),
        action="what hid it was left behind, so it is shown again",
    ),
    # A session that was deleted took its operations along, and the journal tells no more than that.
    Invariant(
        "every attached chat was attached by an operation that exists",
        "SELECT place FROM attached_chats a WHERE NOT EXISTS (SELECT 1 FROM operations o WHERE o.no = a.operation)"
        " AND NOT EXISTS (SELECT 1 FROM journal d LEFT JOIN sessions s ON s.no = d.session_no"
        " WHERE d.kind = 'delete' AND s.no IS NULL)",
        table="attached_chats",
    ),
    Invariant(
        "every notice about an operation belongs to one that exists",
        f"SELECT id FROM outbox WHERE {_OF_NO_OPERATION}",
        table="outbox",
        settle=(
            "UPDATE outbox SET cause_kind = NULL, cause_id = NULL, cause_detail = NULL, part = NULL"
            f" WHERE {_OF_NO_OPERATION}",
        ),
        action="its operation was left behind, so it has no cause",
    ),
    Invariant(
        "no visible entry comes before the point where reading its session starts",
        f"SELECT e.id FROM entries e JOIN sessions s ON s.no = e.id / {SEQS}"
        f" WHERE e.hidden_by IS NULL AND e.id % {SEQS} < s.shown_from",
        settle=(f"UPDATE sessions SET shown_from = {_FIRST_SHOWN} WHERE shown_from > {_FIRST_SHOWN}",),
    ),
    Invariant(
        "every route points to a session that exists",
        "SELECT key FROM routes WHERE session_no NOT IN (SELECT no FROM sessions)",
        table="routes",
    ),
    Invariant(
        "the route of a conversation points to its open session",
        "SELECT r.key FROM sessions s JOIN routes r ON r.key = s.key WHERE s.ended IS NULL AND r.session_no <> s.no",
        table="routes",
    ),
    Invariant(
        "every open session has a route",
        f"SELECT id FROM sessions WHERE {_WITHOUT_ROUTE}",
        table="sessions",
        settle=(f"UPDATE sessions SET ended = last_active, end_reason = 'switched' WHERE {_WITHOUT_ROUTE}",),
        action="its route was left behind, so it has ended: /resume opens it again",
    ),
)
INVARIANTS = (*_NOTHING_LOST, *_NOTHING_TWICE, *_NOBODY_SEES_ANOTHERS, *_NOTHING_IRREVERSIBLE)


# Sums


async def check_sums(database: Database) -> HealthCheck:
    """Check that every turn is counted once: `summed` is how far the sums have followed the journal."""
    place, newest = await database.read(_read_sums())
    ok = place.isdecimal() and int(place) <= newest
    return HealthCheck(
        name="usage: every turn that ended is counted or waits to be",
        ok=ok,
        found="holds" if ok else f"the sums have followed the journal to {place or 'nothing'}, and it ends at {newest}",
        public="holds" if ok else "the place is lost",
        fix=RESTORE_OR_SALVAGE,
    )


@transaction
def _read_sums() -> Statements[tuple[str, int]]:
    places = yield "SELECT value FROM meta WHERE name = 'summed'", ()
    newest = yield "SELECT coalesce(max(pos), 0) FROM journal", ()
    return places[0][0] if places else "", newest[0][0]


@transaction
def count_on() -> Statements[None]:
    """Count from the first turn that is not counted, which the journal still names."""
    yield "DELETE FROM meta WHERE name = 'summed'", ()
    yield (
        "INSERT INTO meta (name, value) SELECT 'summed', CAST(coalesce((SELECT min(pos) - 1 FROM journal"
        " WHERE turn_no IS NOT NULL), (SELECT max(pos) FROM journal), 0) AS TEXT)",
        (),
    )
