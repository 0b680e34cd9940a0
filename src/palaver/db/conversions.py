"""Conversions: the parts of a migration that SQL cannot do, such as taking a text or a JSON value apart."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from palaver.db.transaction import Row, Statements, Transaction, Value, transaction
from palaver.model.key import SessionKey
from palaver.model.source import MessageAddress, Source, identity_of, message_address

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
    source = _source(body)
    return (identity_of(source),) if source else None


def _source(body: bytes) -> Source | None:
    try:
        source = _inbound_decoder.decode(body).source
        return Source.from_json(source, known=(str(source["platform"]),))
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


# Schema 16


@transaction
def inbox_addresses() -> Statements[None]:
    """Copy the inbox, with columns instead of the text that recognised a redelivery."""
    after, retried = _LOWEST, set[tuple[Value, ...]]()
    while rows := (yield f"{_OLD_INBOX} LIMIT {_PAGE}", (after,)):
        after = rows[-1][0]
        copies: list[tuple[Value, ...]] = []
        for number, name, revises, key, place, retried_in, *rest in rows:
            version, message = _version_and_name(name, revises, retried_in)
            address = _address(message, place or key, rest[-1])
            repeat = (*address, retried_in)
            if retried_in and repeat in retried:
                address = address._replace(message_id=None)
            retried.add(repeat if retried_in else ())
            copies.append((number, *address, version, retried_in or 0, key, place, *rest))
        yield _NEW_INBOX, copies


_REST = "state, received, identity, turn_no, reason, body"
_OLD_INBOX = f"SELECT no, dedup, revises, key, place, retried_in, {_REST} FROM inbox WHERE no > ? ORDER BY no"
_NEW_COLUMNS = f"no, {', '.join(MessageAddress._fields)}, version, retried_in, key, place, {_REST}"
_NEW_INBOX = f"INSERT INTO received ({_NEW_COLUMNS}) VALUES ({', '.join('?' * (_NEW_COLUMNS.count(',') + 1))})"


def _version_and_name(name: str | None, revises: str | None, retried_in: int | None) -> tuple[str, str | None]:
    """Return the version of an edit, and the name of the message that a row is, changes or sends once more."""
    if name is None or name.startswith("retry:"):
        return "", revises if retried_in else None
    return (name.rpartition(":")[2] or "-", revises) if revises else ("", name)


def _address(name: str | None, key: str, body: bytes) -> MessageAddress:
    """The name has the chat's present id; all else is in the message, or if that was deleted, in its key."""
    place = SessionKey.parse(key) if key.startswith("agent:") else SessionKey("main")
    source = _source(body) or Source(
        platform=place.platform or "-",
        chat_kind=place.kind,
        account=place.account,
        scope_id=place.scope,
        chat_id=place.chat,
        user_id=place.user,
    )
    address = message_address(source)._replace(message_id=None)
    if name is None:
        return address
    platform, account, chat, message = name.split(":")
    named = {"chat_user": chat} if address.chat_user else {} if address.alt_chat else {"chat": chat}
    return address._replace(message_id=message, platform=platform, account=account, **named)


_ALL = (outbox_causes, inbox_columns, turn_columns, operation_columns, inbox_addresses)
CONVERSIONS: Mapping[str, Callable[[], Transaction[None]]] = {each.__name__: each for each in _ALL}
