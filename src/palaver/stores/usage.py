"""Use in the store: tokens and cost as running sums per person, quarter of an hour and model."""

from collections.abc import Collection, Mapping
from datetime import date, datetime, tzinfo

from palaver.domain.caps import Spent
from palaver.domain.session import Principal
from palaver.domain.turn import Usage
from palaver.ports.usage import By
from palaver.ports.work import Row, Steps, Value, work
from palaver.stores.records import instant, micros

__all__ = ["SLOT", "add", "merge", "spent", "table"]

SLOT = 15 * 60 * 1_000_000
"""Microseconds. Every zone of today is a whole number of quarters of an hour away from UTC."""
_COUNTED = ("turns", "input_tokens", "output_tokens", "cost_micros")
_SUMS = ", ".join(f"coalesce(sum({column}), 0)" for column in _COUNTED)


@work
def add(identity: str | None, usage: Usage, now: datetime, *, turns: int = 1) -> Steps[None]:
    """Count what a turn has used for whoever it answered."""
    yield (
        "INSERT INTO used (identity, slot, model, turns, input_tokens, output_tokens, cost_micros)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (identity, slot, model) DO UPDATE SET"
        " turns = used.turns + excluded.turns, input_tokens = used.input_tokens + excluded.input_tokens,"
        " output_tokens = used.output_tokens + excluded.output_tokens,"
        " cost_micros = used.cost_micros + excluded.cost_micros",
        (
            identity or "",
            micros(now) // SLOT,
            usage.model or "",
            turns,
            usage.input_tokens,
            usage.output_tokens,
            usage.cost_micros,
        ),
    )


@work
def spent(since: datetime, identities: Collection[str] | None = None) -> Steps[Spent]:
    """Since the quarter of an hour in which `since` lies: by these, or by everybody."""
    mine = "" if identities is None else f"identity IN ({', '.join('?' * len(identities)) or 'NULL'}) AND "
    values: tuple[Value, ...] = (*sorted(identities or ()), micros(since) // SLOT)
    rows = yield f"SELECT {_SUMS} FROM used WHERE {mine}slot >= ?", values
    return _spent(rows[0])


@work
def table(
    by: By, principal: Principal, *, since: datetime, until: datetime | None = None, zone: tzinfo
) -> Steps[dict[str | date, Spent]]:
    """Sums in order: of people and models those who used most first, of days the newest."""
    mine = "" if principal.sees_all else f" AND identity IN ({', '.join('?' * len(principal.identities)) or 'NULL'})"
    names = () if principal.sees_all else tuple(sorted(principal.identities))
    last = _LAST if until is None else micros(until) // SLOT
    column = {By.PERSON: "identity", By.MODEL: "model", By.DAY: "slot"}[by]
    rows = yield (
        f"SELECT {column}, {_SUMS} FROM used WHERE slot >= ? AND slot < ?{mine} GROUP BY {column} ORDER BY {column}",
        (micros(since) // SLOT, last, *names),
    )
    if by is By.DAY:
        return _days({row[0]: _spent(row[1:]) for row in rows}, zone)
    found: dict[str | date, Spent] = {row[0]: _spent(row[1:]) for row in rows}
    return dict(sorted(found.items(), key=lambda each: (-each[1].cost_micros, -each[1].tokens)))


_LAST = 1 << 62


def _days(slots: Mapping[int, Spent], zone: tzinfo) -> dict[str | date, Spent]:
    days: dict[str | date, Spent] = {}
    for slot in sorted(slots, reverse=True):
        day = instant(slot * SLOT).astimezone(zone).date()
        days[day] = _sum(days.get(day, Spent()), slots[slot])
    return days


def _sum(one: Spent, other: Spent) -> Spent:
    return Spent(
        turns=one.turns + other.turns,
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cost_micros=one.cost_micros + other.cost_micros,
    )


def _spent(row: Row) -> Spent:
    """PostgreSQL sums whole numbers into decimals."""
    turns, input_tokens, output_tokens, cost = map(int, row)
    return Spent(turns=turns, input_tokens=input_tokens, output_tokens=output_tokens, cost_micros=cost)


@work
def merge(identities: Collection[str]) -> Steps[None]:
    """What these have used counts as used by nobody: the sums of days and models stay true."""
    names: tuple[Value, ...] = tuple(sorted(identities))
    theirs = f"FROM used WHERE identity IN ({', '.join('?' * len(names)) or 'NULL'})"
    rows: list[Row] = yield f"SELECT slot, model, {', '.join(_COUNTED)} {theirs}", names
    for slot, model, turns, input_tokens, output_tokens, cost in rows:
        used = Usage(model=model, input_tokens=input_tokens, output_tokens=output_tokens, cost_micros=cost)
        yield from add(None, used, instant(slot * SLOT), turns=turns)
    yield f"DELETE {theirs}", names
