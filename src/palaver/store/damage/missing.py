"""Find rows that are missing although others tell of them: entries, messages and replies.

A gap in the numbers of messages proves nothing: both databases skip numbers, for example for a redelivery.
"""

from typing import NamedTuple

from palaver.db.transaction import Database, Statements, transaction
from palaver.model.source import encode_id
from palaver.model.text import counted
from palaver.store.archive.importer import IMPORTER
from palaver.store.damage.health_check import RESTORE_OR_SALVAGE, HealthCheck, listed
from palaver.store.damage.losses import known_losses
from palaver.store.records import REPLIES, SEQS, entries_of, entry_span, placeholders


class Missing(NamedTuple):
    table: str
    row: str
    """Its name in a record of losses."""
    name: str
    session: int | None = None
    seq: int = 0
    """That of an entry."""


# Transcripts, by the journal


# Sessions whose counts differ, or of which something was deleted: only these are compared one by one.
_SUSPECTS = (
    "SELECT s.no, s.id, coalesce(s.parent_seq, 0) FROM sessions s LEFT JOIN (SELECT session_no,"
    " sum(CASE WHEN kind = 'append' THEN last_seq - first_seq + 1 ELSE 0 END) AS written,"
    " max(CASE WHEN kind = 'delete' THEN 1 ELSE 0 END) AS deleted FROM journal GROUP BY session_no) j"
    f" ON j.session_no = s.no LEFT JOIN (SELECT e.id / {SEQS} AS session_no, sum(CASE WHEN e.id % {SEQS} >"
    f" coalesce(p.parent_seq, 0) THEN 1 ELSE 0 END) AS present FROM entries e JOIN sessions p ON p.no = e.id / {SEQS}"
    f" GROUP BY e.id / {SEQS}) c ON c.session_no = s.no"
    " WHERE j.written <> coalesce(c.present, 0) OR j.deleted = 1 ORDER BY s.no"
)
_SESSIONS_GONE = (
    "SELECT DISTINCT session_no FROM journal j WHERE kind = 'append'"
    " AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.no = j.session_no)"
    " AND NOT EXISTS (SELECT 1 FROM journal d WHERE d.session_no = j.session_no AND d.kind = 'delete') ORDER BY 1"
)


@transaction
def find_missing_entries() -> Statements[list[Missing]]:
    """Return sessions and entries that the journal knows, that are not there, and that nobody deleted."""
    known = yield from known_losses("sessions")
    gone = [str(number) for (number,) in (yield _SESSIONS_GONE, ())]
    found = [Missing("sessions", number, f"session {number}") for number in gone if number not in known]
    known = yield from known_losses("entries")
    for number, id_, copied in (yield _SUSPECTS, ()):
        changes = yield (
            "SELECT kind, first_seq, last_seq FROM journal WHERE session_no = ? AND kind IN ('append', 'delete')"
            " ORDER BY pos",
            (number,),
        )
        written: set[int] = set()
        for kind, first, last in changes:
            seqs = range(max(first, copied + 1), last + 1)
            written = written.union(seqs) if kind == "append" else written.difference(seqs)
        present = yield "SELECT id FROM entries WHERE id >= ? AND id < ?", entry_span(number)
        lost = sorted(written - {row[0] % SEQS for row in present})
        found += [
            Missing("entries", str(number * SEQS + seq), f"entry {seq} of session {id_}", number, seq)
            for seq in lost
            if str(number * SEQS + seq) not in known
        ]
    return found


# Messages and replies


# An erasure deletes messages, so that only what came after the last one proves something.
_AFTER_ERASURES = f"> coalesce((SELECT max(coalesce(ended, {1 << 62})) FROM erasures), -1)"
_OWN_ENTRIES = (
    f"entries e JOIN turns t ON t.no = e.turn_no AND t.session_no = e.id / {SEQS}"
    f" WHERE e.role = 'user' AND e.observed = 0 AND t.worker <> '{IMPORTER}'"
)
# Turns with more entries of people than messages: an edited message can have several.
_SUSPECT_TURNS = (
    f"SELECT t.no, t.session_no FROM {_OWN_ENTRIES} AND t.started {_AFTER_ERASURES} GROUP BY t.no, t.session_no"
    " HAVING count(*) > (SELECT count(*) FROM inbox i WHERE i.turn_no = t.no) ORDER BY t.no"
)
_OTHERS = (
    "SELECT 'in:' || cause_id || ', of which out:' || min(id) || ' tells' FROM outbox o"
    f" WHERE cause_kind IN ('command', 'revision') AND created {_AFTER_ERASURES}"
    " AND NOT EXISTS (SELECT 1 FROM inbox i WHERE CAST(i.no AS TEXT) = o.cause_id) GROUP BY cause_id"
    " UNION ALL SELECT 'in:' || inbox_no || ', of which job:' || schedule_no || ' tells' FROM firings f"
    f" WHERE at {_AFTER_ERASURES} AND inbox_no IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.no = f.inbox_no) ORDER BY 1"
)
# The parts of a reply are stored together: a later one tells of those before it.
_REPLIES_GONE = (
    f"SELECT o.id - 1 FROM outbox o WHERE o.id > 0 AND o.id % {REPLIES} > 0"
    " AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.id = o.id - 1) ORDER BY 1"
)


@transaction
def find_missing_messages() -> Statements[list[Missing]]:
    """Return messages that a turn, a notice or a job tells of, and parts of replies."""
    named = [(name, None) for (name,) in (yield _OTHERS, ())]
    for turn, session in (yield _SUSPECT_TURNS, ()):
        rows = yield (
            f"SELECT e.id, e.body FROM {_OWN_ENTRIES} AND t.no = ? AND e.id >= ? AND e.id < ? ORDER BY e.id",
            (turn, *entry_span(session)),
        )
        said = {encode_id(entry.message_id): entry.seq for entry in entries_of(rows) if entry.message_id is not None}
        stored = yield f"SELECT message_id FROM inbox WHERE message_id IN ({placeholders(list(said))})", tuple(said)
        lost = said.keys() - {row[0] for row in stored}
        ordered = sorted(lost, key=lambda each: said[each])
        named += [(f"the message of entry {said[each]} in turn:{turn}", session) for each in ordered]
    known = yield from known_losses("inbox")
    found = [Missing("inbox", name, name, session) for name, session in named if name not in known]
    known = yield from known_losses("outbox")
    replies = [str(number) for (number,) in (yield _REPLIES_GONE, ())]
    return found + [Missing("outbox", number, f"out:{number}") for number in replies if number not in known]


# Checks


async def check_transcripts(database: Database) -> HealthCheck:
    missing = await database.read(find_missing_entries())
    return _check("transcripts: everything that was written is there, unless it was deleted", missing)


async def check_messages(database: Database) -> HealthCheck:
    missing = await database.read(find_missing_messages())
    return _check("messages: every message that something tells of is there, unless it was erased", missing)


def _check(name: str, missing: list[Missing]) -> HealthCheck:
    are = counted(len(missing), "is", "are")
    return HealthCheck(
        name=name,
        ok=not missing,
        found=f"{are} missing: {listed(each.name for each in missing)}" if missing else "nothing is missing",
        public=f"missing: {len(missing)}",
        fix=RESTORE_OR_SALVAGE,
    )
