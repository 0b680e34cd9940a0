"""Use in the store: tokens and cost as running sums per person, quarter of an hour and model."""

from collections.abc import Collection, Mapping
from datetime import date, datetime, tzinfo
from enum import StrEnum

from palaver.db.transaction import Lock, Row, Statements, Value, transaction
from palaver.model.quotas import UsageTotal
from palaver.model.session import Principal
from palaver.model.turn import Turn, Usage
from palaver.store.queue.inbox import OPEN_TURN
from palaver.store.records import instant, micros

__all__ = [
    "SLOT",
    "By",
    "add",
    "charge",
    "fold",
    "fold_all",
    "merge",
    "spent",
    "table",
    "uncount",
    "used_by",
]


class By(StrEnum):
    PERSON = "person"
    MODEL = "model"
    DAY = "day"


SLOT = 15 * 60 * 1_000_000
"""Microseconds. Every zone of today is a whole number of quarters of an hour away from UTC."""
_PAGE = 256
_ONE_AT_A_TIME = Lock("used")
_COUNTED = ("turns", "input_tokens", "output_tokens", "cost_micros")
_SUMS = ", ".join(f"coalesce(sum({column}), 0)" for column in _COUNTED)
_COLUMNS = f"identity, slot, model, {', '.join(_COUNTED)}"
_TO_SUM = "ON CONFLICT (identity, slot, model) DO UPDATE SET " + ", ".join(
    f"{column} = used.{column} + excluded.{column}" for column in _COUNTED
)
_ADD = f"INSERT INTO used ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) {_TO_SUM}"


def _row(at: str, turns: int) -> str:
    """A turn as a row of `used`."""
    return (
        f"coalesce(t.identity, '') AS identity, t.{at} / {SLOT} AS slot, coalesce(t.model, '') AS model,"
        f" {turns} AS turns, t.input_tokens, t.output_tokens, t.cost_micros"
    )


_UNSUMMED = (
    "journal j JOIN turns t ON t.no = j.turn_no"
    " WHERE j.turn_no IS NOT NULL AND j.pos > (SELECT CAST(value AS BIGINT) FROM meta WHERE name = 'summed')"
)
# A turn is in the sums, has ended and is not in them yet, or is open: never two of these.
_USED = (
    f"(SELECT {_COLUMNS} FROM used UNION ALL SELECT {_row('ended', 1)} FROM {_UNSUMMED}"
    f" UNION ALL SELECT {_row('halted', 0)} FROM turns t"
    f" WHERE t.state IN {OPEN_TURN} AND t.input_tokens + t.output_tokens + t.cost_micros > 0) u"
)


@transaction
def fold(*, least: int = 1) -> Statements[int]:
    """Add turns that have ended to the sums, up to a page of them; gives how many. Fewer than `least` may wait."""
    waiting = yield f"SELECT j.pos FROM {_UNSUMMED} LIMIT ?", (least,)
    if len(waiting) < least:
        return 0
    yield _ONE_AT_A_TIME
    rows = yield f"SELECT j.pos, {_row('ended', 1)} FROM {_UNSUMMED} ORDER BY j.pos LIMIT {_PAGE}", ()
    if rows:
        yield "UPDATE journal SET turn_no = NULL WHERE pos = ?", [(row[0],) for row in rows]
        yield _ADD, [tuple(row[1:]) for row in rows]
        # Where positions are not in the order of commits, what is before the last one may still come.
        yield "UPDATE meta SET value = ? WHERE name = 'summed' /*pg AND FALSE*/", (str(rows[-1][0]),)
    return len(rows)


@transaction
def fold_all() -> Statements[None]:
    """Before turns change or go: what they have used stays in the sums as it is."""
    while (yield from fold()):
        pass


@transaction
def add(identity: str | None, usage: Usage, now: datetime) -> Statements[None]:
    """Count what was used for a turn that is in the sums already."""
    tokens = (usage.input_tokens, usage.output_tokens, usage.cost_micros)
    yield _ADD, (identity or "", micros(now) // SLOT, usage.model or "", 0, *tokens)


@transaction
def charge(turn: int) -> Statements[None]:
    """A turn that answers nobody counts for whoever was answered before it: what they said is why there is one."""
    yield (
        "UPDATE turns SET identity = (SELECT b.identity FROM turns b WHERE b.session_no = turns.session_no"
        " AND b.no < turns.no ORDER BY b.no DESC LIMIT 1) WHERE no = ?",
        (turn,),
    )


@transaction
def uncount(turn: Turn) -> Statements[None]:
    """What was settled just now was an errand of ours: what it used counts, but nobody got an answer from it."""
    yield "UPDATE sessions SET turns = turns - 1 WHERE no = ?", (turn.session_number,)
    yield (
        f"INSERT INTO used ({_COLUMNS}) SELECT coalesce(identity, ''), ended / {SLOT}, coalesce(model, ''), -1, 0, 0, 0"
        f" FROM turns WHERE no = ? {_TO_SUM}",
        (turn.number,),
    )


@transaction
def used_by(names: Collection[str]) -> Statements[list[Row]]:
    """Rows of `used` as they are once everything is in the sums."""
    sums = ", ".join(f"CAST(sum({column}) AS BIGINT)" for column in _COUNTED)
    return (
        yield (
            f"SELECT identity, slot, model, {sums} FROM {_USED} WHERE identity IN ({', '.join('?' * len(names))})"
            " GROUP BY identity, slot, model ORDER BY identity, slot, model",
            tuple(sorted(names)),
        )
    )


@transaction
def spent(since: datetime, identities: Collection[str] | None = None) -> Statements[UsageTotal]:
    """Since the quarter of an hour in which `since` lies: by these, or by everybody."""
    mine = "" if identities is None else f"identity IN ({', '.join('?' * len(identities)) or 'NULL'}) AND "
    values: tuple[Value, ...] = (*sorted(identities or ()), micros(since) // SLOT)
    rows = yield f"SELECT {_SUMS} FROM {_USED} WHERE {mine}slot >= ?", values
    return _spent(rows[0])


@transaction
def table(
    by: By, principal: Principal, *, since: datetime, until: datetime | None = None, zone: tzinfo
) -> Statements[dict[str | date, UsageTotal]]:
    """Sums in order: of people and models those who used most first, of days the newest."""
    mine = "" if principal.sees_all else f" AND identity IN ({', '.join('?' * len(principal.identities)) or 'NULL'})"
    names = () if principal.sees_all else tuple(sorted(principal.identities))
    last = _LAST if until is None else micros(until) // SLOT
    column = {By.PERSON: "identity", By.MODEL: "model", By.DAY: "slot"}[by]
    rows = yield (
        f"SELECT {column}, {_SUMS} FROM {_USED} WHERE slot >= ? AND slot < ?{mine} GROUP BY {column} ORDER BY {column}",
        (micros(since) // SLOT, last, *names),
    )
    if by is By.DAY:
        return _days({row[0]: _spent(row[1:]) for row in rows}, zone)
    found: dict[str | date, UsageTotal] = {row[0]: _spent(row[1:]) for row in rows}
    return dict(sorted(found.items(), key=lambda each: (-each[1].cost_micros, -each[1].tokens)))


_LAST = 1 << 62


def _days(slots: Mapping[int, UsageTotal], zone: tzinfo) -> dict[str | date, UsageTotal]:
    days: dict[str | date, UsageTotal] = {}
    for slot in sorted(slots, reverse=True):
        day = instant(slot * SLOT).astimezone(zone).date()
        days[day] = _sum(days.get(day, UsageTotal()), slots[slot])
    return days


def _sum(one: UsageTotal, other: UsageTotal) -> UsageTotal:
    return UsageTotal(
        turns=one.turns + other.turns,
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cost_micros=one.cost_micros + other.cost_micros,
    )


def _spent(row: Row) -> UsageTotal:
    """PostgreSQL sums whole numbers into decimals."""
    turns, input_tokens, output_tokens, cost = map(int, row)
    return UsageTotal(turns=turns, input_tokens=input_tokens, output_tokens=output_tokens, cost_micros=cost)


@transaction
def merge(identities: Collection[str]) -> Statements[None]:
    """What these have used counts as used by nobody: the sums of days and models stay true."""
    yield _ONE_AT_A_TIME
    names: tuple[Value, ...] = tuple(sorted(identities))
    theirs = f"FROM used WHERE identity IN ({', '.join('?' * len(names)) or 'NULL'})"
    rows = yield f"SELECT '', slot, model, {', '.join(_COUNTED)} {theirs}", names
    yield _ADD, [tuple(row) for row in rows]
    yield f"DELETE {theirs}", names
