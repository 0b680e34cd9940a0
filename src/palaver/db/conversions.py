"""Conversions: the parts of a migration that SQL cannot do, such as taking a text or a JSON value apart."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from palaver.db.transaction import Row, Statements, Transaction, Value, transaction
from palaver.model.source import Source, identity_of

_PAGE = 1000
_LOWEST = -(1 << 62)
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _convert(select: str, update: str, convert: Callable[[Row], Iterable[Value] | None]) -> Statements[None]:
    """Update every row that the first column of `select` numbers, page by page."""
    after = _LOWEST
    while rows := (yield f"{select} LIMIT {_PAGE}", (after,)):
        after = rows[-1][0]
        converted = ((row[0], convert(row)) for row in rows)
        yield update, [(*values, number) for number, values in converted if values is not None]


# Schema 15


@transaction
def outbox_causes() -> Statements[None]:
    yield from _convert(
        "SELECT id, dedup FROM outbox WHERE id > ? AND dedup IS NOT NULL ORDER BY id",
        "UPDATE outbox SET cause_kind = ?, cause_id = ?, cause_detail = ?, part = ? WHERE id = ?",
        lambda row: _cause(row[1]),
    )
    rows = yield "SELECT dedup FROM said_once", ()
    yield (
        "INSERT INTO wiped_after_send (cause_kind, cause_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
        [_cause(name)[:2] for (name,) in rows],
    )


def _cause(name: str) -> tuple[str, str, str, int]:
    """`halt:7:2:0` is kind, turn, fence and part. Only what is sent in parts ends with the number of one."""
    kind, _, rest = name.partition(":")
    id_, _, detail = rest.partition(":")
    if kind not in _IN_PARTS:
        return kind, id_, detail, 0
    before, colon, last = detail.rpartition(":")
    if last.isdecimal():
        return kind, id_, before, int(last)
    return kind, id_, before + colon + last, 0


_IN_PARTS = frozenset({"halt", "tool", "command", "revision", "pair", "paired", "welcome"})


@transaction
def inbox_columns() -> Statements[None]:
    yield from _convert(
        "SELECT no, body FROM inbox WHERE no > ? AND length(body) > 0 ORDER BY no",
        "UPDATE inbox SET identity = ? WHERE no = ?",
        lambda row: _sender(row[1]),
    )
    sessions = yield "SELECT id, no FROM sessions", ()
    numbers: Mapping[str, int] = dict(sessions)
    yield from _convert(
        "SELECT no, dedup FROM inbox WHERE no > ? AND substr(dedup, 1, 6) = 'retry:' ORDER BY no",
        "UPDATE inbox SET retried_in = ? WHERE no = ?",
        lambda row: (numbers.get(row[1].split(":")[1]),),
    )


def _sender(body: bytes) -> tuple[Value, ...] | None:
    try:
        source = _inbound_decoder.decode(body).source
        return (identity_of(Source.from_json(source, known=(str(source["platform"]),))),)
    except (msgspec.MsgspecError, UnicodeEncodeError, ValueError, KeyError):
        return None  # `palaver doctor` names rows that cannot be read


class _Inbound(msgspec.Struct):
    source: dict[str, Any]


_inbound_decoder = msgspec.json.Decoder(_Inbound)


@transaction
def turn_columns() -> Statements[None]:
    yield from _convert(
        "SELECT no, stop FROM turns WHERE no > ? AND stop IS NOT NULL ORDER BY no",
        "UPDATE turns SET stopped_by = ?, stopped_at = ? WHERE no = ?",
        lambda row: _stop(row[1]),
    )
    yield from _convert(
        "SELECT no, error FROM turns WHERE no > ? AND substr(error, 1, 11) = 'stopped by ' ORDER BY no",
        "UPDATE turns SET stopped_by = coalesce(stopped_by, ?), error = 'stopped instead of an answer' WHERE no = ?",
        lambda row: _matched(r"stopped by (.*) instead of an answer", row[1]),
    )
    yield from _convert(
        "SELECT no, error FROM turns WHERE no > ? AND substr(error, 1, 16) = 'over the cap of ' ORDER BY no",
        "UPDATE turns SET quota = ? WHERE no = ?",
        lambda row: _matched(r"over the cap of ([^:]*).*", row[1]),
    )


def _stop(text: str) -> tuple[Value, ...]:
    by, _, at = text.rpartition(" at ")
    try:
        return by, (datetime.fromisoformat(at) - _EPOCH) // _MICROSECOND
    except (ValueError, TypeError):
        return text, 0


def _matched(pattern: str, text: str) -> tuple[str | Any, ...] | None:
    found = re.fullmatch(pattern, text, re.DOTALL)
    return found.groups() if found else None


@transaction
def operation_columns() -> Statements[None]:
    yield from _convert(
        "SELECT no, details FROM operations WHERE no > ? AND details <> '{}' ORDER BY no",
        "UPDATE operations SET from_session = ?, from_key = ?, to_key = ?, details = ? WHERE no = ?",
        lambda row: _course(msgspec.json.decode(row[1])),
    )


def _course(details: dict[str, Any]) -> tuple[Value, ...] | None:
    course = tuple(details.pop(name, None) for name in ("before", "key", "to"))
    return (*course, msgspec.json.encode(details).decode()) if any(course) else None


CONVERSIONS: Mapping[str, Callable[[], Transaction[None]]] = {
    "outbox_causes": outbox_causes,
    "inbox_columns": inbox_columns,
    "turn_columns": turn_columns,
    "operation_columns": operation_columns,
}
