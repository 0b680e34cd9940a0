"""Contents of messages that were answered or refused, and of answers and notices that were sent.

Their rows stay, so that a message that is delivered again is not answered twice.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from palaver.db.transaction import Row, Statements, transaction
from palaver.store.conversations.attachment_refs import drop_refs
from palaver.store.conversations.deletion import contents_beside
from palaver.store.conversations.visibility import Filter
from palaver.store.meta import SET_META, read_meta
from palaver.store.people.pairing import KEPT_REASONS
from palaver.store.queue import outbox
from palaver.store.queue.inbox import delete_content
from palaver.store.records import (
    DELIVERY_COLUMNS,
    INBOX_COLUMNS,
    REPLIES,
    delivery_of,
    micros,
    placeholders,
    readable,
    reply_span,
)
from palaver.store.retention.boundary import Kept, first_since
from palaver.store.scrub import owe_scrub

_PAGE = 200
KEPT = Kept("inbox WHERE no > 0", ("no",), "received", "length(body)")
"""Messages; the answers and notices of the same time stay with them."""


class Source(NamedTuple):
    """A row of numbers that grow with time, from 1 up or from -1 down."""

    name: str
    table: str
    number: str
    time: str
    sign: int = 1


_INBOX = Source("inbox", "inbox", "i.no", "received")
_REPLIES = Source("replies", "outbox", "o.id", "created")
_NOTICES = Source("notices", "outbox", "o.id", "created", -1)
SOURCES = (_INBOX, _REPLIES, _NOTICES)
_SETTLED = {
    "inbox": "i.received < ? AND CASE WHEN t.no IS NULL THEN i.state IN ('done', 'refused', 'failed')"
    f" AND coalesce(i.reason, '') NOT IN ({placeholders(KEPT_REASONS)})"
    " ELSE t.ended IS NOT NULL AND t.ended < ? END",
    "outbox": "o.state IN ('delivered', 'dead') AND o.created < ?",
}
_FROM = {"inbox": "inbox i LEFT JOIN turns t ON t.no = i.turn_no", "outbox": "outbox o"}
_ROWS = {
    "inbox": f"SELECT {INBOX_COLUMNS}, {_SETTLED['inbox']} FROM {_FROM['inbox']}",
    "outbox": f"SELECT {DELIVERY_COLUMNS}, {_SETTLED['outbox']} FROM {_FROM['outbox']}",
}
_BODY = {
    "inbox": INBOX_COLUMNS.split(", ").index("i.body"),
    "outbox": DELIVERY_COLUMNS.split(", ").index("body"),
}


_TURN = INBOX_COLUMNS.split(", ").index("i.turn_no")


def _values(source: Source, cutoff: datetime) -> tuple[str | int, ...]:
    moment = micros(cutoff)
    return (moment, *KEPT_REASONS, moment) if source.table == "inbox" else (moment,)


# Walk through each source once, and remember how far


@transaction
def measure(source: Source, cutoff: datetime, gone: Sequence[Filter] = ()) -> Statements[tuple[int, int]]:
    """Return how many rows are still to be emptied, and their bytes, without those of conversations that go before."""
    start, end = (yield from _position(source)), (yield from _end(source, cutoff))
    low, high = (start, end) if source.sign > 0 else (-end, -start)
    number, skipped = source.number, "SELECT k.number FROM retention_skipped k WHERE k.source = ?"
    places = Filter(f"({number} > ? AND {number} < ? OR {number} IN ({skipped}))", (low, high, source.name))
    if source is _REPLIES:
        passed = Filter(f"{number} > 0 AND {number} <= ? AND {_turn_is_skipped(cutoff).sql}", (start,))
        values = (*places.values, *passed.values, *_turn_is_skipped(cutoff).values)
        places = Filter(f"({places.sql} OR {passed.sql})", values)
    where = Filter.all(
        [
            places,
            Filter(_SETTLED[source.table], _values(source, cutoff)),
            Filter("length(body) > 0"),
            *(contents_beside(source.table, number, each) for each in gone),
        ]
    )
    rows = yield (
        f"SELECT count(*), coalesce(sum(length(body)), 0) FROM {_FROM[source.table]} WHERE {where.sql}",
        where.values,
    )
    return rows[0][0], int(rows[0][1])


def _turn_is_skipped(cutoff: datetime) -> Filter:
    """Return the condition for replies of a turn that ended late: see `_empty_late_replies`."""
    return Filter(
        f"EXISTS (SELECT 1 FROM inbox i JOIN turns t ON t.no = i.turn_no WHERE i.turn_no = o.id / {REPLIES}"
        " AND i.no IN (SELECT k.number FROM retention_skipped k WHERE k.source = ?)"
        f" AND {_SETTLED['inbox']})",
        (_INBOX.name, *_values(_INBOX, cutoff)),
    )


def _position(source: Source) -> Statements[int]:
    """Return the last number that was looked at, without its sign."""
    return int((yield from read_meta(_meta(source))) or 0)


def _meta(source: Source) -> str:
    return f"retention {source.name}"


def _end(source: Source, cutoff: datetime) -> Statements[int]:
    """Return the first number that is too young, without its sign."""
    if source is _REPLIES:  # Their numbers are those of their turns.
        return REPLIES * (yield from first_since("turns", "no", "started", cutoff))
    number = yield from first_since(
        f"{source.table} {source.number[0]}", source.number, source.time, cutoff, sign=source.sign
    )
    return source.sign * number


@transaction
def empty_page(source: Source, cutoff: datetime) -> Statements[int | None]:
    """Empty the next rows. Return how many were; None if there are no more."""
    start, end = (yield from _position(source)), (yield from _end(source, cutoff))
    sign, (after, before, order) = source.sign, (">", "<", "ASC") if source.sign > 0 else ("<", ">", "DESC")
    rows: list[Row] = yield (
        f"{_ROWS[source.table]} WHERE {source.number} {after} ? AND {source.number} {before} ?"
        f" ORDER BY {source.number} {order} LIMIT ?",
        (*_values(source, cutoff), sign * start, sign * end, _PAGE),
    )
    if not rows:
        return None
    emptied = yield from _empty_or_skip(source, rows)
    yield SET_META, (_meta(source), str(sign * rows[-1][0]))
    return emptied


def _empty_or_skip(source: Source, rows: Sequence[Row]) -> Statements[int]:
    """Empty what is settled, and remember the rest. Return how many were emptied."""
    settled = [row[:-1] for row in rows if row[-1]]
    yield from _empty(source, settled)
    yield (
        "INSERT INTO retention_skipped (source, number) VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(source.name, row[0]) for row in rows if not row[-1]],
    )
    return _count_contents(source, settled)


def _count_contents(source: Source, rows: Sequence[Row]) -> int:
    """Count the rows that had a content: that of others went with their conversation."""
    return sum(bool(row[_BODY[source.table]]) for row in rows)


@transaction
def empty_skipped(source: Source, cutoff: datetime, after: int) -> Statements[tuple[int, int] | None]:
    """Empty those of the next skipped rows that are settled by now. Return the last and how many; None at the end."""
    skipped = yield (
        "SELECT number FROM retention_skipped WHERE source = ? AND number > ? ORDER BY number LIMIT ?",
        (source.name, after, _PAGE),
    )
    if not skipped:
        return None
    numbers = tuple(row[0] for row in skipped)
    rows: list[Row] = yield (
        f"{_ROWS[source.table]} WHERE {source.number} IN ({placeholders(numbers)})",
        (*_values(source, cutoff), *numbers),
    )
    settled = [row[:-1] for row in rows if row[-1]]
    yield from _empty(source, settled)
    done = {row[0] for row in settled} | set(numbers) - {row[0] for row in rows}
    yield (
        "DELETE FROM retention_skipped WHERE source = ? AND number = ?",
        [(source.name, number) for number in sorted(done)],
    )
    replies = (yield from _empty_late_replies(settled, cutoff)) if source is _INBOX else 0
    return numbers[-1], _count_contents(source, settled) + replies


def _empty_late_replies(messages: Sequence[Row], cutoff: datetime) -> Statements[int]:
    """Empty the replies of turns that ended late: when their numbers were passed, they did not exist."""
    emptied, passed = 0, (yield from _position(_REPLIES))
    for turn in sorted({row[_TURN] for row in messages if row[_TURN] is not None}):
        first, end = reply_span(turn)
        rows = yield (
            f"{_ROWS['outbox']} WHERE o.id >= ? AND o.id < ?",
            (*_values(_REPLIES, cutoff), first, min(end, passed + 1)),
        )
        emptied += yield from _empty_or_skip(_REPLIES, rows)
    return emptied


def _empty(source: Source, rows: Sequence[Row]) -> Statements[None]:
    if not rows:
        return
    if source.table == "inbox":
        yield from delete_content(rows)
    else:
        for delivery in readable(delivery_of, rows):
            yield from outbox.rewrite(delivery.number, delivery.outbound.without_content())
            yield from drop_refs("kind = 'out' AND holder = ?", delivery.number)
    yield from owe_scrub()
