"""Usage: running sums of tokens and cost per identity, quarter of an hour and model."""

import operator
from collections.abc import Collection, Iterable, Sequence
from datetime import date, datetime, tzinfo
from enum import StrEnum

from palaver.db.transaction import Lock, Row, Statements, Value, transaction
from palaver.model.session import Principal, UsageTotal
from palaver.model.turn import Usage
from palaver.store.conversations.visibility import Filter
from palaver.store.records import OPEN_TURN, USAGE_COLUMNS, counted, instant, micros, placeholders


class GroupBy(StrEnum):
    PERSON = "person"
    MODEL = "model"
    DAY = "day"

    @property
    def unnamed(self) -> str:
        """What to show for usage without a name."""
        return {GroupBy.PERSON: "(nobody)", GroupBy.MODEL: "(unknown)"}.get(self, "")


SLOT_MICROS = 15 * 60 * 1_000_000
"""A quarter of an hour: every time zone of today is a multiple of it away from UTC."""
_TURNS_PER_BATCH = 256
_SUMS_LOCK = Lock("usage")
_COUNTED = ("turns", *USAGE_COLUMNS)
_SUMS = ", ".join(f"coalesce(sum({column}), 0)" for column in _COUNTED)
_COLUMNS = f"identity, slot, model, {', '.join(_COUNTED)}"
_ON_CONFLICT_ADD = "ON CONFLICT (identity, slot, model) DO UPDATE SET " + ", ".join(
    f"{column} = usage.{column} + excluded.{column}" for column in _COUNTED
)
_ADD = f"INSERT INTO usage ({_COLUMNS}) VALUES (?, ?, ?{', ?' * len(_COUNTED)}) {_ON_CONFLICT_ADD}"


def _row(at: str, turns: str) -> str:
    """Return the columns that make a turn a row of `usage`."""
    return (
        f"coalesce(t.identity, '') AS identity, t.{at} / {SLOT_MICROS} AS slot, coalesce(t.model, '') AS model,"
        f" {turns} AS turns, {', '.join(f't.{column}' for column in USAGE_COLUMNS)}"
    )


_UNSUMMED = (
    "journal j JOIN turns t ON t.no = j.turn_no"
    " WHERE j.turn_no IS NOT NULL AND j.pos > (SELECT CAST(value AS BIGINT) FROM meta WHERE name = 'summed')"
)
# A turn is in the sums, has ended and is not in them yet, or is open: never two of these.
_USED = (
    f"(SELECT {_COLUMNS} FROM usage UNION ALL SELECT {_row('ended', 't.answered')} FROM {_UNSUMMED}"
    f" UNION ALL SELECT {_row('halted', '0')} FROM turns t"
    f" WHERE t.state IN {OPEN_TURN} AND t.input_tokens + t.output_tokens + t.cost_micros > 0) u"
)


@transaction
def sum_ended_turns(*, least: int = 1) -> Statements[int]:
    """Add a batch of ended turns to the sums, unless fewer than `least` wait; return how many were added."""
    waiting = yield f"SELECT j.pos FROM {_UNSUMMED} LIMIT ?", (least,)
    if len(waiting) < least:
        return 0
    yield _SUMS_LOCK
    ended = f"SELECT j.pos, {_row('ended', 't.answered')} FROM {_UNSUMMED}"
    rows = yield f"{ended} ORDER BY j.pos LIMIT {_TURNS_PER_BATCH}", ()
    if rows:
        yield "UPDATE journal SET turn_no = NULL WHERE pos = ?", [(row[0],) for row in rows]
        yield _ADD, [tuple(row[1:]) for row in rows]
        # PostgreSQL does not number in order of commit: earlier positions can still appear.
        yield "UPDATE meta SET value = ? WHERE name = 'summed' /*pg AND FALSE*/", (str(rows[-1][0]),)
    return len(rows)


@transaction
def sum_all_ended_turns() -> Statements[None]:
    """Add all ended turns to the sums, before turns are changed or deleted."""
    while (yield from sum_ended_turns()):
        pass


@transaction
def add(identity: str | None, usage: Usage, now: datetime, *, turns: int = 0) -> Statements[None]:
    """Add usage that belongs to no turn that is still to be summed."""
    yield _ADD, (identity or "", micros(now) // SLOT_MICROS, usage.model or "", turns, *counted(usage))


@transaction
def charge_to_previous(turn: int) -> Statements[None]:
    """Charge a turn that answers nobody to the person whose turn came before it."""
    yield (
        "UPDATE turns SET identity = (SELECT b.identity FROM turns b WHERE b.session_no = turns.session_no"
        " AND b.no < turns.no ORDER BY b.no DESC LIMIT 1) WHERE no = ?",
        (turn,),
    )


@transaction
def rows_of(names: Collection[str]) -> Statements[list[Row]]:
    """Return the rows of `usage` for these identities, with turns that are not summed yet."""
    sums = ", ".join(f"CAST(sum({column}) AS BIGINT)" for column in _COUNTED)
    return (
        yield (
            f"SELECT identity, slot, model, {sums} FROM {_USED} WHERE identity IN ({placeholders(names)})"
            " GROUP BY identity, slot, model ORDER BY identity, slot, model",
            tuple(sorted(names)),
        )
    )


@transaction
def total(since: datetime, identities: Collection[str] | None = None) -> Statements[UsageTotal]:
    """Return the usage of these identities, or of all, since the quarter of an hour of `since`."""
    mine = [] if identities is None else [Filter.among("identity", identities)]
    where = Filter.all([*mine, Filter("slot >= ?", (micros(since) // SLOT_MICROS,))])
    rows = yield f"SELECT {_SUMS} FROM {_USED} WHERE {where.sql}", where.values
    return _total_of(rows[0])


@transaction
def totals_by(
    by: GroupBy, principal: Principal, *, since: datetime, until: datetime | None = None, zone: tzinfo
) -> Statements[dict[str | date, UsageTotal]]:
    """Return totals per person or model, largest first, or per day, newest first."""
    mine = Filter("1 = 1") if principal.sees_all else Filter.among("identity", principal.identities)
    last = _LAST_SLOT if until is None else micros(until) // SLOT_MICROS
    column = {GroupBy.PERSON: "identity", GroupBy.MODEL: "model", GroupBy.DAY: "slot"}[by]
    rows = yield (
        f"SELECT {column}, {_SUMS} FROM {_USED} WHERE slot >= ? AND slot < ? AND {mine.sql}"
        f" GROUP BY {column} ORDER BY {column}",
        (micros(since) // SLOT_MICROS, last, *mine.values),
    )
    if by is GroupBy.DAY:
        return _days(rows, zone)
    found: dict[str | date, UsageTotal] = {row[0]: _total_of(row[1:]) for row in rows}
    return dict(sorted(found.items(), key=lambda each: (-each[1].cost_micros, -each[1].tokens)))


_LAST_SLOT = 1 << 62


def _days(rows: Sequence[Row], zone: tzinfo) -> dict[str | date, UsageTotal]:
    days: dict[date, list[int]] = {}
    for slot, *amounts in reversed(rows):
        day = days.setdefault(instant(slot * SLOT_MICROS).astimezone(zone).date(), [0] * len(_COUNTED))
        day[:] = map(operator.add, day, amounts)
    return {day: _total_of(counted) for day, counted in days.items()}


def _total_of(row: Iterable[int]) -> UsageTotal:
    # PostgreSQL sums integers into decimals.
    return UsageTotal(**dict(zip(_COUNTED, map(int, row), strict=True)))


@transaction
def reassign(identities: Collection[str], to: str) -> Statements[None]:
    """Move the usage of these identities to another, or to nobody, so that totals per day and model stay true."""
    yield _SUMS_LOCK
    names: tuple[Value, ...] = tuple(sorted(identities))
    theirs = f"FROM usage WHERE identity IN ({placeholders(names)})"
    rows = yield f"SELECT slot, model, {', '.join(_COUNTED)} {theirs}", names
    yield _ADD, [(to, *row) for row in rows]
    yield f"DELETE {theirs}", names
