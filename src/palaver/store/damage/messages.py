"""Find received messages whose rows are missing: a turn, a notice or a job still tells of them.

A gap in their numbers proves nothing: both databases skip numbers, for example for a redelivery.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from palaver.db.transaction import Database, Statements, transaction
from palaver.model.source import encode_id
from palaver.store.archive.importer import IMPORTER
from palaver.store.damage.health_check import HealthCheck, missing_rows
from palaver.store.damage.set_aside import record_loss
from palaver.store.records import SEQS, entries_of, entry_span, placeholders


class MissingMessage(NamedTuple):
    name: str
    session: int | None = None


# An erasure deletes messages, so that only what came after the last one proves something.
_AFTER_ERASURES = f"> coalesce((SELECT max(coalesce(ended, {1 << 62})) FROM erasures), -1)"
_OWN_ENTRIES = (
    f"entries e JOIN turns t ON t.no = e.turn_no AND t.session_no = e.id / {SEQS}"
    f" WHERE e.role = 'user' AND e.observed = 0 AND t.worker <> '{IMPORTER}'"
)
# Turns with more entries of people than messages: an edited message can have several.
_SUSPECTS = (
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


@transaction
def find_missing_messages() -> Statements[list[MissingMessage]]:
    """Return what is missing and was not recorded by a repair yet."""
    found = [MissingMessage(name) for (name,) in (yield _OTHERS, ())]
    for turn, session in (yield _SUSPECTS, ()):
        rows = yield (
            f"SELECT e.id, e.body FROM {_OWN_ENTRIES} AND t.no = ? AND e.id >= ? AND e.id < ? ORDER BY e.id",
            (turn, *entry_span(session)),
        )
        said = {encode_id(entry.message_id): entry.seq for entry in entries_of(rows) if entry.message_id is not None}
        stored = yield f"SELECT message_id FROM inbox WHERE message_id IN ({placeholders(list(said))})", tuple(said)
        lost = said.keys() - {row[0] for row in stored}
        found += [
            MissingMessage(f"the message of entry {said[each]} in turn:{turn}", session)
            for each in sorted(lost, key=lambda each: said[each])
        ]
    known = yield "SELECT row_name FROM set_aside WHERE from_table = 'inbox'", ()
    return [each for each in found if each.name not in {row[0] for row in known}]


async def check_messages(database: Database) -> HealthCheck:
    missing = await database.read(find_missing_messages())
    return missing_rows(
        "messages: every message that something tells of is there, unless it was erased",
        [each.name for each in missing],
        "records the loss; what was said is still in the transcript",
        partial(_record, tuple(missing)),
    )


@transaction
def _record(missing: Sequence[MissingMessage], now: datetime) -> Statements[None]:
    for each in missing:
        yield from record_loss("inbox", each.name, "its row was missing", now, session=each.session)
