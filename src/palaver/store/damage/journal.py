"""Compare the transcripts with the journal: what was written and not deleted has to be there."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from palaver.db.transaction import Database, Statements, transaction
from palaver.store.conversations.transcript import write_journal
from palaver.store.damage.health_check import HealthCheck, missing_rows
from palaver.store.damage.restore import Restored, find_hiding, restore_entry
from palaver.store.damage.restore_session import restore_session
from palaver.store.damage.set_aside import record_loss
from palaver.store.records import SEQS, entry_span


class Missing(NamedTuple):
    session: int
    name: str
    """The id of the session, or its number if that is missing too."""
    seq: int
    """0 for the session itself."""

    @property
    def text(self) -> str:
        return f"entry {self.seq} of session {self.name}" if self.seq else f"session {self.name}"


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
def find_missing() -> Statements[list[Missing]]:
    """Return sessions and entries that the journal knows, that are not there, and that nobody deleted."""
    found = [Missing(number, str(number), 0) for (number,) in (yield _SESSIONS_GONE, ())]
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
        found += [Missing(number, id_, seq) for seq in sorted(written - {row[0] % SEQS for row in present})]
    return found


async def check_journal(database: Database) -> HealthCheck:
    missing = await database.read(find_missing())
    return missing_rows(
        "transcripts: everything that was written is there, unless it was deleted",
        [each.text for each in missing],
        "writes an entry again from the message or the replies that it was, and else records its loss",
        partial(_mend, tuple(missing)),
    )


@transaction
def _mend(missing: Sequence[Missing], now: datetime) -> Statements[None]:
    for each in missing:
        if not each.seq:
            if not (yield from restore_session(each.session, now)):
                yield from record_loss("sessions", each.name, "its row was missing", now, session=each.session)
                yield from write_journal("delete", each.session, 1, 1)
            continue
        found = yield from _restore(each)
        if not found:
            name = str(each.session * SEQS + each.seq)
            yield from record_loss("entries", name, "its row was missing", now, session=each.session)
        yield from write_journal("append" if found else "delete", each.session, each.seq, each.seq)


def _restore(missing: Missing) -> Statements[bool]:
    """Write an entry again. It belongs to the turn of the entry before it, or of the one after it."""
    id_ = missing.session * SEQS + missing.seq
    for turn in (yield from _turns_beside(id_)):
        restored: Restored | None = yield from restore_entry(id_, turn)
        if restored:
            prepared = restored.prepared
            hiding = yield from find_hiding(id_, turn)
            yield (
                "INSERT INTO entries (id, role, turn_no, observed, hidden_by, body, checksum)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (id_, prepared.role, turn, prepared.observed, hiding, *prepared.values(missing.session, missing.seq)),
            )
            return True
    return False


def _turns_beside(id_: int) -> Statements[list[int]]:
    first = id_ // SEQS * SEQS
    before = yield (
        "SELECT turn_no FROM entries WHERE id >= ? AND id < ? AND turn_no IS NOT NULL ORDER BY id DESC LIMIT 1",
        (first, id_),
    )
    after = yield (
        "SELECT turn_no FROM entries WHERE id > ? AND id < ? AND turn_no IS NOT NULL ORDER BY id LIMIT 1",
        (id_, first + SEQS),
    )
    turns = [row[0] for row in (*before, *after)]
    # A turn of which nothing is left: between these two, or after all others.
    between = yield (
        "SELECT no FROM turns t WHERE session_no = ? AND no > ? AND no < ? AND NOT EXISTS"
        " (SELECT 1 FROM entries e WHERE e.turn_no = t.no AND e.id >= ? AND e.id < ?) ORDER BY no",
        (id_ // SEQS, before[0][0] if before else 0, after[0][0] if after else 1 << 62, first, first + SEQS),
    )
    return [*dict.fromkeys([*turns, *(row[0] for row in between)])]
