"""What the agent overheard: entries of transcripts, and the messages that they were."""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.errors import SessionBusy
from palaver.store.conversations.deletion import remove_entries
from palaver.store.conversations.sessions import check_not_busy
from palaver.store.conversations.visibility import Filter, hold
from palaver.store.queue.inbox import delete_content
from palaver.store.records import SELECT_RECEIVED, SEQS, entry_of, micros, placeholders, readable, received_of
from palaver.store.retention.boundary import Kept, first_since

_PAGE = 200
KEPT = Kept(
    "entries e WHERE e.observed = 1 AND e.turn_no IS NOT NULL",
    ("e.turn_no", "e.id"),
    "coalesce((SELECT t.started FROM turns t WHERE t.no = e.turn_no), 0)",
    "length(e.body)",
)
Place = tuple[int, int]
"""A turn and an entry of it, in the order in which overheard entries are found."""


_EXPIRED = "observed = 1 AND turn_no < ? AND EXISTS (SELECT 1 FROM turns t WHERE t.no = turn_no AND t.started < ?)"
"""Before a turn that is too young: an import gives numbers at the end to turns of long ago."""


@transaction
def measure(cutoff: datetime, gone: Sequence[Filter] = ()) -> Statements[tuple[int, int]]:
    """Return how many entries would go, and their bytes, without those of conversations that go before."""
    end = yield from first_since("turns", "no", "started", cutoff)
    stays = Filter.all([Filter("1 = 1"), *(Filter(f"NOT ({each.sql})", each.values) for each in gone)])
    held = (
        f"SELECT s.no FROM sessions s WHERE {stays.sql} AND NOT EXISTS (SELECT 1 FROM turns r WHERE r.session_no = s.no"
        " AND r.key = s.key AND r.state IN ('running', 'parked', 'interrupted'))"
    )
    rows = yield (
        f"SELECT count(*), coalesce(sum(length(body)), 0) FROM entries WHERE {_EXPIRED} AND id / {SEQS} IN ({held})",
        (end, micros(cutoff), *stays.values),
    )
    items, size, last = rows[0][0], int(rows[0][1]), -1
    sessions = {row[0] for row in (yield held, stays.values)}
    while page := (yield from _read_without_turn(last)):
        last = page[-1][0]
        sizes = [len(row[1]) for row in page if row[0] // SEQS in sessions and _is_expired(row, cutoff)]
        items, size = items + len(sizes), size + sum(sizes)
    return items, size


@transaction
def find_page(cutoff: datetime, after: Place) -> Statements[list[Place]]:
    end = yield from first_since("turns", "no", "started", cutoff)
    rows = yield (
        f"SELECT turn_no, id FROM entries WHERE {_EXPIRED} AND (turn_no, id) > (?, ?) ORDER BY turn_no, id LIMIT ?",
        (end, micros(cutoff), *after, _PAGE),
    )
    return [(turn, id_) for turn, id_ in rows]


@transaction
def find_without_turn(cutoff: datetime, after: int) -> Statements[tuple[list[Place], int] | None]:
    """Look through imported entries without a turn. Return which of the next go, and the last; None at the end."""
    page = yield from _read_without_turn(after)
    return ([(_NO_TURN, row[0]) for row in page if _is_expired(row, cutoff)], page[-1][0]) if page else None


_NO_TURN = 0


def _read_without_turn(after: int) -> Statements[list[Row]]:
    return (
        yield (
            "SELECT id, body FROM entries WHERE observed = 1 AND turn_no IS NULL AND id > ? ORDER BY id LIMIT ?",
            (after, _PAGE),
        )
    )


def _is_expired(row: Row, cutoff: datetime) -> bool:
    return any(entry.at < cutoff for entry in readable(entry_of, [row]))


@transaction
def remove(places: Sequence[Place], cutoff: datetime) -> Statements[int]:
    """Delete these entries and the text of their messages, except in conversations that are busy."""
    removed = 0
    for number, group in groupby(sorted(places, key=lambda place: place[1]), key=lambda place: place[1] // SEQS):
        theirs = list(group)
        try:
            yield from check_not_busy((yield from hold(number)))
        except SessionBusy:
            continue
        yield from remove_entries(number, [id_ % SEQS for _, id_ in theirs])
        yield from _empty_messages(sorted({turn for turn, _ in theirs}), cutoff)
        removed += len(theirs)
    return removed


def _empty_messages(turns: Sequence[int], cutoff: datetime) -> Statements[None]:
    rows: list[Row] = yield (
        f"{SELECT_RECEIVED} WHERE i.turn_no IN ({placeholders(turns)}) AND i.received < ? AND length(i.body) > 0",
        (*turns, micros(cutoff)),
    )
    heard = {each.number for each in readable(received_of, rows) if each.inbound.observed}
    yield from delete_content([row for row in rows if row[0] in heard])
